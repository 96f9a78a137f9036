# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from baseboards import gpus, hgx, vm
from machines import hypervisor, observed, recording
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import format_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices import nvswitch_boards
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_module_ids, parse_specs

SIZES = {
    "DGX-2 or HGX-2": {16: 1, 8: 4, 4: 4, 2: 8, 1: 16},
    "HGX A100": {16: 1, 8: 6, 4: 4, 2: 8, 1: 16},
    "HGX H100 or H200": {8: 1, 4: 2, 2: 4, 1: 8},
    "HGX B200": {8: 1, 4: 2, 2: 4, 1: 8},
    "HGX B300": {8: 1, 4: 2, 2: 4, 1: 8},
}
# The ids of the others begin at 0.
FIRST_ID = {"HGX B200": 1, "HGX B300": 1}


def plans(host: Host, *requests: dict[str, Any], **more: Any) -> dict[str, DomainPlan]:
    return {plan.name: plan for plan in plan_domains(host, parse_specs(list(requests)), **more)}


def chosen(plan: DomainPlan) -> list[str]:
    return [item.address for item in plan.chosen.gpus]


def fabric_notes(plan: DomainPlan) -> str:
    return "; ".join(note for note in plan.notes if "Fabric Manager" in note)


@pytest.mark.parametrize("board", nvswitch_boards.BOARDS, ids=lambda board: board.name)
def test_partitions_of_each_board_cover_its_gpus_and_are_nested(board: nvswitch_boards.Board) -> None:
    assert Counter(len(members) for members in board.partitions.values()) == SIZES[board.name]
    first = FIRST_ID.get(board.name, 0)
    assert sorted(board.partitions) == list(range(first, first + len(board.partitions)))
    everything = set(board.partitions[first])
    assert everything == set(range(1, max(board.gpu_counts) + 1))
    for size in SIZES[board.name]:
        of_size = [set(members) for members in board.partitions.values() if len(members) == size]
        assert set.union(*of_size) == everything
        if size <= 4:
            assert sum(map(len, of_size)) == len(everything)
    # A smaller partition is within a larger one, so that halves remain halves.
    for members in board.partitions.values():
        assert all(
            set(members) <= set(larger) or not set(members) & set(larger)
            for larger in board.partitions.values()
            if 4 >= len(larger) > len(members)
        )


# The partitions by their number of GPUs, in the order of their ids.
TABLES = {
    "DGX-2 or HGX-2": {
        16: ["1-16"],
        8: ["1-8", "9-16", "1,4,6-7,9,12,14-15", "2-3,5,8,10-11,13,16"],
        4: ["1,4,6-7", "2-3,5,8", "9,12,14-15", "10-11,13,16"],
        2: ["1,4", "2-3", "5,8", "6-7", "9,12", "10-11", "13,16", "14-15"],
        1: [str(number) for number in range(1, 17)],
    },
    "HGX A100": {
        16: ["1-16"],
        8: ["1-8", "9-16", "1-4,9-12", "5-8,13-16", "1-4,13-16", "5-12"],
        4: ["1-4", "5-8", "9-12", "13-16"],
        2: ["1-2", "3-4", "5-6", "7-8", "9-10", "11-12", "13-14", "15-16"],
        1: [str(number) for number in range(1, 17)],
    },
    "HGX H100 or H200": {
        8: ["1-8"],
        4: ["1-4", "5-8"],
        2: ["1,3", "2,4", "5,7", "6,8"],
        1: [str(number) for number in range(1, 9)],
    },
    **{
        name: {
            8: ["1-8"],
            4: ["1-4", "5-8"],
            2: ["1-2", "3-4", "5-6", "7-8"],
            1: [str(number) for number in range(1, 9)],
        }
        for name in ("HGX B200", "HGX B300")
    },
}


@pytest.mark.parametrize("board", nvswitch_boards.BOARDS, ids=lambda board: board.name)
def test_the_tables_have_the_partitions_of_the_users_guide(board: nvswitch_boards.Board) -> None:
    every = [text for of_size in TABLES[board.name].values() for text in of_size]
    wanted = dict(enumerate(every, FIRST_ID.get(board.name, 0)))
    assert {number: format_ranges(members) for number, members in board.partitions.items()} == wanted


def test_the_boards_have_the_ids_of_the_pci_database() -> None:
    assert [
        (sorted(board.gpu_devices), board.nvswitch_device, board.gpu_counts) for board in nvswitch_boards.BOARDS
    ] == [
        ([0x1DB8], 0x1AC2, (16,)),
        ([0x20B0, 0x20B2, 0x20F3], 0x1AF1, (8, 16)),
        ([0x2324, 0x2329, 0x2330, 0x2335], 0x22A3, (8,)),
        ([0x2901], None, (8,)),
        ([0x3182], None, (8,)),
    ]


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([4], "4"), ([1, 2], "1 or 2"), ([1, 2, 4, 8], "1, 2, 4 or 8")]
)
def test_numbers_are_listed_with_or(numbers: list[int], text: str) -> None:
    assert nvswitch_boards.in_words(numbers) == text


def test_two_baseboards_have_all_partitions_and_more_gpus_are_not_a_board() -> None:
    both = nvswitch_boards.recognise(hgx(0x20B2, 0x1AF1, 6, gpus=16))
    assert both is not None
    assert ([item.id for item in both.partitions], both.sizes) == (list(range(35)), [1, 2, 4, 8, 16])
    assert both.assumed is True
    assert nvswitch_boards.recognise(hgx(0x2330, 0x22A3, 4, gpus=10)) is None


@pytest.mark.parametrize(("gpu", "switch"), [(0x2330, 0x1AF1), (0x20B2, 0x22A3)])
def test_gpus_and_nvswitches_of_different_boards_are_not_a_board(gpu: int, switch: int) -> None:
    assert nvswitch_boards.recognise(hgx(gpu, switch)) is None


def test_devices_of_another_vendor_are_not_a_board() -> None:
    for kind in ("gpu", "nvswitch"):
        host = hgx()
        for function in host.functions:
            if function.kind == kind:
                function.vendor_id = 0x1002
        assert nvswitch_boards.recognise(host) is None


def test_ids_are_assumed_only_if_none_are_given_and_all_gpus_are_there() -> None:
    host = hgx()
    whole = nvswitch_boards.recognise(host)
    given = nvswitch_boards.recognise(host, {address: number for number, address in enumerate(gpus(host), 1)})
    host.functions = [item for item in host.functions if item.address != gpus(host)[0]]
    part = nvswitch_boards.recognise(host)
    assert [found.assumed for found in (whole, given, part) if found] == [True, False, False]
    assert part is not None
    assert (part.physical_ids, part.sizes) == ({}, [1])
    assert [(item.id, sorted(item.members)) for item in part.partitions] == [(None, [gpu]) for gpu in part.gpus]


def test_each_note_says_what_fabric_manager_must_do() -> None:
    host = hgx()
    one, two, three, *_rest = gpus(host)
    whole = nvswitch_boards.recognise(host)
    assert whole is not None
    active = (
        "Fabric Manager in shared mode (FABRIC_MODE=1) must activate partition {} (GPU physical id {}) before it "
        "starts; the 4 NVSwitches of the HGX H100 or H200 stay with the host or its service VM"
    )
    assumed = (
        "; physical ids are assumed to be in PCI address order: compare them with GPU Module ID of nvidia-smi -q, "
        "and set gpu_module_ids if they are not"
    )
    assert nvswitch_boards.note(whole, {one, three}) == active.format(3, "1, 3") + assumed
    # The ids of all GPUs do not depend on their order.
    assert nvswitch_boards.note(whole, {*gpus(host)}) == active.format(0, "1, 2, 3, 4, 5, 6, 7, 8")
    assert nvswitch_boards.note(whole, {one, two}) == (
        f"its GPUs {one}, {two} are not a Fabric Manager partition of HGX H100 or H200 (valid sizes: 1, 2, 4 or 8): "
        "there is no NVLink between them"
    )
    ids = dict(zip(gpus(host), (6, 8, 5, 7, 2, 4, 1, 3)))
    given = nvswitch_boards.recognise(host, ids)
    assert given is not None
    assert nvswitch_boards.note(given, {one, two}) == active.format(6, "6, 8")
    host.functions = [item for item in host.functions if item.address != three]
    part = nvswitch_boards.recognise(host)
    assert part is not None
    assert nvswitch_boards.note(part, {one}) == (
        f"{one} is on a HGX H100 or H200 of which a GPU is missing: set gpu_module_ids to identify its Fabric Manager "
        "partition"
    )


def test_boards_are_recognised_by_their_gpus_and_nvswitches() -> None:
    found = nvswitch_boards.recognise(hgx())
    assert found is not None
    assert (found.board.name, found.sizes, len(found.nvswitches)) == ("HGX H100 or H200", [1, 2, 4, 8], 4)
    assert found.physical_ids == {address: number for number, address in enumerate(gpus(hgx()), 1)}
    a100 = nvswitch_boards.recognise(hgx(0x20B2, 0x1AF1, 6))
    assert a100 is not None
    # There is one baseboard: the partitions of the second, and those across both, do not exist.
    assert [item.id for item in a100.partitions] == [1, 7, 8, 11, 12, 13, 14, *range(19, 27)]
    dgx2 = nvswitch_boards.recognise(recording("nvidia-dgx2"))
    assert dgx2 is not None
    assert (dgx2.board.name, len(dgx2.gpus), len(dgx2.nvswitches)) == ("DGX-2 or HGX-2", 16, 11)


@pytest.mark.parametrize("name", ["llnl-lassen", "aws-g4dn-metal", "llnl-corona", "emulated-gpu-server"])
def test_no_board_is_recognised_on_hosts_without_one(name: str) -> None:
    assert nvswitch_boards.recognise(recording(name)) is None


def test_gpus_without_nvswitches_are_not_a_board() -> None:
    assert nvswitch_boards.recognise(hgx(switches=0)) is None


def test_a_note_reports_nvswitches_of_an_unknown_board() -> None:
    host = hgx(gpu=0x9999)
    assert nvswitch_boards.recognise(host) is None
    assert "NVSwitches of an unknown board" in "".join(plans(host, vm("a", 2))["a"].notes)
    assert not any("unknown board" in note for note in plans(host, vm("a", 1))["a"].notes)


def test_a_machine_with_all_gpus_gets_the_nvswitches() -> None:
    host = hgx()
    plan = plans(host, vm("a", 8))["a"]
    assert [item.address for item in plan.chosen.nvswitches] == [f"0000:0{bus}:00.0" for bus in range(4, 8)]
    assert "its 4 NVSwitches: Fabric Manager runs in the guest" in fabric_notes(plan)
    assert {item["kind"] for item in plan.to_dict()["devices"]} == {"gpu", "nvswitch"}
    named = plans(host, vm("a", 0, gpus={"addresses": gpus(host)}))["a"]
    assert len(named.chosen.nvswitches) == 4
    # Planning it again as an existing machine gives the same.
    again = plans(host, vm("a", 8), hypervisor=hypervisor(domains={"a": observed(plan)}))["a"]
    assert again.to_dict()["devices"] == plan.to_dict()["devices"]


def test_a_service_vm_keeps_the_nvswitches() -> None:
    host = hgx()
    service = plans(host, vm("service", 0, nvme={"addresses": [f"0000:0{bus}:00.0" for bus in range(4, 8)]}))
    plan = plans(host, vm("a", 8), hypervisor=hypervisor(domains={"service": observed(service["service"])}))["a"]
    assert plan.chosen.nvswitches == []
    assert "must activate partition 0 (GPU physical id 1, 2, 3, 4, 5, 6, 7, 8)" in fabric_notes(plan)


def test_all_gpus_are_refused_if_an_nvswitch_cannot_be_assigned() -> None:
    host = hgx()
    switch = next(item for item in host.functions if item.kind == "nvswitch")
    other = next(item for item in host.functions if item.kind == "bridge")
    other.kind, other.driver, other.iommu_group = "other", "megaraid_sas", switch.iommu_group
    with raises(DomainError, "NVSwitches", "0000:04:00.0", "megaraid_sas"):
        plans(host, vm("a", 8))


def test_some_gpus_of_a_board_are_assigned_as_a_partition() -> None:
    host = hgx()
    got = plans(host, vm("a", 1), vm("b", 2), vm("c", 4), vm("d", 1))
    address = gpus(host)
    assert chosen(got["c"]) == address[:4]
    assert chosen(got["b"]) == [address[4], address[6]]  # modules 5 and 7, not two neighbours on the bus
    assert sorted([*chosen(got["a"]), *chosen(got["d"])]) == [address[5], address[7]]
    assert "must activate partition 1 (GPU physical id 1, 2, 3, 4)" in fabric_notes(got["c"])
    assert "must activate partition 5 (GPU physical id 5, 7)" in fabric_notes(got["b"])
    assert "the 4 NVSwitches of the HGX H100 or H200 stay with the host or its service VM" in fabric_notes(got["b"])
    assert "physical ids are assumed to be in PCI address order" in fabric_notes(got["b"])
    assert all(plan.chosen.nvswitches == [] for plan in got.values())


def test_a_small_request_leaves_a_larger_partition_free() -> None:
    host = hgx()
    for names in ("abc", "cab"):
        got = plans(host, *(vm(name, 1) for name in names), vm("big", 4))
        assert chosen(got["big"]) in (gpus(host)[:4], gpus(host)[4:])
    alone = [plans(host, vm(name, 1))[name] for name in "a"]
    there = hypervisor(domains={"a": observed(alone[0])})
    second = plans(host, vm("a", 1), vm("b", 1), hypervisor=there)
    pair = {*chosen(second["a"]), *chosen(second["b"])}
    fabric = nvswitch_boards.recognise(host)
    assert fabric is not None
    assert fabric.partition(pair) is not None


def test_given_ids_override_the_order_of_addresses() -> None:
    host = hgx()
    # This is a server whose first GPUs on the bus are modules 5 to 8.
    ids = dict(zip(gpus(host), (6, 8, 5, 7, 2, 4, 1, 3)))
    got = plans(host, vm("a", 2), vm("b", 4), gpu_module_ids=ids)
    assert sorted(ids[address] for address in chosen(got["b"])) in ([1, 2, 3, 4], [5, 6, 7, 8])
    assert sorted(ids[address] for address in chosen(got["a"])) in ([1, 3], [2, 4], [5, 7], [6, 8])
    assert "PCI address order" not in fabric_notes(got["a"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ids: ids.pop("0000:13:00.0"), "0000:13:00.0 is missing; it is a GPU of"),
        (lambda ids: ids.update({"0000:99:00.0": 9}), "0000:99:00.0 is not a GPU of"),
        (lambda ids: ids.update({"0000:13:00.0": 9}), "9 of 0000:13:00.0 is not a GPU physical id"),
        (lambda ids: ids.update({"0000:13:00.0": 2}), "an id is listed twice"),
    ],
)
def test_ids_that_do_not_match_the_board_are_refused(change: Any, message: str) -> None:
    ids = {address: number for number, address in enumerate(gpus(hgx()), 1)}
    change(ids)
    with pytest.raises(DomainError, match=message):
        nvswitch_boards.recognise(hgx(), ids)


def test_ids_without_a_board_are_refused() -> None:
    with raises(DomainError, "gpu_module_ids", "NVSwitch board"):
        nvswitch_boards.recognise(recording("llnl-lassen"), {"0004:04:00.0": 1})


def test_module_ids_are_parsed_from_strings_and_invalid_ones_are_refused() -> None:
    assert parse_module_ids({"1B:00.0": "3"}) == {"0000:1b:00.0": 3}
    assert parse_module_ids(None) == {}
    for wrong in ({"gpu0": 1}, {"0000:1b:00.0": "three"}):
        with pytest.raises(DomainError, match="is not a PCI address and a number"):
            parse_module_ids(wrong)


def test_a_number_of_gpus_that_no_partition_has_is_refused() -> None:
    with raises(DomainError, "3", "1", "2", "4", "8", "HGX", "H100", "H200", "gpus.addresses", "NVLink"):
        plans(hgx(), vm("a", 3))
    host = hgx()
    named = plans(host, vm("a", 0, gpus={"addresses": gpus(host)[:3]}), vm("b", 4))
    assert "there is no NVLink between them" in fabric_notes(named["a"])
    assert chosen(named["b"]) == gpus(host)[4:]


def test_numa_nodes_that_leave_out_gpus_of_every_partition_are_named() -> None:
    with raises(DomainError, "partition of 8", "node 0", "numa_nodes") as caught:
        plans(hgx(), vm("a", 8, numa_nodes=["0"]))
    assert "numa_nodes" in caught.value.remedy


def test_a_request_without_a_free_partition_is_refused() -> None:
    host = hgx()
    spread = vm("a", 0, gpus={"addresses": [gpus(host)[0], gpus(host)[7]]})
    with raises(DomainError, "4", "HGX", "H100", "H200", "0000:13:00.0"):
        plans(host, spread, vm("b", 4))


def test_a_domain_that_gets_more_gpus_gets_a_partition_with_its_own_gpu() -> None:
    host = hgx()
    before = plans(host, vm("a", 0, gpus={"addresses": [gpus(host)[1]]}))["a"]
    there = hypervisor(domains={"a": observed(before)})
    grown = plans(host, vm("a", 2), hypervisor=there)["a"]
    assert chosen(grown) == [gpus(host)[1], gpus(host)[3]]  # modules 2 and 4
    beside = plans(host, vm("c", 0, gpus={"addresses": [gpus(host)[3]]}))["c"]
    there = hypervisor(domains={"a": observed(before), "c": observed(beside)})
    with raises(DomainError, "partition of 2", "0000:14:00.0"):
        plans(host, vm("a", 2), hypervisor=there)


def test_existing_gpus_that_are_not_a_partition_are_kept() -> None:
    host = hgx()
    before = plans(host, vm("a", 0, gpus={"addresses": gpus(host)[:2]}))["a"]
    plan = plans(host, vm("a", 2), vm("b", 4), hypervisor=hypervisor(domains={"a": observed(before)}))
    assert chosen(plan["a"]) == gpus(host)[:2]
    assert "are not a Fabric Manager partition" in fabric_notes(plan["a"])


def test_a_board_with_a_missing_gpu_needs_module_ids() -> None:
    host = hgx()
    lost = gpus(host)[2]
    host.functions = [item for item in host.functions if item.address != lost]
    with raises(DomainError, "1", "7", "gpu_module_ids"):
        plans(host, vm("a", 2))
    assert "set gpu_module_ids" in fabric_notes(plans(host, vm("a", 1))["a"])
    ids = dict(zip(gpus(host), (1, 2, 4, 5, 6, 7, 8)))
    got = plans(host, vm("a", 2), vm("b", 4), gpu_module_ids=ids)
    assert sorted(ids[address] for address in chosen(got["b"])) == [5, 6, 7, 8]
    assert sorted(ids[address] for address in chosen(got["a"])) == [2, 4]


def test_all_gpus_of_a_dgx2_are_allocated_for_any_mix_of_sizes() -> None:
    host = recording("nvidia-dgx2")
    fabric = nvswitch_boards.recognise(host)
    assert fabric is not None
    for sizes in ((16,), (8, 8), (8, 4, 2, 1, 1), (4, 4, 4, 4), (2,) * 8, (1,) * 16, (4, 8, 2, 2), (1, 1, 2, 4, 8)):
        requests = [vm(f"vm-{at:02}", size, host_cores_per_socket=0) for at, size in enumerate(sizes)]
        got = plans(host, *requests)
        assert sorted(address for plan in got.values() for address in chosen(plan)) == gpus(host)
        assert all(fabric.partition(set(chosen(plan))) is not None for plan in got.values())
        assert all(bool(plan.chosen.nvswitches) == (sizes == (16,)) for plan in got.values())
