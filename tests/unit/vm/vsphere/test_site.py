# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The folders of a vCenter with several datacenters; all clusters of the simulator are in one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.site import Esxi, Site


def reference(name: str) -> SimpleNamespace:
    return SimpleNamespace(_moId=name)


def test_a_virtual_machine_is_created_in_the_datacenter_of_its_cluster():
    site = object.__new__(Site)
    site.session = SimpleNamespace(own=lambda item: item)
    site._rows = {
        "Datacenter": [
            (reference("datacenter-1"), {"hostFolder": reference("group-h1"), "vmFolder": "first"}),
            (reference("datacenter-2"), {"hostFolder": reference("group-h2"), "vmFolder": "second"}),
        ],
        # The cluster is in a folder of the second datacenter's hosts.
        "Folder": [
            (reference("group-d0"), {}),
            (reference("group-h1"), {"parent": reference("datacenter-1")}),
            (reference("group-h2"), {"parent": reference("datacenter-2")}),
            (reference("group-h3"), {"parent": reference("group-h2")}),
        ],
    }
    site.clusters = {"gpus": (None, {"parent": reference("group-h3")})}
    assert site.folder(Esxi("esx01", None, "gpus", {})) == "second"


@pytest.mark.parametrize(
    ("state", "maintenance", "why"),
    [
        ("connected", False, None),
        ("connected", True, "is in maintenance mode"),
        ("disconnected", False, "is disconnected"),
        ("notResponding", True, "is notResponding"),
        (None, False, "is in a state that vCenter does not report"),
    ],
)
def test_hosts_that_cannot_be_changed_have_a_reason(state, maintenance, why):
    """A host whose state was not read counts as missing."""
    given = {"runtime.connectionState": state, "runtime.inMaintenanceMode": maintenance}
    assert Esxi("esx01", None, "gpus", given).unusable == why
