# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""QEMU's whole command line for a trial, the stand-ins of odd devices, and answers of QEMU to the byte."""

from __future__ import annotations

from typing import Any

import pytest
from machines import GIB, MIB, bridge, endpoint, plan
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Bar,
    Cpu,
    Host,
    NumaNode,
    RootComplex,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.trial import stand_ins
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.trial.stand_ins import (
    EnumeratedDevice,
    Mismatch,
    StandIn,
)

NAME = "pci0000:10"


def high(size: int, index: int = 0) -> Bar:
    return Bar(index, size, "memory", 64, True)


LOW, IO = Bar(0, MIB, "memory", 32, False), Bar(5, 128, "io", 32, False)


def planned(*devices: list[Bar], vendor: str = "GenuineIntel", nodes: int = 1, **more: Any) -> DomainPlan:
    """Return the plan of NICs with these BARs, which are the functions of one device behind a root port."""
    port = bridge("0000:10:00.0", None, NAME, "root_port")
    nics = [
        endpoint(f"0000:20:00.{number}", port.address, NAME, "nic", bars=bars) for number, bars in enumerate(devices)
    ]
    host = Host(
        [NumaNode(node, [2 * node, 2 * node + 1], [], 1 << 40) for node in range(nodes)],
        [RootComplex(NAME, 0, 0x10, 0)],
        [port, *nics],
        Cpu("x86_64", vendor, None, "vmx", 46),
    )
    request = {"gpus": {}, "nics": {"addresses": [nic.address for nic in nics]}, "memory_mib": 3072, "vcpus": nodes}
    return plan(host, **{**request, "disks": [], "interfaces": [], "host_cores_per_socket": 0, **more})


def of_port(of: DomainPlan) -> list[StandIn]:
    port = next(port for port in of.root.walk() if port.host == "0000:10:00.0")
    return stand_ins.stand_ins(of, port)


def test_the_whole_command_of_a_guest_with_ovmf_and_every_virtio_device():
    of = planned(
        [high(64 * GIB), high(MIB, 2)], [LOW], [IO], [IO, high(MIB)],
        disks=[{"path": "/a"}], interfaces=[{"type": "user"}], rng=True, firmware="efi",
    )  # fmt: skip
    words = stand_ins.arguments(of, "efi", "/a,b.fd")
    assert words[:8] == ["-machine", "q35", "-accel", "tcg", "-nodefaults", "-no-user-config", "-display", "none"]
    assert [" ".join(pair) for pair in zip(words[8::2], words[9::2])] == [
        "-cpu max,phys-bits=40,vendor=GenuineIntel",
        "-smp 1",
        "-m 256M",
        "-object memory-backend-ram,id=ram0,size=256M",
        "-numa node,nodeid=0,memdev=ram0,cpus=0",
        "-global q35-pcihost.pci-hole64-size=274877906944",
        "-drive if=pflash,unit=0,format=raw,readonly=on,file=/a,,b.fd",
        "-fw_cfg name=opt/ovmf/X-PciMmio64Mb,string=262144",
        "-device pcie-root-port,id=port1,bus=pcie.0,addr=0x2.0x0,multifunction=on,chassis=1",
        "-device pcie-root-port,id=port2,bus=pcie.0,addr=0x2.0x1,chassis=2",
        "-device pcie-root-port,id=port3,bus=pcie.0,addr=0x2.0x2,chassis=3",
        "-device pcie-root-port,id=port4,bus=pcie.0,addr=0x2.0x3,chassis=4",
        "-device pxb-pcie,id=port5,bus=pcie.0,addr=0x8.0x0,bus_nr=32,numa_node=0",
        "-device pcie-root-port,id=port6,bus=port5,addr=0x0.0x0,chassis=6,hotplug=off",
        "-device virtio-serial-pci,id=serial-0,bus=port1,addr=0x0.0x0",
        "-blockdev null-co,node-name=disk-0-node,size=1048576,read-zeroes=on",
        "-device virtio-blk-pci,id=disk-0,bus=port2,addr=0x0.0x0,drive=disk-0-node",
        "-device virtio-net-pci,id=interface-0,bus=port3,addr=0x0.0x0,romfile=",
        "-device virtio-rng-pci,id=rng-0,bus=port4,addr=0x0.0x0",
        "-object memory-backend-ram,id=hostdev-0000-20-00.0-memory,size=68719476736,reserve=off",
        "-device ivshmem-plain,id=hostdev-0000-20-00.0,bus=port6,addr=0x0.0x0,multifunction=on,"
        "memdev=hostdev-0000-20-00.0-memory",
        "-object memory-backend-ram,id=hostdev-0000-20-00.1-memory,size=4096,reserve=off",
        "-device ivshmem-plain,id=hostdev-0000-20-00.1,bus=port6,addr=0x0.0x1,memdev=hostdev-0000-20-00.1-memory",
        "-device pci-testdev,id=hostdev-0000-20-00.2,bus=port6,addr=0x0.0x2",
        "-device pci-testdev,id=hostdev-0000-20-00.3,bus=port6,addr=0x0.0x3,membar=1048576",
        "-object memory-backend-ram,id=bar4-0000-20-00.0-memory,size=1048576,reserve=off",
        "-device ivshmem-plain,id=bar4-0000-20-00.0,bus=port6,addr=0x0.0x4,memdev=bar4-0000-20-00.0-memory",
    ]


def test_memory_is_divided_among_the_cells_and_only_the_first_has_the_cpu():
    of = planned([LOW], nodes=3, vendor="Other", numa_nodes=["all"])
    words = stand_ins.arguments(of, "bios", "/b")
    assert [" ".join(pair) for pair in zip(words[8:26:2], words[9:26:2])] == [
        "-cpu max,phys-bits=40",
        "-smp 1",
        "-m 255M",
        "-object memory-backend-ram,id=ram0,size=85M",
        "-numa node,nodeid=0,memdev=ram0,cpus=0",
        "-object memory-backend-ram,id=ram1,size=85M",
        "-numa node,nodeid=1,memdev=ram1",
        "-object memory-backend-ram,id=ram2,size=85M",
        "-numa node,nodeid=2,memdev=ram2",
    ]
    assert words[26:30] == ["-global", f"q35-pcihost.pci-hole64-size={32 * GIB}", "-bios", "/b"]
    # A device alone in its slot needs no multifunction, and a window of the default size no value for OVMF.
    assert not any("multifunction" in word for word in words)
    assert "-fw_cfg" not in stand_ins.arguments(of, "efi", "/b")
    assert "vendor=AuthenticAMD" in " ".join(stand_ins.arguments(planned([LOW], vendor="AuthenticAMD"), "bios", "/b"))


def test_an_expander_without_a_cell_has_no_node():
    of = planned([LOW])
    of.root.expanders[0].cell = None
    (text,) = [word for word in stand_ins.arguments(of, "bios", "/b") if word.startswith("pxb-pcie")]
    assert text == "pxb-pcie,id=port2,bus=pcie.0,addr=0x8.0x0,bus_nr=32"


@pytest.mark.parametrize(
    ("window_bytes", "bits"),
    [(32 * GIB, 40), (508 * GIB, 40), (1020 * GIB, 41), (1020 * GIB - 1, 40), (1024 * GIB, 41)],
)
def test_the_fewest_address_bits_hold_the_window_above_4_gib(window_bytes, bits):
    of = planned([LOW])
    of.window.window_bytes = window_bytes
    assert stand_ins.address_bits(of) == bits


def test_the_largest_bar_is_in_place_and_the_others_are_at_free_functions():
    of = planned([high(MIB), high(3 * MIB, 2), high(16, 4)], [IO], [high(2 * MIB), high(8 * MIB, 2)])
    assert of_port(of) == [
        StandIn("hostdev-0000-20-00.0", "0000:20:00.0", 0, 4 * MIB, False),
        StandIn("hostdev-0000-20-00.1", "0000:20:00.1", 1, 0, True),
        StandIn("hostdev-0000-20-00.2", "0000:20:00.2", 2, 8 * MIB, False),
        StandIn("bar3-0000-20-00.2", "0000:20:00.2", 3, 2 * MIB, False),
        StandIn("bar4-0000-20-00.0", "0000:20:00.0", 4, MIB, False),
        # No BAR of a stand-in is smaller than a page.
        StandIn("bar5-0000-20-00.0", "0000:20:00.0", 5, 4096, False),
    ]
    assert stand_ins.left_out(of) == []


def test_what_a_trial_does_not_show_is_told():
    of = planned(*[[high(MIB), high(MIB, 2)]] * 5, [LOW, LOW], [IO], [IO])
    assert [item.identity for item in of_port(of)] == [f"hostdev-0000-20-00.{number}" for number in range(8)]
    beside = "1 BARs, its slot has no functions free to stand in for them"
    assert stand_ins.left_out(of) == [
        *(f"nic 0000:20:00.{number}: {beside}" for number in range(5)),
        "nic 0000:20:00.5: 2 BARs below 4 GiB, for which QEMU has no stand-in",
    ]
    assert stand_ins.left_out(planned([])) == ["nic 0000:20:00.0: its BARs are not known"]


def test_a_finding_is_a_sentence_and_plain_data():
    one = Mismatch("gpu x", "at a", "at b")
    assert str(one) == "gpu x: planned at a, found at b"
    assert one.to_dict() == {
        "what": "gpu x", "planned": "at a", "found": "at b", "message": "gpu x: planned at a, found at b",
    }  # fmt: skip


def region(address: int, **more: Any) -> dict[str, Any]:
    return {"type": "memory", "size": MIB, "address": address, "mem_type_64": True, "prefetch": True, **more}


@pytest.mark.parametrize(
    ("one", "bars"),
    [
        (region(1 << 40), {MIB: 1 << 40}),
        (region(-1), {MIB: None}),
        (region(2**64 - 1), {MIB: None}),
        (region(0), {MIB: 0}),
        (region(2**64 - 2), {MIB: 2**64 - 2}),
        (region(1, type="io"), {}),
        (region(1, mem_type_64=False), {}),
        (region(1, prefetch=False), {}),
        ({"type": "memory", "size": MIB, "address": 1}, {}),
    ],
)
def test_only_high_bars_with_their_address_are_read(one, bars):
    device = {"bus": 1, "slot": 2, "function": 3, "qdev_id": "x", "regions": [one]}
    assert list(stand_ins.enumerated_devices([{"devices": [device]}])) == [
        ("x", EnumeratedDevice("0000:01:02.3", [], None, bars))
    ]


@pytest.mark.parametrize(
    ("base", "limit", "window"), [(1, 0, None), (1, 1, (1, 1)), (0x100000, 0xFFFFF, None), (0, 9, (0, 9))]
)
def test_a_bridge_has_its_buses_and_window(base, limit, window):
    below = {"bus": 2, "slot": 0, "function": 0, "qdev_id": "y", "regions": []}
    bus = {"secondary": 2, "subordinate": 5, "prefetchable_range": {"base": base, "limit": limit}}
    above = {"bus": 1, "slot": 0, "function": 0, "qdev_id": "x", "regions": []}
    answer = [{"devices": [{**above, "pci_bridge": {"bus": bus, "devices": [below]}}]}]
    assert list(stand_ins.enumerated_devices(answer)) == [
        ("x", EnumeratedDevice("0000:01:00.0", [], (2, 5), {})),
        ("y", EnumeratedDevice("0000:02:00.0", [("x", window)], None, {})),
    ]


@pytest.mark.parametrize(
    ("start", "window", "fits"),
    [
        (8, (8, 11), True),
        (8, (8, 10), False),
        (8, (9, 99), False),
        (8, (0, 99), True),
        (0, (0, 3), True),
        (8, None, False),
    ],
)
def test_a_bar_must_lie_in_the_window_of_each_bridge_above(start, window, fits):
    findings: list[Mismatch] = []
    spans: list[Any] = []
    found = EnumeratedDevice("p", [("port1", (0, 1 << 20)), ("port2", window)], None, {4: start})
    stand_ins.compare_bar("gpu x", 4, found, findings, spans)
    text = f"{window[0]:#x}-{window[1]:#x}" if window else "none"
    expected = Mismatch("gpu x", "a BAR of 4 bytes in the window of port2", f"{start:#x}, the window is {text}")
    assert findings == ([] if fits else [expected])
    assert spans == [(start, start + 4, "gpu x")]


def answer_of(of: DomainPlan, *bars: tuple[int, int]) -> list[dict[str, Any]]:
    """Return the answer of a guest as planned whose stand-ins have a BAR of (size, address) each."""
    serial, expander = of.root.ports[0], of.root.expanders[0]
    port = expander.ports[0]

    def bridged(each: Any, bus: int, *below: dict[str, Any]) -> dict[str, Any]:
        range_ = {"base": 0, "limit": 1 << 50}
        own = {"secondary": each.bus, "subordinate": each.last_bus, "prefetchable_range": range_}
        place = {"bus": bus, "slot": each.slot, "function": each.function, "qdev_id": f"port{each.index}"}
        return {**place, "regions": [], "pci_bridge": {"bus": own, "devices": list(below)}}

    def function(bus: int, number: int, identity: str, *regions: dict[str, Any]) -> dict[str, Any]:
        return {"bus": bus, "slot": 0, "function": number, "qdev_id": identity, "regions": list(regions)}

    there = [
        function(port.bus, item.function, item.identity, region(address, size=size))
        for item, (size, address) in zip(of_port(of), bars)
    ]
    return [
        {"devices": [bridged(serial, 0, function(serial.bus, 0, "serial-0"))]},
        {"devices": [bridged(port, expander.bus, *there)]},
    ]


@pytest.mark.parametrize(
    ("second", "found"),
    [
        (MIB, []),
        (2 * MIB, []),
        (
            MIB - 1,
            [Mismatch("nic 0000:20:00.1", "a BAR of its own", "one at 0xfffff inside that of nic 0000:20:00.0")],
        ),
    ],
)
def test_two_bars_may_touch_but_not_overlap(second, found):
    of = planned([high(MIB)], [high(MIB)])
    assert stand_ins.compare(of, answer_of(of, (MIB, 0), (MIB, second))) == found


def test_a_virtio_device_that_is_missing_or_elsewhere_is_a_finding():
    of = planned([LOW])
    answer = answer_of(of)
    assert [str(item) for item in stand_ins.compare(of, [{"devices": []}, answer[1]])][:2] == [
        "pcie-root-port 1: planned at 0000:00:02.0, found nowhere: the firmware did not reach it",
        "virtio serial 0: planned at 0000:01:00.0, found nowhere: the firmware did not reach it",
    ]
    answer[0]["devices"][0]["slot"] = 3
    answer[0]["devices"][0]["pci_bridge"]["bus"]["subordinate"] = 2
    answer[0]["devices"].append(answer[0]["devices"][0]["pci_bridge"]["devices"].pop())
    answer[0]["devices"][1]["bus"] = 0
    assert [str(item) for item in stand_ins.compare(of, answer)][:4] == [
        "pcie-root-port 1: planned at 0000:00:02.0, found at 0000:00:03.0",
        "pcie-root-port 1: planned buses 1-1 below it, found buses 1-2 below it",
        "virtio serial 0: planned at 0000:01:00.0, found at 0000:00:00.0",
        "virtio serial 0: planned below port1, found below a root bus",
    ]
    del answer[0]["devices"][0]["pci_bridge"]
    assert str(stand_ins.compare(of, answer)[1]) == Mentions("pcie-root-port 1", "1-1")
