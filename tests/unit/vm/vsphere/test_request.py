# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Requests for vSphere from plain data."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.request import VsphereSettings, parse


def vm(**more: Any) -> dict[str, Any]:
    return {"name": "train", "memory_mib": 1024, **more}


def disks(*sizes: Any) -> dict[str, Any]:
    return vm(disks=[{"path": "/x", "size_mib": size} for size in sizes])


def test_settings_that_are_left_out_or_empty_have_their_defaults():
    (plain,) = parse([vm()])
    assert plain.vsphere == VsphereSettings("", "", "otherLinux64Guest", "", "fixed", "", "", "high")
    assert (plain.name, plain.networks, plain.disks_mib) == ("train", [], [])
    empty = {"host": "", "guest_id": "", "hardware_version": "", "passthrough": "", "latency_sensitivity": ""}
    assert parse([vm(vsphere=empty, disks=None)])[0].vsphere == plain.vsphere


def test_settings_that_are_given_are_kept():
    given = {
        "host": "esx01",
        "datastore": "fast",
        "guest_id": "ubuntu64Guest",
        "hardware_version": "vmx-21",
        "passthrough": "dynamic",
        "device_group": "Nvidia:2@nvlink",
        "sriov_network": "rails",
        "latency_sensitivity": "normal",
    }
    (one,) = parse([vm(vsphere=given, interfaces=[{"source": "a"}, {"source": "b"}])])
    assert one.vsphere == VsphereSettings(**given)
    assert one.networks == ["a", "b"]


@pytest.mark.parametrize("version", ["vmx-9", "vmx-21", "vmx-100"])
def test_a_hardware_version_has_one_to_three_digits(version):
    assert parse([vm(vsphere={"hardware_version": version})])[0].vsphere.hardware_version == version


def test_disks_have_their_sizes_in_order():
    assert parse([disks(20480, 1, 62 << 20)])[0].disks_mib == [20480, 1, 65011712]
    assert parse([disks(None)], sizes=False)[0].disks_mib == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            disks(1, 0),
            "disks[1]: no size_mib (0 is not valid); vSphere makes a new disk of that size in the datastore; give "
            "size_mib",
        ),
        (disks((62 << 20) + 1), "disks[0]: no size_mib (65011713 is not valid)"),
        (disks(None), "disks[0]: no size_mib (None is not valid)"),
        (vm(disks=["/x"]), "disks[0]: no size_mib (None is not valid)"),
        (
            vm(interfaces=[{"source": "a"}, {"type": "user"}]),
            "interfaces[1]: no source; name a port group as source",
        ),
        (vm(vsphere={"hardware_version": "vmx-1000"}), "'vmx-1000' is not a hardware version; write it like vmx-21"),
        (vm(vsphere={"hardware_version": "21"}), "'21' is not a hardware version; write it like vmx-21"),
        (vm(vsphere={"passthrough": "shared"}), "vsphere: passthrough"),
        (vm(vsphere={"latency_sensitivity": "low"}), "vsphere: latency_sensitivity"),
        (vm(vsphere={"datastores": "x"}), "unknown setting 'datastores'"),
    ],
)
def test_an_invalid_request_is_refused(data, message):
    with pytest.raises(DomainError, match=re.escape(message)) as caught:
        parse([data])
    assert caught.value.domain == "train"


def test_a_request_that_is_no_dictionary_is_refused():
    with pytest.raises(DomainError, match=re.escape("'train' is not a virtual machine")):
        parse(["train"])
