# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NCCL's file for a flat guest: the host's switches above the guest's addresses."""

from __future__ import annotations

from dataclasses import replace

import gpu_vm
import pytest
from machines import bridge, endpoint
from vsphere_guest import guest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, NumaNode, RootComplex
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import path_class
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl import check_nccl, read_nccl
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.guest import nccl_topology
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.guest.addresses import locate
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.guest.nccl_topology import render
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.plan import (
    PlannedCell,
    PlannedDevice,
    VspherePlan,
)

WAYS = {
    "0000:13:00.0": ["15.0", "00.0"],
    "0000:83:00.0": ["15.1", "00.0"],
    "0000:14:00.1": ["16.0", "00.0"],
    "0000:84:00.1": ["16.1", "00.0"],
}
SWITCHES = """\
<system version="1">
  <cpu numaid="0" affinity="00000003" arch="x86_64" vendor="GenuineIntel">
    <pci busid="ffff:ff:01.0" class="0x060400" vendor="0x1000" device="0xc030" link_speed="" link_width="">
      <pci busid="0000:03:00.0" class="0x030200" link_speed="" link_width=""/>
      <pci busid="0000:05:00.0" class="0x020000" link_speed="" link_width=""/>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="0000000c" arch="x86_64" vendor="GenuineIntel">
    <pci busid="ffff:ff:01.1" class="0x060400" vendor="0x1000" device="0xc030" link_speed="" link_width="">
      <pci busid="0000:04:00.0" class="0x030200" link_speed="" link_width=""/>
      <pci busid="0000:06:00.0" class="0x020000" link_speed="" link_width=""/>
    </pci>
  </cpu>
</system>
"""


def plan(host, *addresses) -> VspherePlan:
    functions = [host.function(address) for address in addresses]
    devices = [PlannedDevice(item.address, item.kind, item.numa_node, item.physical_function, []) for item in functions]
    return VspherePlan("vm", "esx01", [PlannedCell(0, 0, 1, [0, 1]), PlannedCell(1, 1, 1, [2, 3])], devices, {}, [])


def text(host, inside, *addresses) -> str | None:
    made = plan(host, *addresses)
    return render(made, host, inside, locate([host.function(address) for address in addresses], WAYS, inside))


def test_gpu_and_nic_of_one_switch_are_below_one_switch():
    host = gpu_vm.host()
    found = text(host, guest(host, WAYS), *WAYS)
    assert found is not None
    assert found.split("\n", 1)[1] == SWITCHES
    check_nccl(found)
    told = read_nccl(found)
    assert path_class(told, "0000:03:00.0", "0000:05:00.0") == "PIX"
    assert path_class(told, "0000:03:00.0", "0000:06:00.0") == "SYS"
    assert text(host, guest(host, WAYS), *reversed(WAYS)) == found


def test_a_switch_with_only_one_device_is_left_out():
    host = gpu_vm.host()
    found = text(host, guest(host, WAYS), "0000:13:00.0", "0000:84:00.1")
    assert found is not None
    assert "ffff" not in found
    assert found.count("<pci ") == 2


def test_an_unknown_guest_node_is_the_planned_one_if_the_guest_has_it():
    host, addresses = gpu_vm.host(), list(WAYS)
    inside = guest(host, WAYS)
    for function in inside.functions:
        function.numa_node = None
    assert text(host, inside, *addresses).split("\n", 1)[1] == SWITCHES
    inside.numa_nodes[1].id = 5
    assert 'numaid="-1"' in text(host, inside, *addresses)


def test_a_node_that_the_guest_reports_overrides_the_plan():
    host, addresses = gpu_vm.host(), list(WAYS)
    inside = guest(host, WAYS)
    for function in inside.functions:
        function.numa_node = 1
    found = text(host, inside, *addresses)
    assert 'numaid="0"' not in found
    assert found.count("<pci ") == 6


@pytest.mark.parametrize("addresses", [["0000:14:00.1"], []])
def test_a_guest_without_a_gpu_has_no_file(addresses):
    host = gpu_vm.host()
    assert text(host, guest(host, WAYS), *addresses) is None


def test_there_is_no_file_if_the_address_of_a_device_is_unknown():
    host = gpu_vm.host()
    inside = guest(host, {address: way for address, way in WAYS.items() if address != "0000:84:00.1"})
    assert text(host, inside, *WAYS) is None


def two_levels() -> tuple[Host, Host, dict[str, str]]:
    """Return a host with a switch of two switches, the guest, and the places of four devices."""
    root = "pci0000:10"
    top = [
        bridge("0000:10:00.0", None, root, "root_port"),
        bridge("0000:11:00.0", "0000:10:00.0", root, "switch_upstream"),
    ]
    devices, places = [], {}
    for number in (0, 1):
        down, up = f"0000:12:0{number}.0", f"0000:2{number}:00.0"
        top += [bridge(down, "0000:11:00.0", root, "switch_downstream"), bridge(up, down, root, "switch_upstream")]
        for leaf, kind in enumerate(("gpu", "nic")):
            port = f"0000:3{number}:0{leaf}.0"
            address = f"0000:4{number}:0{leaf}.0"
            top.append(bridge(port, up, root, "switch_downstream"))
            devices.append(endpoint(address, port, root, kind, numa_node=0))
            places[address] = f"0000:0{2 * number + leaf + 3}:00.0"
    host = Host([NumaNode(0, [0, 1], [], 1)], [RootComplex(root, 0, 0x10, 0)], [*top, *devices])
    functions = [replace(host.function(address), address=place, parent=None) for address, place in places.items()]
    inside = Host([NumaNode(0, [0, 1], [], 1)], [RootComplex("pci0000:00", 0, 0, 0)], functions)
    return host, inside, places


def shape(text: str) -> list[str]:
    return [line.strip().split('"')[1] for line in text.splitlines() if "<pci " in line]


def made(host: Host, *addresses: str) -> VspherePlan:
    devices = [PlannedDevice(address, host.function(address).kind, 0, None, []) for address in addresses]
    return VspherePlan("vm", "esx01", [PlannedCell(0, 0, 1, [0, 1])], devices, {}, [])


def test_switches_below_a_switch_are_kept_and_numbered_from_1_on():
    host, inside, places = two_levels()
    found = render(made(host, *places), host, inside, places)
    assert shape(found) == [
        "ffff:ff:01.0",
        "ffff:ff:01.1",
        "0000:03:00.0",
        "0000:04:00.0",
        "ffff:ff:01.2",
        "0000:05:00.0",
        "0000:06:00.0",
    ]
    # A switch with one device is left out, and so is the one above it.
    gpu, nic, other, _last = list(places)
    assert shape(render(made(host, gpu, nic, other), host, inside, places)) == [
        "ffff:ff:01.0", "ffff:ff:01.1", "0000:03:00.0", "0000:04:00.0", "0000:05:00.0",
    ]  # fmt: skip
    assert shape(render(made(host, gpu, other), host, inside, places)) == [
        "ffff:ff:01.0", "0000:03:00.0", "0000:05:00.0",
    ]  # fmt: skip
    assert shape(render(made(host, gpu), host, inside, places)) == ["0000:03:00.0"]


def test_devices_are_in_the_order_of_their_guest_addresses():
    host, inside, places = two_levels()
    gpu, nic, *_rest = places
    places[gpu], places[nic] = places[nic], places[gpu]
    inside.functions[0].address, inside.functions[1].address = places[gpu], places[nic]
    found = render(made(host, gpu, nic), host, inside, places)
    assert shape(found) == ["ffff:ff:01.0", "ffff:ff:01.1", "0000:03:00.0", "0000:04:00.0"]
    assert 'busid="0000:03:00.0" class="0x020000"' in found


def test_a_file_that_nccl_cannot_read_is_not_made(monkeypatch):
    host, inside, places = two_levels()
    plan = made(host, *places)
    # system and cpu, three switches, four devices, and what NCCL adds for two GPUs and two NICs.
    needed = 2 + 3 + 4 + 2 * 7 + 2 * 2
    monkeypatch.setattr(nccl_topology, "MAX_ELEMENTS", needed)
    assert render(plan, host, inside, places) is not None
    monkeypatch.setattr(nccl_topology, "MAX_ELEMENTS", needed - 1)
    assert render(plan, host, inside, places) is None


def test_the_mask_has_a_word_for_each_32_cpus_of_the_guest():
    host, inside, places = two_levels()
    inside.numa_nodes.append(NumaNode(1, [32], [], 1))
    assert 'numaid="0" affinity="00000000,00000003"' in render(made(host, *places), host, inside, places)
    inside.numa_nodes[1].cpus = [31]
    assert 'numaid="0" affinity="00000003"' in render(made(host, *places), host, inside, places)
