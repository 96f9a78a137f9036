# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A correct domain on its host has no drift; after one change, exactly that change is reported.

The domain is libvirt/inactive.xml, which libvirt wrote; the host is the emulated server for which it was planned.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from drifting import DEFINED, DEVICES, LIVE, WANTED, gone, host, wanted_of
from libvirt_definitions import REQUEST
from machines import MIB, plan, recording

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, HugePages, Link
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift.drift import drift
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift.item import Drift, merge
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift.plan import Wanted
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render

RECORD = re.compile(r"  <metadata.*</metadata>\n", re.DOTALL)


def words(found: list[Drift]) -> list[str]:
    return [item.what for item in found]


def named(found: list[Drift], text: str) -> Drift:
    """Return the only item."""
    assert len(found) == 1, words(found)
    assert re.search(text, found[0].what), found[0].what
    assert found[0].consequence
    assert found[0].remedy
    return found[0]


def test_a_domain_that_matches_its_plan_and_host_has_no_drift() -> None:
    assert drift(host(), DEFINED, LIVE, wanted_of(WANTED)) == []
    assert drift(host(), DEFINED, None, wanted_of(WANTED)) == []
    assert drift(host(), DEFINED, LIVE) == []
    assert drift(host(), RECORD.sub("", DEFINED)) == []


def test_wanted_of_a_plan_equals_wanted_of_its_xml() -> None:
    made = plan(**REQUEST)
    wanted, read = Wanted.of(made, render(made)), wanted_of(render(made))
    assert wanted.places == read.places
    assert len(wanted.places) == len(DEVICES)
    for one in (wanted, read):
        one.guest.functions.sort(key=lambda item: item.address)
    assert wanted.guest.functions == read.guest.functions
    assert wanted.guest.root_complexes == read.guest.root_complexes


def changed(of: str, **values: object) -> Callable[[Host], None]:
    def change(on: Host) -> None:
        at = next(number for number, item in enumerate(on.functions) if item.address == of)
        on.functions[at] = replace(on.functions[at], **values)

    return change


def renumbered(old: str, new: str) -> Callable[[Host], None]:
    return changed(old, address=new)


def linked(address: str, link: Link) -> Callable[[Host], None]:
    """Change both ends of the link above; the upper end can always do as much as the lower one."""

    def change(on: Host) -> None:
        step = on.function(address)
        step.link = link
        on.function(step.parent or "").link = replace(link, speed_gt_s=2.5, width=1, max_speed_gt_s=16.0, max_width=16)

    return change


def pages(total: int, free: int) -> Callable[[Host], None]:
    def change(on: Host) -> None:
        on.numa_nodes[1].huge_pages = [HugePages(2 * MIB, total, free)]

    return change


def offline(cpu: int) -> Callable[[Host], None]:
    def change(on: Host) -> None:
        for node in on.numa_nodes:
            node.cpus = [item for item in node.cpus if item != cpu]

    return change


def two_cpus_change_node(on: Host) -> None:
    first, second = on.numa_nodes
    first.cpus, second.cpus = [0, 2, 3, 5], [1, 4, 6, 7]


@pytest.mark.parametrize(
    ("change", "text", "consequence"),
    [
        (gone("0000:13:00.0"), "GPU 0000:13:00.0 is gone from the host", "the running guest has lost it"),
        (
            renumbered("0000:13:00.0", "0000:16:00.0"),
            "GPU 0000:13:00.0 has another address now: 0000:16:00.0",
            "libvirt does not start",
        ),
        (
            changed("0000:13:00.0", vendor_id=0x15B3, kind="nic"),
            "GPU 0000:13:00.0 is gone: NIC 0000:13:00.0 now has its address",
            "the next start gives the guest NIC 0000:13:00.0 in its place",
        ),
        (changed("0000:13:00.0", config_bytes=0), "GPU 0000:13:00.0 does not answer", "fallen off the bus"),
        (
            changed("0000:13:00.0", driver="nvidia"),
            "GPU 0000:13:00.0 is bound to nvidia, not to vfio-pci",
            "the host has taken back",
        ),
        (
            changed("0000:13:00.0", driver=None),
            "GPU 0000:13:00.0 is bound to no driver, not to vfio-pci",
            "the host has taken back",
        ),
        (changed("0000:13:00.0", iommu_group=None), "GPU 0000:13:00.0 is in no IOMMU group", "IOMMU is off"),
        (
            changed("0000:15:10.0", iommu_group=0),
            r"VF 0000:15:10.0 shares its IOMMU group with .* now \(alone when it was planned\)",
            "",
        ),
        (
            linked("0000:13:00.0", Link(2.5, 1, 16.0, 1)),
            "the link of GPU 0000:13:00.0 runs at 2.5 GT/s x1, both ends support 16 GT/s x1",
            "an idle device may lower its speed",
        ),
        (
            linked("0000:11:00.0", Link(2.5, 4, 2.5, 8)),
            "the link of switch 0000:11:00.0 runs at 2.5 GT/s x4, both ends support 2.5 GT/s x8",
            "all traffic through it is limited to that bandwidth",
        ),
        (pages(255, 0), "NUMA node 1 has 255 huge pages of 2 MiB, the virtual machine needs 256", "next start fails"),
        (offline(1), "CPU 1 of the host is offline or gone; vCPU 0 is pinned to it", "the next start fails"),
        (two_cpus_change_node, "vCPUs are not on the node of their memory: vCPU 0 on node 1, memory on 0", "socket"),
    ],
)
def test_a_change_of_the_host_is_reported_with_its_consequence(
    change: Callable[[Host], None], text: str, consequence: str
) -> None:
    made = host()
    change(made)
    # The record of the link is removed: another test covers the capability of a link.
    found = drift(made, re.sub(r'link="[^"]*"', 'link=""', DEFINED), re.sub(r'link="[^"]*"', 'link=""', LIVE))
    item = named(found, text)
    assert item.where == ["host"]
    assert consequence in item.consequence


def test_two_moved_devices_of_one_model_are_matched_in_address_order() -> None:
    made = host()
    renumbered("0000:13:00.0", "0000:16:00.0")(made)
    renumbered("0000:83:00.0", "0000:86:00.0")(made)
    assert words(drift(made, DEFINED)) == [
        "GPU 0000:13:00.0 has another address now: 0000:16:00.0",
        "GPU 0000:83:00.0 has another address now: 0000:86:00.0",
    ]


def test_a_moved_device_is_reported_as_gone_if_there_is_no_record() -> None:
    made = host()
    renumbered("0000:13:00.0", "0000:16:00.0")(made)
    named(drift(made, RECORD.sub("", DEFINED)), "device 0000:13:00.0 is gone from the host")


def test_a_stopped_domain_needs_free_pages_but_no_bound_devices() -> None:
    made = host()
    changed("0000:13:00.0", driver=None)(made)
    assert drift(made, DEFINED, None, wanted_of(WANTED)) == []
    changed("0000:13:00.0", driver="nvidia")(made)
    assert "the next start takes it away" in named(drift(made, DEFINED), "is bound to nvidia").consequence
    made = host()
    pages(256, 255)(made)
    assert drift(made, DEFINED, LIVE) == []
    named(drift(made, DEFINED), "NUMA node 1 has 255 free huge pages of 2 MiB, the virtual machine needs 256")


def test_another_device_in_the_iommu_group_is_reported() -> None:
    made = host()
    group = made.function("0000:13:00.0").iommu_group
    changed("0000:15:00.0", iommu_group=group)(made)
    item = named(drift(made, DEFINED), "GPU 0000:13:00.0 shares its IOMMU group with 0000:15:00.0 now")
    assert "not viable" in item.consequence
    changed("0000:15:00.0", iommu_group=group, driver=None)(made)
    assert "not isolated" in named(drift(made, DEFINED), "shares its IOMMU group").consequence
    # Without a record, nobody knows whether the group has changed: only what keeps the domain from starting is
    # reported.
    assert drift(made, RECORD.sub("", DEFINED)) == []


def test_a_link_that_supports_less_than_when_planned_is_reported() -> None:
    planned = DEFINED.replace('link="2.5 GT/s x1"', 'link="32 GT/s x16"', 1)
    item = named(drift(host(), planned), "the link of GPU 0000:13:00.0 supports 2.5 GT/s x1 now, 32 GT/s x16 when")
    assert item.where == ["host"]


def move(on: Host, address: str, parent: str, node: int) -> None:
    above = on.function(parent)
    changed(address, parent=parent, root_complex=above.root_complex, numa_node=node)(on)


def test_a_device_in_another_slot_is_reported_with_changed_distances() -> None:
    made = host()
    move(made, "0000:14:00.0", "0000:10:01.0", 0)
    found = drift(made, DEFINED, LIVE)
    assert words(found) == [
        "NIC 0000:14:00.0 is now behind pci0000:10 > 0000:10:01.0, it was behind pci0000:10 > 0000:10:00.0 > "
        "0000:11:00.0 > 0000:12:01.0",
        "GPU 0000:13:00.0 now shares no switch with NIC 0000:14:00.0: GPUDirect falls from PIX to PHB",
        "NIC 0000:14:00.0 and VF 0000:15:10.0: PHB in the guest, now PIX on the host",
    ]
    assert {tuple(item.where) for item in found} == {("host",)}
    assert "still sees PIX, so NCCL considers them nearer than they are" in found[1].consequence
    assert "still sees PHB, so NCCL considers them farther than they are" in found[2].consequence
    # A new plan finds the same, and these words report the difference between the records.
    wanted = render(plan(made, **REQUEST))
    against = drift(made, DEFINED, None, wanted_of(wanted))
    assert [item for item in against if "record" in item.what] == []
    assert any(path.startswith("metadata/") for item in against for path in item.paths)


def test_a_device_on_another_node_is_reported_with_the_first_changed_pairs() -> None:
    made = host()
    move(made, "0000:14:00.0", "0000:80:01.0", 1)
    found = drift(made, DEFINED)
    assert "NIC 0000:14:00.0 is on NUMA node 1 now (node 0 when it was planned)" in found[0].what
    assert "cell of node 0" in found[0].what
    assert words(found)[2:] == [
        "GPU 0000:13:00.0 now shares no switch with NIC 0000:14:00.0: GPUDirect falls from PIX to SYS",
        "NIC 0000:14:00.0 and VF 0000:85:10.0: SYS in the guest, now PIX on the host",
        "GPU 0000:83:00.0 and NIC 0000:14:00.0: SYS in the guest, now PHB on the host",
        "2 more pairs are at a different distance in the guest than on the host",
    ]


def test_drift_of_the_host_comes_first_and_equal_items_are_merged() -> None:
    def item(what: str, where: str) -> Drift:
        return Drift(what, [where], "c", "r", [f"{where}/{what}"])

    found = merge([item("a", "running"), item("b", "host"), item("a", "defined"), item("b", "host")])
    assert [(each.what, each.where, each.paths) for each in found] == [
        ("b", ["host"], ["host/b"]),
        ("a", ["defined", "running"], ["defined/a", "running/a"]),
    ]


def edited(old: str, new: str) -> str:
    assert re.search(old, DEFINED, re.DOTALL), old
    return re.sub(old, new, DEFINED, flags=re.DOTALL)


@pytest.mark.parametrize(
    ("old", "new", "text", "path"),
    [
        (
            "vcpu='0' cpuset='1'",
            "vcpu='0' cpuset='2'",
            "vCPUs are not pinned as planned: vCPU 0 on CPU 2, planned 1",
            "cputune/vcpupin[0]/@cpuset",
        ),
        (" *<vcpupin vcpu='1'[^>]*>\n", "", "vCPU 1 is not pinned", "cputune/vcpupin[1]"),
        (
            "emulatorpin cpuset='0,4'",
            "emulatorpin cpuset='0-7'",
            "emulator on CPU 0-7, planned 0,4",
            "cputune/emulatorpin/@cpuset",
        ),
        (
            "cellid='1' mode='strict'",
            "cellid='1' mode='preferred'",
            r"memory is not bound strictly to the planned nodes: memnode\[1\] is preferred, planned strict",
            "numatune/memnode[1]/@mode",
        ),
        ("<numatune>.*</numatune>", "", "memory is not bound strictly", "numatune"),
        (
            "<hugepages>.*</hugepages>",
            "",
            "not in the planned huge pages: hugepages is missing",
            "memoryBacking/hugepages",
        ),
        ("<locked/>", "", "memory is not locked as planned", "memoryBacking/locked"),
        ("<maxphysaddr[^>]*>", "", "window for large BARs", "cpu/maxphysaddr"),
        (
            "33554432</pcihole64>",
            "1024</pcihole64>",
            "pcihole64 is 1024, planned 33554432",
            "devices/controller[pci,0]/pcihole64",
        ),
        ("<vcpu placement='static'>2", "<vcpu placement='static'>3", "NUMA cells differ from .*: vcpu is 3", "vcpu"),
        (
            "(<target busNr='32'>.*?<node>)0",
            r"\g<1>1",
            "the guest's PCI tree is not the planned one",
            "devices/controller[pci,3]/target/node",
        ),
        (RECORD.pattern, "", "the domain has no record of the host that it was planned for", "metadata"),
        ('model="1af4:1043" node="0"', 'model="1af4:1043" node="1"', "record of the host differs from the plan's", ""),
        (
            "<hostdev (?:(?!<hostdev).)*bus='0x14'.*?</hostdev>",
            "",
            "the domain lacks NIC 0000:14:00.0, which the plan gives it",
            "devices/hostdev[0000:14:00.0]",
        ),
    ],
)
def test_a_definition_that_differs_from_the_plan_is_reported(old: str, new: str, text: str, path: str) -> None:
    by_hand = edited(old, new)
    found = [item for item in drift(host(), by_hand, None, wanted_of(WANTED)) if item.where != ["host"]]
    item = named([item for item in found if not re.match(r"(GPU|NIC|VF|\d+ more)", item.what)], text)
    assert item.where == ["defined"]
    assert not path or path in item.paths
    # The running domain has the same differences, except the record, which stays as it was at the start.
    live = [item for item in drift(host(), DEFINED, by_hand, wanted_of(WANTED)) if item.where != ["host"]]
    assert {item.where[0] for item in live} == (set() if "record" in text else {"running"})
    both = [item for item in drift(host(), by_hand, by_hand, wanted_of(WANTED)) if re.search(text, item.what)]
    assert [item.where for item in both] == [["defined"] if "record" in text else ["defined", "running"]]
    if "record" not in text:
        assert "restart" in both[0].remedy


def test_a_device_that_is_not_in_the_plan_is_reported() -> None:
    smaller = render(plan(**{**REQUEST, "nics": {"per_gpu": 1, "addresses": ["0000:14:00.0"]}}))
    found = drift(host(), DEFINED, None, wanted_of(smaller))
    assert any("the domain has NIC 0000:84:00.0, which the plan does not give it" in item.what for item in found)


def test_a_flat_guest_is_drift_if_the_plan_has_switches() -> None:
    flat = render(plan(**REQUEST, mirror_topology=False))
    found = drift(host(), flat, None, wanted_of(WANTED))
    assert words(found) == [
        "GPU 0000:13:00.0, NIC 0000:14:00.0, GPU 0000:83:00.0 and 1 more stand flat in the guest, "
        "below a switch in the plan",
        "GPU 0000:13:00.0 and NIC 0000:14:00.0: PIX on the host, PHB in the guest",
        "GPU 0000:13:00.0 and NIC 0000:84:00.0: SYS on the host, PHB in the guest",
        "GPU 0000:13:00.0 and VF 0000:85:10.0: SYS on the host, PHB in the guest",
        "8 more pairs are at a different distance in the guest than on the host",
    ]
    assert "through the CPU" in found[1].consequence
    assert "nearer than they are" in found[2].consequence
    assert {tuple(item.where) for item in found} == {("defined",)}
    assert len(found[0].paths) > 1
    # A flat guest is no drift if the plan wants it.
    assert drift(host(), flat, None, wanted_of(flat)) == []


def test_memory_that_is_not_bound_is_reported_without_a_plan() -> None:
    loose = edited("<numatune>.*</numatune>", "")
    item = named(drift(host(), loose), "memory of guest cell 0-1 is not bound strictly to a host node")
    assert item.where == ["defined"]


def test_a_device_with_the_node_of_its_root_complex_has_not_moved() -> None:
    server = host()
    server.function("0000:13:00.0").numa_node = None
    made, flat = (render(plan(server, **REQUEST, mirror_topology=mirror)) for mirror in (True, False))
    assert drift(server, made, None, wanted_of(made)) == []
    pair = "GPU 0000:13:00.0 and NIC 0000:14:00.0: PIX on the host, PHB in the guest"
    assert pair in words(drift(server, flat, None, wanted_of(made)))


def test_invalid_xml_is_refused() -> None:
    with pytest.raises(DomainError, match="virsh dumpxml"):
        drift(host(), "<domain")


@pytest.mark.parametrize(
    "name", ["aws-g4dn-metal", "llnl-corona", "llnl-lassen", "llnl-tioga", "nvidia-dgx2", "supermicro-4029gp-ve"]
)
def test_a_flat_guest_of_a_recorded_server_has_at_most_10_items_of_drift(name: str) -> None:
    server = recording(name)
    gpus = [item.address for item in server.functions if item.kind == "gpu"]
    for function in server.functions:
        function.driver = None
        function.iommu_group = None
    made = plan(server, gpus={"addresses": gpus}, nics={}, vcpus=None, memory_mib=16384, huge_page_mib=0, disks=[])
    named(drift(server, render(made)), "in no IOMMU group")
    flat = plan(
        server,
        gpus={"addresses": gpus},
        nics={},
        vcpus=None,
        memory_mib=16384,
        huge_page_mib=0,
        mirror_topology=False,
    )
    found = words(drift(server, render(flat), None, wanted_of(render(made))))
    assert len(found) <= 10, found
    pairs = [text for text in found if "in the guest" in text]
    assert 1 <= len(pairs) <= 5, found
