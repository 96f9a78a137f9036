# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The settings of a host that follow from its virtual machine with the whole host, on the simulated server."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host import converge, wanted, whole_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import persistence, unit
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import boot_loader

GUEST = {"image": "/images/ubuntu.qcow2", "bridge": "br0"}
GPU, NIC_BESIDE_IT = "0000:13:00.0", "0000:14:00.0"
SMALL_PAGES = {**GUEST, "huge_page_mib": 2}
HOST = {
    **wanted.defaults(),
    "pci": [],
    "acs": "unchanged",
    "nic_firmware_by_family": False,
    "kernel_settings": {},
    "whole_host": SMALL_PAGES,
}


def test_settings_of_the_host_follow_from_its_guest(server):
    server.put(boot_loader.DEFAULTS, 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n')
    server.run(["update-grub"])
    expected = whole_host.derived(server.host(), SMALL_PAGES)
    nodes = [node.id for node in server.host().numa_nodes]
    # Seven eighths of 3000 MiB on each node.
    assert expected["pages"] == [{"node": node, "size_mib": 2, "count": 1312} for node in nodes]
    assert [entry["count"] for entry in expected["functions"]] == [1]
    assert converge.ensure(server, HOST).failed == ""
    # The saved settings name what was derived: a boot derives nothing.
    saved = unit.saved(server, persistence.SERVICE)
    assert saved["hugepages"]["pages"] == expected["pages"]
    assert saved["sriov"]["functions"] == expected["functions"]
    assert saved["vfio_binding"]["devices"] == expected["devices"]
    assert server.host().function(GPU).driver == "vfio-pci"
    assert not converge.ensure(server, HOST).changed
    pages = "hugepages=" + ",".join(f"{node}:1312" for node in nodes)
    assert pages in server.read(boot_loader.DROP_IN)


def test_given_settings_replace_those_that_follow(server):
    explicit = {
        "hugepages": [{"node": 0, "size_mib": 2, "count": 4}],
        "sriov": [{"devices": ["0000:15:00.0"], "count": 2}],
        "vfio": [GPU],
    }
    assert whole_host.completed({**HOST, **explicit}, server.host) == {**HOST, **explicit}
    one = {"vfio": [GPU]}
    completed = whole_host.completed({**HOST, **one}, server.host)
    assert completed["vfio"] == [GPU]
    assert completed["hugepages"] == whole_host.derived(server.host(), SMALL_PAGES)["pages"]


def test_nothing_is_read_without_such_a_guest():
    assert whole_host.completed(wanted.defaults(), lambda: pytest.fail("read")) == wanted.defaults()


def test_a_nic_in_the_group_of_a_gpu_is_given_away_whole(server):
    host = server.host()
    host.function(NIC_BESIDE_IT).iommu_group = host.function(GPU).iommu_group
    assert whole_host.derived(host, GUEST)["devices"] == ["gpu", NIC_BESIDE_IT]
    assert NIC_BESIDE_IT not in str(whole_host.derived(host, GUEST)["functions"])
    # Its virtual functions are from a time when the IOMMU was off.
    host.function(NIC_BESIDE_IT).sriov.now = 1
    assert {"devices": [NIC_BESIDE_IT], "count": 0} in whole_host.derived(host, GUEST)["functions"]


def test_a_guest_that_names_its_nics_gets_no_virtual_functions_made(server):
    assert whole_host.derived(server.host(), {**GUEST, "nics": {"per_gpu": 1, "functions": "pf"}})["functions"] == []


@pytest.mark.parametrize("change", [{"memory_mib": -1}, {"huge_page_mib": 3}])
def test_a_wrong_setting_is_refused_before_anything_is_changed(server, change):
    server.effects.clear()
    with pytest.raises(RequestError):
        converge.ensure(server, {**HOST, "whole_host": {**GUEST, **change}})
    assert server.effects == []


def test_an_image_has_no_host_to_derive_from(server):
    with pytest.raises(RequestError):
        converge.ensure(server, {**HOST, "parts": ["settings"], "now": False})
