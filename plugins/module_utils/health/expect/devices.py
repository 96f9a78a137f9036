# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The devices that a node must have, with the speed and width of their links. Pure.

Each PCIe link has two ends, and what it can do is the smaller of what both ends can do. The current values of a
recording are not taken: a link that was degraded on the first day would be taken for a healthy one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect.errors import ExpectError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import ExpectedDevice
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

KINDS = {"gpu": "GPU", "nic": "NIC", "nvme": "NVMe", "nvswitch": "NVSwitch"}
# Ports whose link leads down, to the one device behind it; the link of an upstream port is that of the port above it.
DOWN = ("root_port", "switch_downstream")
# The NVLinks of a GPU on a board with NVSwitches, where all lead to a switch: the whitepapers of the NVIDIA V100 (6),
# A100 (12), H100 (18) and Blackwell (18) architectures. Device ids: pci.ids.
NVLINKS = {
    **dict.fromkeys(("10de:1db1", "10de:1db5", "10de:1db8"), 6),
    **dict.fromkeys(("10de:20b0", "10de:20b2"), 12),
    **dict.fromkeys(("10de:2330", "10de:2335", "10de:2901"), 18),
}


def of_host(host: Host) -> list[ExpectedDevice]:
    """Return the GPUs, NICs, NVMe drives and NVSwitches of a host, and the ports above them, by address."""
    devices = [item for item in host.functions if item.kind in KINDS and item.physical_function is None]
    names = named(devices)
    functions = host.by_address()
    has_switches = any(item.kind in ("nvswitch", "nvswitch_management") for item in devices) or any(
        item.kind == "nvswitch_management" or item.manages_nvswitches for item in host.functions
    )
    result = {item.address: _device(item, functions, names[item.address], has_switches) for item in devices}
    devices_of_port: dict[str, list[str]] = {}
    for item in devices:
        for step in host.path(item.address)[:-1]:
            if step.kind == "bridge" and step.link is not None:
                devices_of_port.setdefault(step.address, []).append(names[item.address])
    children = _children(host.functions)
    for address, names_above in devices_of_port.items():
        port = functions[address]
        far_end = children.get(address, [])[:1] if _leads_down(port, functions) else _parent(port, functions)
        ends = [port, *far_end]
        speed, width = _link(ends)
        result[address] = ExpectedDevice(
            address, "bridge", f"port above {', '.join(names_above)}", _id(port), speed, width
        )
    return [result[address] for address in sorted(result)]


def of_guest(
    plan: Mapping[str, Any], host: Host, host_name: str, host_devices: Iterable[ExpectedDevice]
) -> list[ExpectedDevice]:
    """Return the passed-through devices of a guest at their addresses in the guest, each with its place on the host.

    ``plan`` is the stored form of the plan (``DomainPlan.to_dict``). The guest sees the device's own link, not that of
    QEMU's ports, so that these are not part of what it must have.
    """
    device_by_address = {device.address: device for device in host_devices}
    functions = host.by_address()
    result = []
    try:
        passed = [(str(item["guest_address"]), str(item["host_address"])) for item in plan["devices"]]
    except (KeyError, TypeError) as error:
        raise ExpectError(
            f"not a plan of a virtual machine: {error!r}", "give the plan that gpu_domain_info returns"
        ) from error
    missing = [address for _guest, address in passed if address not in functions]
    if missing:
        raise ExpectError(
            f"the recording of {host_name} has no device {missing[0]}, which the plan passes through",
            "record the host again (playbooks/record.yml)",
        )
    guests = {guest: functions[address] for guest, address in passed if functions[address].kind in KINDS}
    names = named([replace(function, address=guest) for guest, function in guests.items()])
    # NVIDIA Fabric Manager User Guide, "Shared NVSwitch": a partition of one GPU has no NVLinks.
    gpus = sum(function.kind == "gpu" for function in guests.values())
    for guest, function in sorted(guests.items()):
        device = device_by_address.get(function.address) or _of_vf(function, device_by_address)
        result.append(
            replace(
                device,
                address=guest,
                kind=function.kind,
                name=names[guest],
                device_id=_id(function),
                slot="",  # of the host, and in host_place
                host_place=_host_place(device, function, host_name, functions),
                nvlinks=device.nvlinks if gpus > 1 else None,
            )
        )
    return result


def without_link(devices: Iterable[ExpectedDevice]) -> list[str]:
    """Return the names of devices whose links have an unknown ability, so that no check judges their width or speed.

    A port's link is that of the device behind it, and a virtual function has none of its own.
    """
    return [
        device.name
        for device in devices
        if device.kind in KINDS and not device.host_place and None in (device.link_width, device.link_speed_gt_s)
    ]


def passed_through(plans: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the addresses on the host of what plans of guests (``DomainPlan.to_dict``) pass through to them."""
    return {str(item["host_address"]) for plan in plans for item in plan.get("devices", [])}


def changed(devices: Iterable[ExpectedDevice], settings: Mapping[str, Mapping[str, Any]]) -> list[ExpectedDevice]:
    """Return devices with what people know of them, by kind, name or address: slot, serial number, another width."""
    result, used = [], set()
    for device in devices:
        for key in (device.kind, device.name, device.address):
            if key in settings:
                used.add(key)
                device = replace(device, **settings[key])
        result.append(device)
    for key in settings:
        if key not in used and key not in KINDS:
            names = ", ".join(device.name for device in result if device.kind != "bridge") or "none"
            raise ExpectError(f"the node has no device {key!r}", f"name one by its kind, address or name: {names}")
    return result


def named(functions: Iterable[Function]) -> dict[str, str]:
    """Return what people call the devices, by address: "GPU 4", numbered by address as nvidia-smi does."""
    names, counts = {}, dict.fromkeys(KINDS, 0)
    for item in sorted(functions, key=lambda item: item.address):
        rdma = item.interfaces.get("rdma", [])
        names[item.address] = (
            f"NIC {rdma[0]}" if item.kind == "nic" and rdma else f"{KINDS[item.kind]} {counts[item.kind]}"
        )
        counts[item.kind] += 1
    return names


def _device(item: Function, functions: Mapping[str, Function], name: str, has_switches: bool) -> ExpectedDevice:
    speed, width = _link([item, *_parent(item, functions)])
    nvlinks = NVLINKS.get(_id(item)) if has_switches and item.kind == "gpu" else None
    return ExpectedDevice(item.address, item.kind, name, _id(item), speed, width, nvlinks=nvlinks)


def _of_vf(function: Function, device_by_address: Mapping[str, ExpectedDevice]) -> ExpectedDevice:
    """Return the device of a virtual function, which shows no link of its own (SR-IOV 1.1, 3.5.6)."""
    physical = device_by_address.get(function.physical_function or "")
    if physical is None:
        return ExpectedDevice(function.address, function.kind, function.address)
    return replace(physical, link_speed_gt_s=None, link_width=None)


def _host_place(device: ExpectedDevice, function: Function, host_name: str, functions: Mapping[str, Function]) -> str:
    slot = f"slot {device.slot}" if device.slot else ""
    virtual = f"virtual function {function.address}" if function.physical_function else ""
    port = next((item.address for item in _above(function, functions) if item.port_type in DOWN), "")
    return ", ".join(
        filter(None, (host_name, device.name, device.address, virtual, slot, f"port {port}" if port else ""))
    )


def _above(function: Function, functions: Mapping[str, Function]) -> Iterable[Function]:
    address = function.parent or (functions[function.physical_function].parent if function.physical_function else None)
    while address is not None:
        yield functions[address]
        address = functions[address].parent


def _parent(item: Function, functions: Mapping[str, Function]) -> list[Function]:
    """Return the port at the other end of a device's link; none on a root bus or within a switch."""
    parent = functions.get(item.parent or "")
    return [parent] if parent is not None and _leads_down(parent, functions) else []


def _leads_down(port: Function, functions: Mapping[str, Function]) -> bool:
    """Return True if a port's link leads to what is behind it. From a root port downwards, ports alternate."""
    if port.port_type is not None:
        return port.port_type in DOWN
    parent = functions.get(port.parent or "")
    return port.kind == "bridge" and (parent is None or not _leads_down(parent, functions))


def _children(functions: Iterable[Function]) -> dict[str, list[Function]]:
    children: dict[str, list[Function]] = {}
    for item in functions:
        if item.parent is not None and item.physical_function is None:
            children.setdefault(item.parent, []).append(item)
    return children


def _link(ends: Iterable[Function]) -> tuple[float | None, int | None]:
    """Return speed in GT/s and width in lanes that all ends can do; None if an end does not say."""
    links = [item.link for item in ends]
    speeds = [link.max_speed_gt_s if link else None for link in links]
    widths = [link.max_width if link else None for link in links]
    known_speeds, known_widths = [item for item in speeds if item], [item for item in widths if item]
    return (
        min(known_speeds) if len(known_speeds) == len(speeds) else None,
        min(known_widths) if len(known_widths) == len(widths) else None,
    )


def _id(item: Function) -> str:
    return f"{item.vendor_id:04x}:{item.device_id:04x}"
