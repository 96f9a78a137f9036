# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whole items about the host, for one change each. The domain and its host are those of test_drift.py."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from drifting import DEFINED, DEVICES, gone, host
from machines import GIB, MIB

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, HugePages, Link
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift import host as drift_host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift.item import Drift
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt import read_xml

GPU, NIC, VF, GPU2 = "0000:13:00.0", "0000:14:00.0", "0000:15:10.0", "0000:83:00.0"
AGAIN = "run playbooks/gpu_vms.yml, which plans it again for this host"
LOG = "check the host's log and slot"
NO_RECORD = re.sub(r"  <metadata.*</metadata>\n", "", DEFINED, flags=re.DOTALL)
# The limits of links are of no interest where a link is changed.
NO_LINKS = re.sub(r'link="[^"]*"', 'link=""', DEFINED)


def items(made: Host, xml: str = DEFINED, running: bool = False) -> list[Drift]:
    return drift_host.against_host(read_xml.read(xml, made.by_address()), made, running)


def item(what: str, consequence: str, remedy: str) -> Drift:
    return Drift(what, ["host"], consequence, remedy)


def changed(of: str, **values: object) -> Host:
    made = host()
    at = next(number for number, each in enumerate(made.functions) if each.address == of)
    made.functions[at] = replace(made.functions[at], **values)
    return made


def without(*addresses: str) -> Host:
    made = host()
    for address in addresses:
        gone(address)(made)
    return made


@pytest.mark.parametrize("running", [False, True])
def test_an_unchanged_host_has_no_items(running: bool) -> None:
    assert items(host(), running=running) == []
    assert items(host(), NO_RECORD, running) == []


START = "libvirt does not start the virtual machine without it"
LOST = f"the running guest has lost it, and {START}"


def test_a_missing_device_is_gone_from_the_host() -> None:
    remedy = f"{LOG} (echo 1 > /sys/bus/pci/rescan); otherwise remove it, and {AGAIN}"
    assert items(without(GPU)) == [item(f"GPU {GPU} is gone from the host", START, remedy)]
    assert items(without(GPU), running=True) == [item(f"GPU {GPU} is gone from the host", LOST, remedy)]
    # Without a record, neither its kind is known nor whether it has moved.
    assert items(without(GPU), NO_RECORD) == [item(f"device {GPU} is gone from the host", START, remedy)]


def test_a_device_with_another_address_is_named_with_both() -> None:
    remedy = f"where the inventory names {GPU}, write 0000:16:00.0; then {AGAIN}"
    assert items(changed(GPU, address="0000:16:00.0")) == [
        item(f"GPU {GPU} has another address now: 0000:16:00.0", START, remedy)
    ]


def test_a_device_moved_only_if_as_many_are_unclaimed_as_missing() -> None:
    made = changed(GPU, address="0000:16:00.0")
    made.functions.append(replace(made.function("0000:16:00.0"), address="0000:17:00.0"))
    assert [each.what for each in items(made)] == [f"GPU {GPU} is gone from the host"]
    gone(GPU2)(made)
    assert [each.what for each in items(made)] == [
        f"GPU {GPU} has another address now: 0000:16:00.0",
        f"GPU {GPU2} has another address now: 0000:17:00.0",
    ]
    # A GPU that moved to the address of the other one, which is gone.
    made = without(GPU)
    made.functions.append(replace(host().function(GPU), address="0000:12:1f.0"))
    made.functions = [each for each in made.functions if each.address != NIC]
    assert [each.what for each in items(made)] == [
        f"GPU {GPU} has another address now: 0000:12:1f.0",
        f"NIC {NIC} is gone from the host",
    ]


def test_another_device_at_the_address_is_named() -> None:
    instead = f"the next start gives the guest NIC {GPU} in its place"
    remedy = f"{LOG}; otherwise remove it from the inventory, and {AGAIN}"
    made = changed(GPU, vendor_id=0x15B3, kind="nic")
    for running in (False, True):
        assert items(made, running=running) == [
            item(f"GPU {GPU} is gone: NIC {GPU} now has its address", instead, remedy)
        ]
    # It moved, and another device took its address.
    made.functions.append(replace(host().function(GPU), address="0000:16:00.0"))
    assert items(made) == [
        item(
            f"GPU {GPU} has another address now: 0000:16:00.0",
            instead,
            f"where the inventory names {GPU}, write 0000:16:00.0; then {AGAIN}",
        )
    ]
    # Without a record, nobody knows that it is another one.
    assert items(made, NO_RECORD) == []


def test_a_dead_device_has_no_other_item() -> None:
    made = changed(GPU, config_bytes=0, driver="nvidia", iommu_group=None, numa_node=1)
    assert items(made) == [
        item(
            f"GPU {GPU} does not answer: its config space reads as all ones",
            "it has fallen off the bus; its driver in the guest has lost it, or the next start fails",
            "check the host's log for AER or Xid errors; a power cycle of the host restores it unless it is broken",
        )
    ]
    # Where no config space was read at all, it says nothing.
    for function in made.functions:
        function.config_bytes = 0
    assert "does not answer" not in "".join(each.what for each in items(made))


def driven(**drivers: str | None) -> Host:
    made = host()
    for name, driver in drivers.items():
        made.function({"gpu": GPU, "nic": NIC, "gpu2": GPU2}[name]).driver = driver
    return made


def test_devices_are_listed_by_their_driver() -> None:
    remedy = "run playbooks/gpu_hosts.yml with it in gpu_host_vfio, or stop what uses it on the host"
    stopped = "the next start takes it away from that driver, and hangs or fails if the host uses it"
    lost = "QEMU has lost it: the guest's driver works on a device that the host has taken back"
    made = driven(gpu="nvidia", gpu2="nvidia", nic="igb")
    for running, consequence in ((False, stopped), (True, lost)):
        assert items(made, running=running) == [
            item(f"NIC {NIC} is bound to igb, not to vfio-pci", consequence, remedy),
            item(f"GPU {GPU}, GPU {GPU2} are bound to nvidia, not to vfio-pci", consequence, remedy),
        ]
    assert items(driven(nic=None)) == []
    assert items(driven(nic=None), running=True) == [
        item(f"NIC {NIC} is bound to no driver, not to vfio-pci", lost, remedy)
    ]


def test_devices_without_a_group_are_one_item() -> None:
    made = changed(GPU, iommu_group=None)
    off = "the host's IOMMU is off: libvirt does not start the virtual machine"
    remedy = "enable it in the BIOS, boot with intel_iommu=on or amd_iommu=on (role gpu_host)"
    assert items(made) == [item(f"GPU {GPU} is in no IOMMU group", off, remedy)]
    made.function(NIC).iommu_group = None
    assert items(made) == [item(f"GPU {GPU}, NIC {NIC} are in no IOMMU group", off, remedy)]


def test_a_device_on_another_node_is_named_with_its_cell() -> None:
    wrong = "its threads and buffers are put on the wrong node, and its DMA crosses the socket link"
    made = changed(GPU, numa_node=1)

    def drift(since: str) -> list[Drift]:
        return [item(f"GPU {GPU} is on NUMA node 1 now{since}; the guest has it on the cell of node 0", wrong, AGAIN)]

    assert items(made) == drift(" (node 0 when it was planned)")
    assert items(made, NO_RECORD) == drift("")
    assert items(made, DEFINED.replace('node="0"', 'node="1"', 1)) == drift("")
    assert items(made, DEFINED.replace('node="0"', 'node=""', 1)) == drift(" (node unknown when it was planned)")
    # A node that is not known, or a cell on several nodes, is no item.
    unknown = changed(GPU, numa_node=None)
    unknown.root_complexes[1].numa_node = None
    assert items(unknown) == []
    assert (
        items(made, DEFINED.replace("cellid='0' mode='strict' nodeset='0'", "cellid='0' mode='strict' nodeset='0-1'"))
        == []
    )
    # The node is served by the planned one.
    made.numa_nodes[1].cpus = []
    assert [each.what for each in items(made) if GPU in each.what] == []


def test_a_group_is_named_with_its_members_now_and_then() -> None:
    fails = "VFIO refuses a group that is not viable: the next start fails"
    open_group = (
        "devices of the same group are not isolated from it: ACS of a port above has changed, or a device was added"
    )
    remedy = "assign those to the same virtual machine or unbind them; if ACS is missing, see gpu_host_acs and the BIOS"
    made = changed("0000:15:00.0", iommu_group=16)
    now = f"GPU {GPU} shares its IOMMU group with 0000:15:00.0 now"
    assert items(made) == [item(f"{now} (alone when it was planned)", fails, remedy)]
    assert items(made, NO_RECORD) == [item(now, fails, remedy)]
    before = DEFINED.replace('group=""', 'group="0000:99:00.0"', 1)
    assert items(made, before) == [item(f"{now} (0000:99:00.0 when it was planned)", fails, remedy)]
    made.function("0000:15:00.0").driver = None
    assert items(made) == [item(f"{now} (alone when it was planned)", open_group, remedy)]
    assert items(made, NO_RECORD) == []
    assert items(made, DEFINED.replace('group=""', 'group="0000:15:00.0"', 1)) == []
    assert items(host(), before) == [
        item(
            f"GPU {GPU} shares its IOMMU group with nothing now (0000:99:00.0 when it was planned)", open_group, remedy
        )
    ]


def test_a_device_behind_other_bridges_is_named_with_both_ways() -> None:
    made = changed(NIC, parent="0000:10:01.0")
    assert items(made) == [
        item(
            f"NIC {NIC} is now behind pci0000:10 > 0000:10:01.0, it was behind pci0000:10 > 0000:10:00.0 > "
            "0000:11:00.0 > 0000:12:01.0",
            "the guest's PCI tree mirrors the former place; ACS and MaxReadReq of the new ports may not be set",
            f"run playbooks/gpu_hosts.yml for the ports, then {AGAIN}",
        )
    ]
    assert items(made, NO_RECORD) == []


def test_a_link_that_supports_another_rate_is_named_with_both() -> None:
    what = f"the link of GPU {GPU} supports 2.5 GT/s x1 now, 32 GT/s x16 when it was planned"
    faster = DEFINED.replace('link="2.5 GT/s x1"', 'link="32 GT/s x16"', 1)
    assert items(host(), faster) == [
        item(
            what,
            "its bandwidth differs from the plan and the guest's NCCL topology file",
            "check whether it is in another slot or behind another riser, or its BIOS setting has changed",
        )
    ]
    # A limit that is not known now, or was not known then, is no item.
    assert items(host(), NO_LINKS) == []
    assert items(changed(GPU, link=None), faster) == []


def linked(*changes: tuple[str, Link | None]) -> Host:
    made = host()
    for address, link in changes:
        made.function(address).link = link
    return made


def slow(place: str, now: str, able: str, narrow: bool) -> Drift:
    rest = "" if narrow else "; an idle device may lower its speed, so check again under load"
    return item(
        f"the link of {place} runs at {now}, both ends support {able}",
        f"all traffic through it is limited to that bandwidth{rest}",
        "reseat it or check its riser; setpci can retrain the link, a power cycle does",
    )


@pytest.mark.parametrize(
    ("link", "found"),
    [
        (Link(16.0, 16, 16.0, 16), []),
        (Link(8.0, 16, 16.0, 16), [("8 GT/s x16", "16 GT/s x16", False)]),
        (Link(16.0, 8, 16.0, 16), [("16 GT/s x8", "16 GT/s x16", True)]),
        (Link(8.0, 8, 16.0, 16), [("8 GT/s x8", "16 GT/s x16", True)]),
        # The other end supports less than the device.
        (Link(16.0, 16, 32.0, 32), []),
        (Link(8.0, 16, 32.0, 32), [("8 GT/s x16", "16 GT/s x16", False)]),
        # What is not known is not compared.
        (None, []),
        (Link(None, 8, 16.0, 16), []),
        (Link(8.0, None, 16.0, 16), []),
        (Link(0.0, 8, 16.0, 16), []),
        (Link(8.0, 0, 16.0, 16), []),
    ],
)
def test_a_link_below_its_limit_is_an_item(link: Link | None, found: list[tuple[str, str, bool]]) -> None:
    """The limit of the port above is 16 GT/s and 16 lanes."""
    made = linked((GPU, link), ("0000:12:00.0", Link(2.5, 1, 16.0, 16)))
    assert items(made, NO_LINKS) == [slow(f"GPU {GPU}", *each) for each in found]


def test_links_of_ports_above_are_compared_without_those_inside_a_switch() -> None:
    half = Link(8.0, 16, 16.0, 16)
    assert (
        items(linked(("0000:11:00.0", half)), NO_LINKS)
        == [slow("switch 0000:11:00.0", "8 GT/s x16", "16 GT/s x16", False)] * 2
    )
    # The link of a downstream port to its upstream port, and one of a port on the root bus.
    assert items(linked(("0000:12:00.0", half), ("0000:10:00.0", half)), NO_LINKS) == []


def test_a_virtual_function_has_the_link_of_its_physical_function() -> None:
    made = linked(("0000:15:00.0", Link(2.5, 8, 2.5, 16)), (VF, Link(1.0, 1, 16.0, 16)))
    assert items(made, NO_LINKS) == [slow("NIC 0000:15:00.0", "2.5 GT/s x8", "2.5 GT/s x16", True)]


def pages(first: HugePages | None, second: HugePages | None = None) -> Host:
    made = host()
    for node, pool in zip(made.numa_nodes, (first, second or HugePages(2 * MIB, 256, 256))):
        node.huge_pages = [] if pool is None else [HugePages(GIB, 9, 9), pool]
    return made


@pytest.mark.parametrize(
    ("pool", "running", "count"),
    [
        (HugePages(2 * MIB, 256, 256), False, None),
        (HugePages(2 * MIB, 256, 255), False, "255 free"),
        (HugePages(2 * MIB, 256, 0), True, None),
        (HugePages(2 * MIB, 255, 0), True, "255"),
        (HugePages(GIB, 256, 256), False, "0 free"),
        (None, True, "0"),
    ],
)
def test_missing_huge_pages_are_named_by_node(pool: HugePages | None, running: bool, count: str | None) -> None:
    assert items(pages(pool), running=running) == (
        [
            item(
                f"NUMA node 0 has {count} huge pages of 2 MiB, the virtual machine needs 256",
                "the next start fails for lack of memory",
                "run playbooks/gpu_hosts.yml (gpu_host_hugepages); after long uptime reserve them at boot",
            )
        ]
        if count
        else []
    )


def test_pages_of_cells_on_one_node_are_added_and_loose_cells_need_none() -> None:
    one_node = DEFINED.replace("cellid='1' mode='strict' nodeset='1'", "cellid='1' mode='strict' nodeset='0'")
    found = [each.what for each in items(pages(HugePages(2 * MIB, 511, 511)), one_node) if "pages" in each.what]
    assert found == ["NUMA node 0 has 511 free huge pages of 2 MiB, the virtual machine needs 512"]
    gone_node = DEFINED.replace("cellid='1' mode='strict' nodeset='1'", "cellid='1' mode='strict' nodeset='7'")
    found = [each.what for each in items(host(), gone_node) if "pages" in each.what]
    assert found == ["NUMA node 7 has 0 free huge pages of 2 MiB, the virtual machine needs 256"]
    both = DEFINED.replace("cellid='0' mode='strict' nodeset='0'", "cellid='0' mode='strict' nodeset='0-1'")
    assert items(pages(None), both) == []
    ordinary = re.sub("<hugepages>.*</hugepages>", "", DEFINED, flags=re.DOTALL)
    assert items(pages(None), ordinary) == []


def test_a_thread_on_an_offline_cpu_is_named() -> None:
    def lacking(*cpus: int) -> Host:
        made = host()
        for node in made.numa_nodes:
            node.cpus = [cpu for cpu in node.cpus if cpu not in cpus]
        return made

    moved = "the kernel moves the thread to any CPU, and the next start fails"
    remedy = f"bring it back (echo 1 > /sys/devices/system/cpu/cpuN/online), or {AGAIN}"
    assert items(lacking(1)) == [item("CPU 1 of the host is offline or gone; vCPU 0 is pinned to it", moved, remedy)]
    assert items(lacking(2, 3)) == []
    assert items(lacking(0, 4, 5)) == [
        item(
            "CPU 0,4-5 of the host is offline or gone; I/O thread 1, the emulator, vCPU 1 is pinned to it",
            moved,
            remedy,
        )
    ]


def test_a_vcpu_away_from_its_memory_is_named_and_other_threads_are_not() -> None:
    crosses = "each access to that memory crosses the socket link"
    away = DEFINED.replace("vcpu='0' cpuset='1'", "vcpu='0' cpuset='6'")
    assert items(host(), away) == [
        item("vCPUs are not on the node of their memory: vCPU 0 on node 1, memory on 0", crosses, AGAIN)
    ]
    partly = DEFINED.replace("vcpu='0' cpuset='1'", "vcpu='0' cpuset='1,6'")
    assert items(host(), partly) == [
        item("vCPUs are not on the node of their memory: vCPU 0 on node 0-1, memory on 0", crosses, AGAIN)
    ]
    # Memory that may come from both nodes, and memory that is not bound.
    both = away.replace("cellid='0' mode='strict' nodeset='0'", "cellid='0' mode='strict' nodeset='0-1'")
    assert items(host(), both) == []
    loose = re.sub("<numatune>.*</numatune>", "", away, flags=re.DOTALL)
    assert items(host(), loose) == []
    # A vCPU that no cell has.
    assert items(host(), DEFINED.replace("vcpu='0' cpuset='1'", "vcpu='9' cpuset='6'")) == []


def test_a_request_without_a_plan_is_an_item() -> None:
    assert drift_host.no_plan("a reason") == item(
        "the request cannot be planned on this host as it is now: a reason",
        "playbooks/gpu_vms.yml fails, and the virtual machine can be neither changed nor proven",
        "correct the problems in the other items, or change the inventory",
    )


def test_all_devices_of_the_domain_are_compared() -> None:
    made = host()
    for address in DEVICES:
        made.function(address).driver = "x"
    (one,) = items(made)
    assert one.what == f"GPU {GPU}, NIC {NIC}, VF {VF} and 3 more are bound to x, not to vfio-pci"
