# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The units, requests and used capacity that the search for GPUs gets."""

from __future__ import annotations

from typing import Any

import pytest
from baseboards import hgx
from eight_gpus import big, small

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, Sriov
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import HostDevices
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.nvswitch_boards import recognise
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.pack_gpus import PHB, PIX, SYS, GpuRequest, Unit
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.problem import Problem, group_owner
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa import capacity
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

ALL = [f"0000:{bus}:00.0" for bus in (13, 14, 23, 24, 83, 84, 93, 94)]
SWITCH = ("0", "pci0000:10", "0000:10:00.0", "0000:11:00.0")
CAPACITIES: capacity.Capacities = {("cpus", 0): 15, ("cpus", 1): 15, (1024, 0): 65536, (1024, 1): 65536}


def problem(
    *requests: dict[str, Any],
    host: Host | None = None,
    holder: dict[str, str] | None = None,
    held: dict[str, list[str]] | None = None,
    capacities: capacity.Capacities | None = None,
) -> Problem:
    specs = parse_specs(list(requests))
    named = {address: spec.name for spec in specs for address in spec.gpus.addresses + spec.nics.addresses}
    owned = {address: name for name, own in (held or {}).items() for address in own}
    host_devices = HostDevices(host or big(), {**owned, **(holder or {}), **named})
    return Problem(specs, host_devices, held or {}, None, capacities or {})


def named(name: str, *gpus: str, count: int = 0, **more: Any) -> dict[str, Any]:
    return {**small(name, 0), "gpus": {"count": count, "addresses": list(gpus)}, **more}


def grouped(*members: str, host: Host | None = None, group: int = 99) -> Host:
    made = host or big()
    for address in members:
        made.function(address).iommu_group = group
    return made


def test_each_free_gpu_is_a_unit_at_its_place():
    one = problem(small("a", 1))
    assert [unit.addresses for unit in one.units] == [(address,) for address in ALL]
    assert one.units[0] == Unit((ALL[0],), SWITCH, 0, model=one.units[0].model)
    assert [unit.node for unit in one.units] == [0] * 4 + [1] * 4
    assert one.number == {address: number for number, address in enumerate(ALL)}
    assert one.requests == [GpuRequest("a", 1)]
    assert one.distances == {0: ((0, 10), (1, 21)), 1: ((0, 21), (1, 10))}


def test_a_gpu_of_another_domain_or_of_the_host_is_no_unit():
    host = big()
    host.function(ALL[1]).used_by_host = ["shows it"]
    one = problem(small("a", 1), host=host, holder={ALL[0]: "other"})
    assert [unit.addresses[0] for unit in one.units] == ALL[2:]
    assert one.settled == {ALL[0]: "other"}


def test_gpus_that_are_named_are_units_of_their_machine_only():
    one = problem(named("a", ALL[0], ALL[4]), named("b", ALL[1], count=1), small("c", 2))
    assert [unit.owner for unit in one.units] == ["a", "b", None, None, "a", None, None, None]
    assert one.settled == {ALL[0]: "a", ALL[4]: "a", ALL[1]: "b"}
    assert one.requests == [
        GpuRequest("b", 2, must=frozenset({1}), nodes=frozenset({0})),
        GpuRequest("c", 2),
    ]
    # A NIC that is named as a NIC is no unit.
    assert len(problem({**small("a", 1), "nics": {"addresses": ["0000:15:00.0"]}}).units) == 8


def test_a_machine_keeps_its_gpus_or_gives_some_up():
    keeps = problem(small("a", 2), held={"a": [ALL[2], "0000:15:00.0"]})
    assert keeps.requests == [GpuRequest("a", 2, must=frozenset({2}))]
    assert [unit.owner for unit in keeps.units] == [None, None, "a", *[None] * 5]
    exact = problem(small("a", 2), held={"a": ALL[2:4]})
    assert exact.requests == [GpuRequest("a", 2, must=frozenset({2, 3}))]
    assert [unit.owner for unit in exact.units[2:4]] == ["a", "a"]
    # A device that the host lost is not kept.
    assert problem(small("a", 2), held={"a": ["0000:99:00.0"]}).requests == [GpuRequest("a", 2)]
    gives = problem(small("a", 1), held={"a": ALL[2:4]})
    assert gives.requests == [GpuRequest("a", 1, only=frozenset({2, 3}))]
    # Any machine can have what it gives up.
    assert {unit.owner for unit in gives.units} == {None}
    # A machine that wants no GPU any more is not asked.
    none = problem(small("a", 0), held={"a": ALL[2:4]})
    assert (none.requests, [unit.owner for unit in none.units[2:4]]) == ([], ["a", "a"])


def test_a_named_gpu_is_counted_beside_those_that_are_given_up():
    one = problem(named("a", ALL[0], count=1), held={"a": ALL[2:4]})
    assert one.requests == [GpuRequest("a", 2, must=frozenset({0}), only=frozenset({0, 2, 3}), nodes=frozenset({0}))]


def test_a_gpu_of_a_group_with_others_is_not_given_up_alone():
    host = grouped(ALL[2], "0000:25:00.0")
    gives = problem(small("a", 1), host=host, held={"a": ALL[2:4]})
    assert [unit.owner for unit in gives.units[2:4]] == ["a", None]
    host.function(ALL[3]).iommu_group = None
    assert [unit.owner for unit in problem(small("a", 1), host=host, held={"a": ALL[2:4]}).units[2:4]] == ["a", None]


def test_gpus_of_one_group_are_one_unit_at_their_common_place():
    one = problem(small("a", 2), host=grouped(ALL[0], ALL[1]))
    assert one.units[0] == Unit((ALL[0], ALL[1]), SWITCH, 0, model=one.units[0].model)
    assert one.number[ALL[1]] == 0
    two = problem(small("a", 2), host=grouped(ALL[1], ALL[2]))
    assert two.units[1] == Unit((ALL[1], ALL[2]), SWITCH[:2], 0, model=two.units[1].model)
    host = grouped(ALL[0], ALL[2])
    host.function(ALL[2]).root_complex = "pci0000:20"
    assert problem(small("a", 2), host=host).units[0].path == ("0",)
    far = problem(small("a", 2), host=grouped(ALL[0], ALL[7]))
    assert (far.units[0].path, far.units[0].node) == ((), 0)
    # A group with a NIC is known by its number, one with a bridge only is not.
    assert problem(small("a", 2), host=grouped(ALL[0], "0000:15:00.0")).units[0].group == 99
    assert problem(small("a", 2), host=grouped(ALL[0], "0000:12:00.0")).units[0].group is None


def test_a_group_with_a_device_of_a_machine_belongs_to_it():
    nic = {"nics": {"addresses": ["0000:15:00.0"]}}
    one = problem(small("a", 1) | nic, small("b", 1), host=grouped(ALL[0], "0000:15:00.0"))
    assert [unit.owner for unit in one.units[:2]] == ["a", None]
    # Its driver is no obstacle for the machine that has it, or gets it.
    host = grouped(ALL[0], "0000:15:00.0")
    host.function("0000:15:00.0").driver = "mlx5_core"
    assert problem(small("a", 1) | nic, host=host).units[0].owner == "a"
    assert problem(small("a", 1), host=host, held={"a": ["0000:15:00.0"]}).units[0].owner == "a"
    # A group of an unlisted machine is not to be had.
    host = grouped(ALL[0], "0000:15:00.0")
    other = problem(small("a", 1), host=host, holder={"0000:15:00.0": "other"})
    assert [unit.addresses[0] for unit in other.units] == ALL[1:]
    # A group that a driver of the host has is not to be had, either.
    host.function("0000:15:00.0").driver = "mlx5_core"
    assert [unit.addresses[0] for unit in problem(small("a", 1), host=host).units] == ALL[1:]


def test_the_owner_of_a_group_is_the_first_by_name():
    host_devices = HostDevices(grouped(ALL[0], ALL[1], ALL[2]), {ALL[1]: "b", ALL[2]: "a"})
    assert group_owner(host_devices, 99) == "a"
    host_devices.holder.clear()
    assert group_owner(host_devices, 99) is None
    assert group_owner(host_devices, None) is None


def nics(**more: Any) -> dict[str, Any]:
    return {"nics": {"per_gpu": 1, "functions": "pf", **more}}


def test_the_reach_is_the_nearest_nic_that_can_be_had():
    host = big()
    assert {unit.addresses[0]: unit.reach for unit in problem(small("a", 1) | nics(), host=host).units} == {
        address: {"pf": PIX} for address in ALL
    }
    host.function("0000:15:00.0").used_by_host = ["carries a route"]
    one = problem(small("a", 1) | nics(), small("b", 1) | nics(functions="vf"), host=host)
    assert [unit.reach for unit in one.units] == [{"pf": PHB, "vf": SYS}] * 2 + [{"pf": PIX, "vf": SYS}] * 6
    assert [request.near_nic for request in one.requests] == ["pf", "vf"]
    # NICs that are named, or that another domain has, are not to be had; those of a listed machine are.
    host = big()
    more = {"nics": {"addresses": ["0000:25:00.0"]}}
    holder = {"0000:15:00.0": "other", "0000:85:00.0": "a"}
    one = problem(small("a", 1) | nics(), small("b", 1) | more, host=host, holder=holder)
    assert [unit.reach["pf"] for unit in one.units] == [SYS] * 4 + [PIX] * 4
    # A physical function with virtual ones is not to be had.
    host.function("0000:85:00.0").sriov = Sriov(8, 1)
    assert [unit.reach["pf"] for unit in problem(small("a", 1) | nics(), host=host).units[4:6]] == [PHB, PHB]
    assert problem(small("a", 1)).units[0].reach == {}


def test_a_request_has_the_nodes_and_the_capacity_that_it_wants():
    one = problem(
        named("a", ALL[7], count=1, numa_nodes=["0"]), small("b", 1) | {"memory_mib": 2048}, capacities=CAPACITIES
    )
    assert one.requests == [
        GpuRequest(
            "a",
            2,
            must=frozenset({7}),
            nodes=frozenset({0, 1}),
            demand=((1024, 4096), ("cpus", 4)),
            within=frozenset({0}),
        ),
        GpuRequest("b", 1, demand=((1024, 2048), ("cpus", 4))),
    ]


@pytest.mark.parametrize(
    ("requests", "used"),
    [
        ([small("a", 1)], {}),
        # A machine for which a GPU is chosen is counted with its place.
        ([named("a", ALL[0], count=1)], {}),
        ([named("a", ALL[0])], {(1024, 0): 4096, ("cpus", 0): 4}),
        (
            [named("a", ALL[0]), named("b", ALL[1], ALL[4])],
            {(1024, 0): 6144, ("cpus", 0): 6, (1024, 1): 2048, ("cpus", 1): 2},
        ),
        ([small("a", 0) | {"gpus": {}, "nics": {"addresses": ["0000:95:00.0"]}}], {(1024, 1): 4096, ("cpus", 1): 4}),
        ([small("a", 0) | {"gpus": {}}], {}),
    ],
)
def test_machines_whose_devices_are_all_named_use_capacity(requests, used):
    assert problem(*requests, capacities=CAPACITIES).used == used
    assert problem(*requests).used == {}


def test_a_device_whose_node_is_unknown_uses_no_node():
    host = big()
    host.function(ALL[0]).numa_node = None
    host.root_complexes[0].numa_node = None
    assert problem(named("a", ALL[0]), host=host, capacities=CAPACITIES).used == {}
    assert problem(small("a", 1), host=host).units[0].node is None


def test_a_device_on_a_node_without_memory_is_on_the_serving_node():
    host = big()
    host.numa_nodes[0].memory_bytes = 0
    assert [unit.node for unit in problem(small("a", 1), host=host).units] == [1] * 8


def test_a_device_of_another_kind_is_a_unit_only_if_it_is_named_as_a_gpu():
    host = big()
    host.function("0000:15:00.0").kind = "other"
    assert len(problem(small("a", 1), host=host).units) == 8
    one = problem(named("a", "0000:15:00.0", count=1), host=host)
    assert [unit.addresses[0] for unit in one.units] == [*ALL[:2], "0000:15:00.0", *ALL[2:]]
    assert one.requests == [GpuRequest("a", 2, must=frozenset({2}), nodes=frozenset({0}))]


def test_partitions_of_a_board_are_those_whose_gpus_can_be_had_and_whose_groups_are_whole():
    host = hgx()
    gpus = sorted(item.address for item in host.functions if item.kind == "gpu")
    specs = parse_specs([small("a", 1)])

    def masks(host_devices: HostDevices) -> list[int]:
        return Problem(specs, host_devices, {}, recognise(host), {}).packing.partitions

    assert len(masks(HostDevices(host))) == 8 + 4 + 2 + 1
    # Without the first GPU: six single ones and their pairs, the second half, and no whole board.
    held = masks(HostDevices(host, {gpus[0]: "other"}))
    assert len(held) == 7 + 3 + 1
    # Two GPUs of one group are no partition by themselves, and split others.
    for address in gpus[:2]:
        host.function(address).iommu_group = 99
    assert len(masks(HostDevices(host))) == 6 + 2 + 2 + 1
