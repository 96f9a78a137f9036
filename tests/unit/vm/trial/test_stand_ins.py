# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from machines import GIB, MIB, bridge, endpoint, lab, plan
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Bar,
    Host,
    NumaNode,
    RootComplex,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import pci_tree
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.trial import boot, stand_ins

NAME = "pci0000:10"
GPU, NIC = "gpu 0000:21:00.0", "nic 0000:22:00.0"


def machine(bars: list[Bar] | None = None) -> Host:
    """Return a host with a GPU and a NIC of two functions below one switch."""
    port = bridge("0000:10:00.0", None, NAME, "root_port")
    up = bridge("0000:11:00.0", port.address, NAME, "switch_upstream")
    downs = [bridge(f"0000:12:0{slot}.0", up.address, NAME, "switch_downstream") for slot in (0, 1)]
    devices = [
        endpoint("0000:21:00.0", downs[0].address, NAME, bars=bars or [Bar(2, 64 * GIB, "memory", 64, True)]),
        endpoint("0000:22:00.0", downs[1].address, NAME, "nic", bars=[Bar(0, 32 * MIB, "memory", 64, True)]),
        endpoint("0000:22:00.1", downs[1].address, NAME, "nic", bars=[Bar(0, 32 * MIB, "memory", 64, True)]),
    ]
    nodes = [NumaNode(0, list(range(8)), [], 1 << 40)]
    return Host(nodes, [RootComplex(NAME, 0, 0x10, 0)], [port, up, *downs, *devices])


def requested(host: Host | None = None, **changes: Any) -> DomainPlan:
    spec = {
        "gpus": {"addresses": ["0000:21:00.0"]},
        "nics": {"addresses": ["0000:22:00.0", "0000:22:00.1"]},
        "disks": [],
        "interfaces": [],
        **changes,
    }
    return plan(host or machine(), **spec)


def enumerated(of: DomainPlan) -> list[dict[str, Any]]:
    """Return the answer to query-pci if all is as planned; the windows of all bridges are the whole address space."""
    free = [1 << 40]

    def device(port: pci_tree.Port, identity: str, slot: int, function: int, **more: Any) -> dict[str, Any]:
        values = {"bus": port.bus, "slot": slot, "function": function, "qdev_id": identity, "regions": []}
        return {**values, **more}

    def region(size: int) -> dict[str, Any]:
        free[0] = -(-free[0] // size) * size
        at = free[0]
        free[0] += size
        return {"bar": 2, "type": "memory", "size": size, "address": at, "mem_type_64": True, "prefetch": True}

    def below(port: pci_tree.Port) -> list[dict[str, Any]]:
        items = [
            device(port, f"{each.role}-{each.key}", each.slot, each.function)
            for each in port.endpoints
            if each.role != "hostdev"
        ]
        for each in stand_ins.stand_ins(of, port):
            regions = [region(each.bar_bytes)] if each.bar_bytes else []
            items.append(device(port, each.identity, 0, each.function, regions=regions))
        for each in port.ports:
            if each.model != pci_tree.EXPANDER:
                bus = {
                    "secondary": each.bus,
                    "subordinate": each.last_bus,
                    "prefetchable_range": {"base": 0, "limit": (1 << 52) - 1},
                }
                identity = f"port{each.index}"
                item = device(port, identity, each.slot, each.function, pci_bridge={"bus": bus, "devices": below(each)})
                items.append(item)
        return items

    return [{"bus": bus.bus, "devices": below(bus)} for bus in (of.root, *of.root.expanders)]


def find(answer: list[dict[str, Any]], identity: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a function and the list that contains it."""
    lists = [root["devices"] for root in answer]
    while lists:
        devices = lists.pop()
        for device in devices:
            if device["qdev_id"] == identity:
                return devices, device
            lists.append(device.get("pci_bridge", {}).get("devices", []))
    raise AssertionError(identity)


def down(of: DomainPlan, host: str) -> str:
    return next(f"port{port.index}" for port in of.root.walk() if port.host == host)


def test_a_guest_as_planned_has_no_finding() -> None:
    for of in (requested(), plan(), plan(lab(), mirror_topology=False)):
        assert stand_ins.compare(of, enumerated(of)) == []


def missing(of: DomainPlan, answer: list[dict[str, Any]]) -> None:
    devices, device = find(answer, "hostdev-0000-21-00.0")
    devices.remove(device)


def elsewhere(of: DomainPlan, answer: list[dict[str, Any]]) -> None:
    find(answer, "hostdev-0000-21-00.0")[1]["bus"] += 1


def swapped(of: DomainPlan, answer: list[dict[str, Any]]) -> None:
    """Move the GPU below the NIC's port, although it reports its own bus."""
    devices, device = find(answer, "hostdev-0000-21-00.0")
    devices.remove(device)
    find(answer, down(of, "0000:12:01.0"))[1]["pci_bridge"]["devices"].append(device)


def no_address(of: DomainPlan, answer: list[dict[str, Any]]) -> None:
    find(answer, "hostdev-0000-21-00.0")[1]["regions"][0]["address"] = -1


def other_size(of: DomainPlan, answer: list[dict[str, Any]]) -> None:
    find(answer, "hostdev-0000-21-00.0")[1]["regions"][0]["size"] = 32 * GIB


def no_window(of: DomainPlan, answer: list[dict[str, Any]]) -> None:
    span = {"base": 0xFFF00000, "limit": 0xFFFFF}
    find(answer, down(of, "0000:12:00.0"))[1]["pci_bridge"]["bus"]["prefetchable_range"] = span


def small_window(of: DomainPlan, answer: list[dict[str, Any]]) -> None:
    span = {"base": 1 << 40, "limit": (1 << 40) + MIB - 1}
    find(answer, down(of, "0000:10:00.0"))[1]["pci_bridge"]["bus"]["prefetchable_range"] = span


def overlap(of: DomainPlan, answer: list[dict[str, Any]]) -> None:
    gpu, nic = (find(answer, f"hostdev-0000-{bus}-00.0")[1]["regions"][0] for bus in (21, 22))
    nic["address"] = gpu["address"] + MIB


def fewer_buses(of: DomainPlan, answer: list[dict[str, Any]]) -> None:
    find(answer, down(of, "0000:11:00.0"))[1]["pci_bridge"]["bus"]["subordinate"] -= 1


def no_bridge(of: DomainPlan, answer: list[dict[str, Any]]) -> None:
    find(answer, down(of, "0000:10:00.0"))[1]["pci_bridge"].pop("devices")


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (missing, [f"{GPU}: planned at 0000:23:00.0, found nowhere: the firmware did not reach it"]),
        (elsewhere, [f"{GPU}: planned at 0000:23:00.0, found at 0000:24:00.0"]),
        (swapped, [f"{GPU}: planned below port3 > port4 > port5, found below port3 > port4 > port6"]),
        (no_address, [f"{GPU}: planned a BAR of {64 * GIB} bytes, found one without an address"]),
        (other_size, [f"{GPU}: planned a BAR of {64 * GIB} bytes, found BARs of .{32 * GIB}. bytes"]),
        (no_window, [f"{GPU}: planned a BAR of {64 * GIB} bytes in the window of port5, found .*, the window is none"]),
        (small_window, [GPU, NIC, "nic 0000:22:00.1"]),
        (overlap, [f"{NIC}: planned a BAR of its own, found one at .* inside that of {GPU}"]),
        (
            fewer_buses,
            [r"port 4 \(the host's 0000:11:00.0\): planned buses 34-36 below it, found buses 34-35 below it"],
        ),
        (no_bridge, ["port 4", "port 5", GPU, "port 6", NIC, "nic 0000:22:00.1"]),
    ],
)
def test_each_fault_is_a_finding(
    break_it: Callable[[DomainPlan, list[dict[str, Any]]], None], message: list[str]
) -> None:
    of = requested()
    answer = enumerated(of)
    break_it(of, answer)
    findings = [str(finding) for finding in stand_ins.compare(of, answer)]
    assert len(findings) == len(message), findings
    for finding, text in zip(findings, message):
        assert re.search(text, finding), finding


def test_stand_ins_of_further_bars_use_free_functions() -> None:
    bars = [
        Bar(0, 16 * MIB, "memory", 64, True),
        Bar(2, 64 * GIB, "memory", 64, True),
        Bar(4, MIB, "memory", 32, False),
    ]
    of = requested(machine(bars))
    port = next(port for port in of.root.walk() if port.host == "0000:12:00.0")
    assert [(item.function, item.bar_bytes) for item in stand_ins.stand_ins(of, port)] == [
        (0, 64 * GIB),
        (1, 16 * MIB),
    ]
    assert f"{GPU}: 1 BARs below 4 GiB, for which QEMU has no stand-in" in stand_ins.left_out(of)
    text = " ".join(stand_ins.arguments(of, "bios", "x"))
    assert "ivshmem-plain,id=hostdev-0000-21-00.0,bus=port5,addr=0x0.0x0,multifunction=on" in text
    assert "ivshmem-plain,id=bar1-0000-21-00.0,bus=port5,addr=0x0.0x1" in text


def test_a_device_with_an_io_bar_has_a_stand_in() -> None:
    of = requested(machine([Bar(2, 64 * GIB, "memory", 64, True), Bar(5, 128, "io", 32, False)]))
    assert f"pci-testdev,id=hostdev-0000-21-00.0,bus=port5,addr=0x0.0x0,membar={64 * GIB}" in stand_ins.arguments(
        of, "bios", "x"
    )


def test_the_arguments_contain_the_planned_tree() -> None:
    of = requested()
    words = stand_ins.arguments(of, "efi", "/a,b.fd")
    assert "pxb-pcie,id=port2,bus=pcie.0,addr=0x8.0x0,bus_nr=32,numa_node=0" in words
    assert "pcie-root-port,id=port3,bus=port2,addr=0x0.0x0,chassis=3,hotplug=off" in words
    assert "x3130-upstream,id=port4,bus=port3,addr=0x0.0x0" in words
    assert "xio3130-downstream,id=port6,bus=port4,addr=0x1.0x0,chassis=6,hotplug=off" in words
    assert f"q35-pcihost.pci-hole64-size={256 * GIB}" in words
    assert "name=opt/ovmf/X-PciMmio64Mb,string=262144" in words
    assert "if=pflash,unit=0,format=raw,readonly=on,file=/a,,b.fd" in words
    bios = stand_ins.arguments(of, "bios", "x")
    assert "-fw_cfg" not in bios
    assert bios[bios.index("-bios") + 1] == "x"


def test_every_virtio_device_of_a_plan_has_a_driver() -> None:
    of = requested(rng=True, disks=[{"path": "/a"}], interfaces=[{"type": "user"}])
    roles = {endpoint.role for _port, endpoint in of.endpoints()}
    assert roles - {"hostdev"} == set(stand_ins.VIRTIO_DRIVERS)
    assert "virtio-rng-pci,id=rng-0,bus=port4,addr=0x0.0x0" in stand_ins.arguments(of, "bios", "x")


def test_the_address_bits_do_not_exceed_those_of_the_guest() -> None:
    assert stand_ins.address_bits(requested()) == 40
    for bits in ("41", "42", "46"):
        of = requested(machine([Bar(2, 256 * GIB, "memory", 64, True)]), physical_address_bits=bits)
        assert stand_ins.address_bits(of) == of.window.window_bytes.bit_length() <= int(bits)


def test_a_missing_firmware_image_or_qemu_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot, "IMAGES", {"bios": (str(tmp_path / "bios.bin"),), "efi": (str(tmp_path / "no"),)})
    with raises(DomainError, "gpu-vm", "efi", "ovmf"):
        boot.run(requested())
    (tmp_path / "bios.bin").write_bytes(b"")
    with raises(DomainError, "no-such-qemu", "qemu-system-x86"):
        boot.run(requested(), "bios", "no-such-qemu")


def test_each_path_of_a_firmware_image_is_listed_once() -> None:
    for places in boot.IMAGES.values():
        assert len(set(places)) == len(places)


@pytest.mark.parametrize("answer", ["", '{"QMP": ', "no JSON\n"])
def test_a_qemu_that_ends_during_an_answer_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    script = tmp_path / "qemu"
    script.write_text(
        f"#!{sys.executable}\n"
        "import socket, sys\n"
        "server = socket.socket(socket.AF_UNIX)\n"
        "server.bind(sys.argv[-1].split(':', 1)[1].split(',')[0])\n"
        "server.listen()\n"
        f"server.accept()[0].sendall({answer.encode()!r})\n"
        "sys.exit('out of memory')\n"
    )
    script.chmod(0o755)
    monkeypatch.setattr(boot, "IMAGES", {"efi": (str(script),)})
    with raises(DomainError, "gpu-vm", "QEMU"):
        boot.run(requested(), qemu_binary=str(script))


def test_the_error_has_the_message_of_a_qemu_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "qemu"
    script.write_text("#!/bin/sh\necho 'phys-bits too low' >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(boot, "IMAGES", {"efi": (str(script),)})
    with raises(DomainError, "gpu-vm", "QEMU", "phys-bits too low"):
        boot.run(requested(), qemu_binary=str(script))
