# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whole items about the plan, each path with its row, and how items are merged and pairs of devices ordered."""

from __future__ import annotations

import re

import pytest
from drifting import DEFINED, LIVE, WANTED, gone, host, wanted_of
from libvirt_definitions import REQUEST
from machines import plan

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift import paths
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift import plan as drift_plan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift.drift import drift
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift.item import Drift, merge
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt import read_xml
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.xml_diff import XmlDifference, differences
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render

GPU, NIC, VF, GPU2 = "0000:13:00.0", "0000:14:00.0", "0000:15:10.0", "0000:83:00.0"
AGAIN = "run playbooks/gpu_vms.yml, which defines it again"
RESTART = "run playbooks/gpu_vms.yml with gpu_vm_allow_restart: true, or restart it yourself"


def drifts(*changes: XmlDifference, side: str = "defined") -> list[Drift]:
    """Return the items for these differences of a domain that is otherwise as planned."""
    have = read_xml.read(DEFINED, host().by_address())
    return drift_plan.against_plan(list(changes), have, wanted_of(WANTED), side)


PINS = "a vCPU may share its core or be far from its memory: ranks wait for the slowest one"
THREADS = "they may take time from a vCPU"
LOOSE = "pages may lie on another node, and DMA of GPUs and NICs then crosses the socket link"
PAGES = "misses in the TLB and the IOMMU, and longer mapping of device memory"
WINDOW = "GPUs may be missing in the guest, or their drivers fail to load"
CLIQUES = "GPUs without NVLink reach each other through memory"
CELLS = "CPUs, memory and devices are on other guest nodes than the plan's: threads run far from their GPU"
NODES = "memory is not bound strictly to the planned nodes"
HUGE = "memory is not in the planned huge pages"
LARGE = "the window for large BARs is not the planned one"
PEERS = "peer-to-peer of GPUs is not approved as planned (GPUDirect P2P cliques)"
GUEST = "the guest's NUMA cells differ from the plan"


@pytest.mark.parametrize(
    ("path", "what", "consequence"),
    [
        ("cputune/vcpupin[12]/@cpuset", "vCPUs are not pinned as planned: vCPU 12 on CPU H, planned W", PINS),
        ("cputune/vcpupin[0]", "vCPUs are not pinned as planned: vCPU 0 on CPU H, planned W", PINS),
        (
            "cputune/emulatorpin/@cpuset",
            "QEMU's own threads are not pinned as planned: emulator on CPU H, planned W",
            THREADS,
        ),
        (
            "cputune/iothreadpin[1]/@cpuset",
            "QEMU's own threads are not pinned as planned: iothread on CPU H, planned W",
            THREADS,
        ),
        ("numatune/memory/@mode", f"{NODES}: memory is H, planned W", LOOSE),
        ("numatune/memnode[1]/@nodeset", f"{NODES}: memnode[1] is H, planned W", LOOSE),
        ("numatune", f"{NODES}: numatune is H, planned W", LOOSE),
        ("memoryBacking/hugepages/page[0-1]/@size", f"{HUGE}: hugepages is H, planned W", PAGES),
        ("memoryBacking", f"{HUGE}: memoryBacking is H, planned W", PAGES),
        (
            "memoryBacking/locked",
            "memory is not locked as planned: locked is H, planned W",
            "pauses when the host swaps",
        ),
        ("cpu/maxphysaddr/@mode", f"{LARGE}: maxphysaddr is H, planned W", WINDOW),
        ("cpu/maxphysaddr", f"{LARGE}: maxphysaddr is H, planned W", WINDOW),
        ("devices/controller[pci,0]/pcihole64/@unit", f"{LARGE}: pcihole64 is H, planned W", WINDOW),
        ("qemu:commandline/qemu:arg[2]/@value", f"{LARGE}: qemu:commandline is H, planned W", WINDOW),
        ("qemu:override/qemu:device[ua-x]", f"{PEERS}: qemu:override is H, planned W", CLIQUES),
        (f"devices/hostdev[{GPU}]/alias/@name", f"{PEERS}: alias is H, planned W", CLIQUES),
        ("vcpu", f"{GUEST}: vcpu is H, planned W", CELLS),
        ("memory", f"{GUEST}: memory is H, planned W", CELLS),
        ("cpu/topology/@cores", f"{GUEST}: topology is H, planned W", CELLS),
        ("cpu/numa/cell[0]/@cpus", f"{GUEST}: numa is H, planned W", CELLS),
    ],
)
@pytest.mark.parametrize(("side", "remedy"), [("defined", AGAIN), ("running", RESTART)])
def test_each_path_has_its_item(path, what, consequence, side, remedy):
    assert drifts(XmlDifference(path, "W", "H"), side=side) == [Drift(what, [side], consequence, remedy, [path])]


@pytest.mark.parametrize(
    "path", ["devices/disk[vda]", "devices/serial[0]/log/@file", "os/kernel", "memoryBacking/access", "vcpu/@cpuset"]
)
def test_other_paths_have_no_item(path):
    assert drifts(XmlDifference(path, "W", "H")) == []


@pytest.mark.parametrize(
    ("path", "wanted", "have", "words"),
    [
        ("cputune/vcpupin[0]", "present", None, "vCPU 0 is not pinned"),
        ("cputune/vcpupin[0]", None, "present", "vCPU 0 is pinned"),
        ("cputune/emulatorpin", None, "present", "emulator is pinned"),
        ("memoryBacking/locked", "present", None, "locked is missing"),
        ("memoryBacking/locked", None, "present", "locked exists but is not planned"),
    ],
)
def test_what_only_one_side_has_is_said(path, wanted, have, words):
    (item,) = drifts(XmlDifference(path, wanted, have))
    assert item.what.endswith(f": {words}")


def test_differences_of_one_row_are_one_item_in_the_order_of_the_rows():
    found = drifts(
        XmlDifference("vcpu", "2", "3"),
        XmlDifference("cputune/vcpupin[1]/@cpuset", "5", "6"),
        XmlDifference("cputune/vcpupin[0]/@cpuset", "1", "2"),
        XmlDifference("cpu/numa/cell[0]/@id", "a", "b"),
        XmlDifference("cpu/numa/cell[1]/@id", "a", "b"),
    )
    assert [(item.what, item.paths) for item in found] == [
        (
            "vCPUs are not pinned as planned: vCPU 1 on CPU 6, planned 5, vCPU 0 on CPU 2, planned 1",
            ["cputune/vcpupin[1]/@cpuset", "cputune/vcpupin[0]/@cpuset"],
        ),
        (
            f"{GUEST}: vcpu is 3, planned 2, numa is b, planned a",
            ["vcpu", "cpu/numa/cell[0]/@id", "cpu/numa/cell[1]/@id"],
        ),
    ]


TREE = "files with guest addresses (NCCL_TOPO_FILE, a proof) describe another tree"


@pytest.mark.parametrize(
    "path",
    ["devices/controller[pci,3]/target/node", "devices/controller[pci,12]", f"devices/hostdev[{GPU}]/address/@slot"],
)
def test_another_place_in_the_tree_is_an_item(path):
    assert drifts(XmlDifference(path, "W", "H")) == [
        Drift("the guest's PCI tree is not the planned one", ["defined"], TREE, AGAIN, [path])
    ]
    assert drifts(XmlDifference("devices/controller[usb,0]", "W", "H")) == []


def test_devices_at_another_guest_address_are_named():
    moved = re.sub(r"(<target busNr=')64(')", r"\g<1>72\2", DEFINED)
    compared = differences(WANTED, moved)
    have = read_xml.read(moved, host().by_address())
    (item,) = drift_plan.against_plan(compared, have, wanted_of(WANTED), "defined")
    assert item.what == (
        f"the guest's PCI tree is not the planned one: GPU {GPU2}, NIC 0000:84:00.0, NIC 0000:85:10.0 at another guest "
        "address"
    )
    assert item.paths == ["devices/controller[pci,9]/target/@busNr"]


def test_devices_of_one_side_are_named_with_their_paths_only():
    without = re.sub("<hostdev (?:(?!<hostdev).)*bus='0x14'.*?</hostdev>", "", DEFINED, flags=re.DOTALL)
    found = drift(host(), without, None, wanted_of(WANTED))
    assert found[0] == Drift(
        f"the domain lacks NIC {NIC}, which the plan gives it",
        ["defined"],
        "the guest does not see it",
        AGAIN,
        [f"devices/hostdev[{NIC}]"],
    )
    smaller = render(plan(**{**REQUEST, "nics": {"per_gpu": 1}}))
    found = drift(host(), DEFINED, None, wanted_of(smaller))
    assert found[0] == Drift(
        f"the domain has NIC {NIC}, NIC 0000:84:00.0, which the plan does not give it",
        ["defined"],
        "neither another virtual machine nor the host can have it",
        AGAIN,
        [f"devices/hostdev[{address}]" for address in (NIC, "0000:84:00.0")],
    )


def test_one_flat_device_stands_and_several_stand():
    request = {**REQUEST, "gpus": {"addresses": [GPU]}, "nics": {}, "vcpus": 1, "memory_mib": 512}
    flat, made = (render(plan(**request, mirror_topology=mirror)) for mirror in (False, True))
    item = drift(host(), flat, None, wanted_of(made))[0]
    assert item.what == f"GPU {GPU} stands flat in the guest, below a switch in the plan"
    assert item.consequence == "NCCL sees no common switch, and traffic between GPU and NIC goes through the CPU"
    # The other way round, it is another tree.
    item = drift(host(), made, None, wanted_of(flat))[0]
    assert item.what == f"the guest's PCI tree is not the planned one: GPU {GPU} at another guest address"


def test_loose_memory_is_an_item_only_of_a_domain_with_devices():
    loose = re.sub("<numatune>.*</numatune>", "", DEFINED, flags=re.DOTALL)
    item = Drift(
        "memory of guest cell 0-1 is not bound strictly to a host node",
        ["running"],
        LOOSE,
        "leave strict_memory on and define it with playbooks/gpu_vms.yml",
    )
    known = host().by_address()
    assert drift_plan.unbound_memory(read_xml.read(loose, known), "running") == [item]
    assert drift_plan.unbound_memory(read_xml.read(DEFINED, known), "running") == []
    bare = re.sub("<hostdev .*</hostdev>", "", loose, flags=re.DOTALL)
    assert drift_plan.unbound_memory(read_xml.read(bare, known), "running") == []


def test_differences_of_the_record_are_one_item_unless_the_host_explains_them():
    other = DEFINED.replace('kind="gpu" model="1af4:1043" node="0"', 'kind="gpu" model="1af4:1043" node="1"')
    record = "the guest is not affected; changes on the host are reported less precisely"
    found = drift(host(), other, LIVE, wanted_of(WANTED))
    assert found == [
        Drift(
            "the domain's record of the host differs from the plan's",
            ["defined"],
            record,
            AGAIN,
            [f"metadata/sailloft:plan/sailloft:device[{GPU}]/@node"],
        )
    ]
    without = re.sub(r"  <metadata.*</metadata>\n", "", DEFINED, flags=re.DOTALL)
    assert drift(host(), without, None, wanted_of(WANTED)) == [
        Drift("the domain has no record of the host that it was planned for", ["defined"], record, AGAIN, ["metadata"])
    ]
    # The device is on another node now, which the host's item says.
    made = host()
    made.function(GPU).numa_node = 1
    (item,) = [item for item in drift(made, other, None, wanted_of(WANTED)) if item.paths]
    assert item.where == ["host"]
    assert item.paths == [f"metadata/sailloft:plan/sailloft:device[{GPU}]/@node"]


def test_the_running_domain_comes_first_and_equal_items_are_merged():
    changed = DEFINED.replace("<locked/>", "")
    both = drift(host(), changed, changed, wanted_of(WANTED))
    assert both == [
        Drift(
            "memory is not locked as planned: locked is missing",
            ["defined", "running"],
            "pauses when the host swaps",
            RESTART,
            ["memoryBacking/locked"],
        )
    ]
    one = Drift("a", ["running"], "c", "r", ["y", "x"])
    assert merge([one, Drift("a", ["host"], "c", "r2", ["x"]), Drift("a", ["defined"], "other", "r")]) == [
        Drift("a", ["running", "host"], "c", "r", ["x", "y"]),
        Drift("a", ["defined"], "other", "r", []),
    ]


def pair(on_host: str, in_guest: str, moved: bool) -> tuple[str, list[str], str]:
    item = paths.pair_drift("A", "B", on_host, in_guest, moved, "defined")
    assert item.remedy == AGAIN
    return item.what, item.where, item.consequence


SLOW = "NCCL considers them nearer than they are and sends their traffic over a slow path"
CPU = "NCCL sees no switch between them, and sends their traffic through the CPU"
FAR = "NCCL considers them farther apart than they are"


@pytest.mark.parametrize(
    ("on_host", "in_guest", "consequence"),
    [
        ("SYS", "PIX", SLOW),
        ("PXB", "PIX", SLOW),
        ("PIX", "PHB", CPU),
        ("PXB", "PHB", CPU),
        ("PIX", "PXB", FAR),
        ("PHB", "SYS", FAR),
        ("NODE", "SYS", FAR),
    ],
)
def test_a_pair_that_was_never_as_on_the_host_names_both_distances(on_host, in_guest, consequence):
    assert pair(on_host, in_guest, False) == (
        f"A and B: {on_host} on the host, {in_guest} in the guest",
        ["defined"],
        consequence,
    )


@pytest.mark.parametrize(
    ("on_host", "in_guest", "falls", "than"),
    [
        ("PHB", "PIX", True, "nearer"),
        ("SYS", "PXB", True, "nearer"),
        ("PXB", "PIX", False, "nearer"),
        ("SYS", "PHB", False, "nearer"),
        ("PIX", "PHB", False, "farther"),
        ("PIX", "PXB", False, "farther"),
    ],
)
def test_a_pair_that_moved_apart_names_the_change(on_host, in_guest, falls, than):
    what = f"A and B: {in_guest} in the guest, now {on_host} on the host"
    if falls:
        what = f"A now shares no switch with B: GPUDirect falls from {in_guest} to {on_host}"
    told = f"the guest still sees {in_guest}, so NCCL considers them {than} than they are"
    assert pair(on_host, in_guest, True) == (what, ["host"], told)


def test_at_most_three_pairs_are_named_and_the_others_counted():
    made = host()
    have = read_xml.read(render(plan(**REQUEST, mirror_topology=False)), made.by_address())
    found = paths.pairs_apart(have, None, made, "running")
    assert [item.what for item in found] == [
        f"GPU {GPU} and NIC {NIC}: PIX on the host, PHB in the guest",
        f"GPU {GPU} and NIC 0000:84:00.0: SYS on the host, PHB in the guest",
        f"GPU {GPU} and VF 0000:85:10.0: SYS on the host, PHB in the guest",
        "8 more pairs are at a different distance in the guest than on the host",
    ]
    assert {(tuple(item.where), item.remedy) for item in found} == {(("running",), RESTART)}
    assert found[3].consequence == "as above: NCCL plans with wrong distances"
    for address in ("0000:84:00.0", "0000:85:10.0"):
        gone(address)(made)
    found = paths.pairs_apart(have, None, made, "running")
    assert len(found) == 4
    assert found[3].what == "1 more pair is at a different distance in the guest than on the host"
    for address in (NIC, VF):
        gone(address)(made)
    assert [item.what for item in paths.pairs_apart(have, None, made, "running")] == [
        f"GPU {GPU} and GPU {GPU2}: SYS on the host, PHB in the guest"
    ]


def test_a_missing_device_does_not_hide_other_items():
    without = re.sub("<hostdev (?:(?!<hostdev).)*bus='0x14'.*?</hostdev>", "", DEFINED, flags=re.DOTALL)
    found = drift(host(), without.replace("<locked/>", ""), None, wanted_of(WANTED))
    assert [(item.what, item.paths) for item in found][:2] == [
        (f"the domain lacks NIC {NIC}, which the plan gives it", [f"devices/hostdev[{NIC}]"]),
        ("memory is not locked as planned: locked is missing", ["memoryBacking/locked"]),
    ]


def test_a_pair_with_a_device_that_is_not_planned_is_compared_with_the_host():
    flat = render(plan(**REQUEST, mirror_topology=False))
    smaller = render(plan(**{**REQUEST, "nics": {"per_gpu": 1}}, mirror_topology=False))
    have = read_xml.read(flat, host().by_address())
    found = paths.pairs_apart(have, wanted_of(smaller), host(), "defined")
    # The pairs of planned devices are as planned.
    assert [item.what for item in found] == [
        f"GPU {GPU} and NIC {NIC}: PIX on the host, PHB in the guest",
        f"GPU {GPU} and NIC 0000:84:00.0: SYS on the host, PHB in the guest",
        f"GPU {GPU2} and NIC {NIC}: SYS on the host, PHB in the guest",
        "4 more pairs are at a different distance in the guest than on the host",
    ]
