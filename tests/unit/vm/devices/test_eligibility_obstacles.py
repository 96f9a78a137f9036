# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whole reasons why a device cannot be had, places of devices, and refusals of the choice."""

from __future__ import annotations

from typing import Any

import pytest
from baseboards import gpus as gpus_of
from baseboards import hgx, vm, with_vfs
from eight_gpus import big, small
from machines import bridge, endpoint, lab, plan
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Acs,
    Host,
    NumaNode,
    RootComplex,
    Sriov,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import (
    Chosen,
    HostDevices,
    Obstacle,
    group_obstacle,
    obstacle,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

GPU, NIC, VF, PF = "0000:13:00.0", "0000:14:00.0", "0000:15:10.0", "0000:15:00.0"


def why(host: Host, address: str = GPU, own: tuple[str, ...] = (), **holder: str) -> Obstacle | None:
    host_devices = HostDevices(host, {f"0000:{key}": name for key, name in holder.items()})
    return obstacle(host_devices, host.function(address), "a", own)


def held(host: Host, address: str, own: tuple[str, ...] = (), **holder: str) -> Obstacle | None:
    host_devices = HostDevices(host, dict(pair.split("=") for pair in holder.values()))
    return obstacle(host_devices, host.function(address), "a", own)


def test_each_obstacle_has_its_reason_and_remedy():
    host = lab()
    assert why(host) is None
    assert why(host, "0000:10:00.0") == Obstacle("it is a bridge", "assign the devices behind it instead")
    host.function(GPU).used_by_host = ["a", "b"]
    assert why(host) == Obstacle("it is in use on the host (a; b)", "free it on the host, or choose another device")
    host.function(GPU).config_bytes = 0
    assert why(host) == Obstacle(
        "it does not answer (its config space reads as ones): it has fallen off the bus", "reset or reseat it"
    )


def test_a_device_or_function_of_another_machine_is_an_obstacle():
    host = lab()
    assert held(host, GPU, one=f"{GPU}=b") == Obstacle(Mentions("virtual machine b"), Mentions("another device"))
    assert held(host, GPU, one=f"{GPU}=a") is None
    host.function(PF).sriov = Sriov(7, 2, [VF, "0000:15:10.2"])
    for owner in "ab":
        assert held(host, PF, one=f"0000:15:10.2={owner}") == Obstacle(
            Mentions("0000:15:10.2", f"virtual machine {owner}"), Mentions("virtual function", "another device")
        )
    assert "virtual functions (2), which would disappear" in str(held(host, PF))
    # Nor does a virtual function go to one machine and its physical function to another, or to the same.
    for owner in "ab":
        reason = str(held(host, VF, one=f"{PF}={owner}"))
        assert f"virtual function of {PF}, which virtual machine {owner} has" in reason
    host.function(PF).sriov = Sriov(7, 0)
    assert held(host, PF) is None


def test_remedies_for_vgpu_do_not_send_in_a_circle():
    host = with_vfs(hgx(), 1)
    owner = host.function(gpus_of(host)[0])
    virtual = host.function(owner.sriov.vfs[0])
    for function in (owner, virtual):
        function.vendor_id = 0x10DE
        found = why(host, function.address)
        assert "functions: vf" not in found.remedy
        assert f"sriov-manage -d {owner.address}" in found.remedy


def test_a_member_of_the_group_is_an_obstacle_by_its_holder_or_driver():
    host = lab()
    for address in (NIC, PF, "0000:12:00.0"):
        host.function(address).iommu_group = 16
    driven = "its IOMMU group 16 also holds {} (driver igb)"
    remedy = "assign that device to the same virtual machine, unbind it from igb, or use a slot whose ports have ACS"
    assert why(host) == Obstacle(driven.format(NIC), remedy)
    # Members that it has as well, or that no driver of the host has, are none.
    assert why(host, own=(NIC,)) == Obstacle(driven.format(PF), remedy)
    assert why(host, own=(NIC, PF)) is None
    for driver in (None, "vfio-pci", "pci-stub", "pcieport"):
        host.function(NIC).driver = host.function(PF).driver = driver
        assert why(host) is None
    assert held(host, GPU, one=f"{NIC}=a") is None
    assert held(host, GPU, one=f"{NIC}=b") == Obstacle(
        f"its IOMMU group 16 also holds {NIC}, which belongs to virtual machine b, and two virtual machines never "
        f"share a group; group 16 contains {GPU}, {NIC}, {PF}; port 0000:12:00.0, 0000:12:01.0 has no ACS",
        "assign all of them to one virtual machine, or use other slots",
    )
    host.function(GPU).iommu_group = None
    assert held(host, GPU, one=f"{NIC}=b") is None


@pytest.mark.parametrize(
    ("acs", "cause", "remedy"),
    [
        (Acs(0x5F, 0x1D), "nothing isolates them from each other", "assign all of them to one virtual machine"),
        (Acs(0x5F, 0x1C), "ACS is off at port 0000:10:00.0", "turn it on (role gpu_host)"),
        (Acs(0x5F, 0x0D), "ACS is off at port 0000:10:00.0", "turn it on (role gpu_host)"),
        (Acs(0x02, 0x00), "nothing isolates them from each other", "assign all of them to one virtual machine"),
        (
            None,
            "port 0000:10:00.0 has no ACS",
            "assign all of them to one virtual machine, or use other slots",
        ),
    ],
)
def test_the_cause_of_a_group_is_acs_of_a_port_above(acs, cause, remedy):
    root = "pci0000:10"
    port = bridge("0000:10:00.0", None, root, "root_port")
    port.acs = acs
    devices = [endpoint(f"0000:11:00.{number}", port.address, root, iommu_group=5) for number in (1, 0)]
    port.iommu_group = 5
    host = Host([NumaNode(0, [0], [], 1)], [RootComplex(root, 0, 0x10, 0)], [port, *devices])
    assert group_obstacle(HostDevices(host), 5) == Obstacle(
        f"group 5 contains 0000:11:00.0, 0000:11:00.1; {cause}", remedy
    )
    # A port of another kind has no ACS in any case.
    port.port_type = "switch_upstream"
    assert "nothing isolates them" in group_obstacle(HostDevices(host), 5).cause


def test_places_end_at_the_switch_of_a_device():
    root = "pci0000:10"
    port = bridge("0000:10:00.0", None, root, "root_port")
    up = bridge("0000:11:00.0", port.address, root, "switch_upstream")
    down = bridge("0000:12:00.0", up.address, root, "switch_downstream")
    alone, on_port = endpoint("0000:10:05.0", None, root), endpoint("0000:11:00.1", port.address, root)
    beside, below = endpoint("0000:12:1f.0", up.address, root), endpoint("0000:13:00.0", down.address, root)
    nodes = [NumaNode(number, [number], [], 1) for number in (0, 1)]
    host = Host(nodes, [RootComplex(root, 0, 0x10, 0)], [port, up, down, alone, on_port, beside, below])
    host_devices = HostDevices(host)
    assert [host_devices.place(item)[2:] for item in (alone, on_port, beside, below)] == [
        ("0000:10:05.0",), ("0000:10:00.0",), ("0000:10:00.0", "0000:11:00.0"), ("0000:10:00.0", "0000:11:00.0"),
    ]  # fmt: skip
    assert host_devices.place(below)[:2] == ("0", root)
    host.root_complexes[0].numa_node = None
    assert HostDevices(host).place(below)[0] == f"? {root}"
    assert host_devices.bridges(below.address) == ("0000:10:00.0", "0000:11:00.0", "0000:12:00.0")
    # The same, if those of the parent are known.
    fresh = HostDevices(host)
    assert (fresh.bridges(down.address), fresh.bridges(below.address)) == (
        ("0000:10:00.0", "0000:11:00.0"), ("0000:10:00.0", "0000:11:00.0", "0000:12:00.0"),
    )  # fmt: skip


def test_chosen_devices_are_in_the_order_of_their_addresses():
    host = lab()
    chosen = Chosen({"nics": [host.function(NIC)], "gpus": [host.function(GPU)]})
    assert [item.address for item in chosen.all()] == [GPU, NIC]
    assert ([item.address for item in chosen.gpus], chosen.nvswitches) == ([GPU], [])


def refusal(host: Host, *requests: dict[str, Any]) -> str:
    with pytest.raises(DomainError) as caught:
        plan_domains(host, parse_specs(list(requests)))
    return str(caught.value)


def test_too_few_devices_are_counted_with_the_reasons_of_the_others():
    host = big()
    assert refusal(host, small("a", 9)) == Mentions("virtual machine a", "9", "8", "free")
    for address in ("0000:13:00.0", "0000:14:00.0"):
        host.function(address).used_by_host = ["shows it"]
    uses = "it is in use on the host (shows it); free it on the host, or choose another device"
    assert refusal(host, small("a", 7)) == Mentions(
        "virtual machine a", "7", "6", "8", "0000:13:00.0", "0000:14:00.0", uses
    )
    nics = {"nics": {"per_gpu": 1, "functions": "vf"}}
    assert refusal(big(), small("a", 1) | nics) == Mentions("virtual machine a", "1 virtual function", "0")
    nics = {"nics": {"per_gpu": 5, "functions": "pf"}}
    assert refusal(big(), small("a", 1) | nics) == Mentions("virtual machine a", "5 physical NIC functions", "4")
    assert refusal(big(), small("a", 1) | {"nvme": {"count": 1}}) == Mentions("virtual machine a", "1 NVMe drive", "0")


def test_devices_that_others_name_are_not_free():
    named = small("b", 0) | {"gpus": {"addresses": ["0000:13:00.0"]}}
    text = refusal(big(), small("a", 8), named)
    assert text.startswith("virtual machine a: requests 8 GPUs, but only 7 of this host's 8 are free (0000:13:00.0: ")
    own = small("a", 0) | {"gpus": {"addresses": ["0000:13:00.0"], "count": 8}}
    assert refusal(big(), own) == Mentions("virtual machine a", "8", "7", "free")


def test_several_machines_that_do_not_fit_together_are_named():
    assert refusal(big(), small("b", 5), small("a", 1), small("c", 3)) == Mentions(
        "a (1 GPU)", "b (5 GPUs)", "c (3 GPUs)", "8"
    )
    assert refusal(hgx(), vm("a", 8), vm("b", 1)) == Mentions("a (8 GPUs)", "b (1 GPU)", "8", "1, 2, 4 or 8")


def test_a_board_without_a_free_partition_is_named_with_who_has_its_gpus():
    host = hgx()
    first, second, *_rest = gpus_of(host)
    host.function(second).used_by_host = ["shows it"]
    taken = vm("b", 0, gpus={"addresses": [first]})
    half = "requests 8 GPUs"
    assert half in refusal(hgx(), vm("a", 8), taken)
    fifth = gpus_of(host)[4]
    host.function(fifth).used_by_host = ["shows it"]
    assert refusal(host, vm("a", 4), taken) == Mentions(
        "virtual machine a", "partition of 4", "HGX H100", first, "virtual machine b", second, fifth
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"gpus": {"addresses": ["77:00.0"]}},
            "no PCI function 0000:77:00.0 on this host; host_topology_info lists the",
        ),
        (
            {"gpus": {"addresses": [NIC]}, "nics": {}},
            f"gpus.addresses: PCI device {NIC} is of kind NIC, not GPU; list it in nics.addresses",
        ),
        (
            {"gpus": {}, "nics": {"addresses": [GPU]}},
            f"nics.addresses: PCI device {GPU} is of kind GPU, not NIC; list it in gpus.addresses",
        ),
        (
            {"gpus": {}, "nics": {"per_gpu": 1}},
            "nics.per_gpu selects NICs near the virtual machine's GPUs, but it has none; list the NICs in "
            "nics.addresses",
        ),
    ],
)
def test_an_address_of_another_kind_is_refused(changes, message):
    with pytest.raises(DomainError) as caught:
        plan(**changes)
    assert str(caught.value).startswith(f"virtual machine gpu-vm: {message}")
