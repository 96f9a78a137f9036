# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A virtual machine's configuration as vCenter has it, in the form of ``wanted.py``; and its share of the host.

The arguments are vSphere's VirtualMachineConfigInfo and its parts, read by attribute. Pure.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Holdings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.guest.addresses import way
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.wanted import NODE_AFFINITY, OWNED

SUFFIX = ".pciSlotNumber"
SLOT = re.compile(r"(pciBridge|pciPassthru|ethernet)[0-9]+\.pciSlotNumber")


def type_of(device: Any) -> str:
    """Return the name of an API object's type without its package: "VirtualPCIPassthrough"."""
    return type(device).__name__.rpartition(".")[2]


def is_passed(device: Any) -> bool:
    """Return True for a device of the host: DirectPath, or a virtual function."""
    return type_of(device) in ("VirtualPCIPassthrough", "VirtualSriovEthernetCard")


def is_grouped(device: Any) -> bool:
    """Return True for a device that belongs to a device group."""
    return getattr(device, "deviceGroupInfo", None) is not None


def is_network(device: Any) -> bool:
    """Return True for a virtual network card that is not a function of the host."""
    return hasattr(device, "macAddress") and not is_passed(device)


def is_disk(device: Any) -> bool:
    """Return True for a virtual disk."""
    return type_of(device) == "VirtualDisk"


def read(config: Any, networks: dict[str, str]) -> dict[str, Any]:
    """Return the configuration; ``networks`` are names of distributed port groups by their key."""
    hardware = config.hardware
    numa = getattr(config, "numaInfo", None)
    groups = getattr(config, "deviceGroups", None)
    extra = extra_of(config)
    return {
        "guest_id": config.guestId,
        "hardware_version": config.version,
        "firmware": config.firmware,
        "memory_mib": hardware.memoryMB,
        "vcpus": hardware.numCPU,
        "cores_per_socket": hardware.numCoresPerSocket,
        "threads_per_core": getattr(hardware, "simultaneousThreads", None) or 1,
        "cores_per_numa_node": (numa.coresPerNumaNode or 0) if numa and not numa.autoCoresPerNumaNode else 0,
        "iommu": bool(config.flags and config.flags.vvtdEnabled),
        "memory_reservation_mib": (config.memoryAllocation and config.memoryAllocation.reservation) or 0,
        "memory_locked": bool(config.memoryReservationLockedToMax),
        "cpu_reservation_mhz": (config.cpuAllocation and config.cpuAllocation.reservation) or 0,
        "latency_sensitivity": str(config.latencySensitivity.level) if config.latencySensitivity else "normal",
        "device_group": ",".join(
            item.deviceGroupName
            for item in (groups.deviceGroup or [] if groups else [])
            if hasattr(item, "deviceGroupName")
        ),
        "extra": {key: value for key, value in extra.items() if key in OWNED},
        "devices": sorted(
            (device_row(device) for device in hardware.device if is_passed(device) and not is_grouped(device)),
            key=lambda device: (
                device["type"],
                device["id"],
                -1 if device["numa_node"] is None else device["numa_node"],
            ),
        ),
        "networks": [network_of(device, networks) for device in hardware.device if is_network(device)],
        "disks_mib": [device.capacityInKB // 1024 for device in hardware.device if is_disk(device)],
    }


def extra_of(config: Any) -> dict[str, str]:
    """Return extraConfig by key."""
    return {item.key: str(item.value) for item in config.extraConfig or []}


def address_of(device: Any) -> str | None:
    """Return the host's address of a passed-through device; None for a dynamic one that is not assigned."""
    if type_of(device) == "VirtualSriovEthernetCard":
        backing = device.sriovBacking and device.sriovBacking.virtualFunctionBacking
        return backing.id if backing else None
    return getattr(device.backing, "id", None) or getattr(device.backing, "assignedId", None)


def device_row(device: Any) -> dict[str, Any]:
    """Return a passed-through device as wanted.py has it."""
    node = getattr(device, "numaNode", None)
    # ESXi reports -1 for "no node" (VirtualDevice.numaNode).
    row = {
        "type": "fixed",
        "id": address_of(device) or "",
        "numa_node": node if node is not None and node >= 0 else None,
    }
    if type_of(device) == "VirtualSriovEthernetCard":
        row["type"] = "sriov"
    elif hasattr(device.backing, "allowedDevice"):
        allowed = device.backing.allowedDevice or []
        row["type"] = "dynamic"
        row["id"] = ",".join(f"{item.vendorId & 0xFFFF:04x}:{item.deviceId & 0xFFFF:04x}" for item in allowed)
    return row


def network_of(device: Any, networks: dict[str, str]) -> str:
    """Return the name of the port group of a network card; ``networks`` are names of distributed ones by key."""
    port = getattr(device.backing, "port", None)
    if port is not None:
        return networks.get(port.portgroupKey, port.portgroupKey)
    return getattr(device.backing, "deviceName", None) or ""


def ways(config: Any) -> dict[str, list[str]]:
    """Return the way to each passed-through device in the guest by its host address (guest/addresses.py).

    It has only devices whose slot number ESXi has set, at the first start. pciPassthruN and ethernetN number the
    devices of their kind in the order of their keys.
    """
    extra = extra_of(config)
    numbers = {name: int(text) for name, text in extra.items() if SLOT.fullmatch(name) and text.isdecimal()}
    bridges = {int(name[len("pciBridge") : -len(SUFFIX)]): slot for name, slot in numbers.items() if "Bridge" in name}
    every = sorted(config.hardware.device, key=lambda device: device.key)
    passed = [device for device in every if type_of(device) == "VirtualPCIPassthrough"]
    cards = [device for device in every if hasattr(device, "macAddress")]
    steps_by_address = {}
    for kind, devices in (("pciPassthru", passed), ("ethernet", cards)):
        for number, device in enumerate(devices):
            address, slot = address_of(device), numbers.get(f"{kind}{number}{SUFFIX}")
            if is_passed(device) and address and slot is not None:
                steps = way(slot, bridges)
                if steps is not None:
                    steps_by_address[address] = steps
    return steps_by_address


def holdings(configs: dict[str, Any], host: Host) -> dict[str, Holdings]:
    """Return the resources that each virtual machine holds: devices, memory on the nodes of its affinity, CPUs.

    ESXi does not report which CPUs run a virtual machine. One with high latency sensitivity has as many CPUs of its
    nodes to itself as it has vCPUs: here they are taken from the end of each node, one virtual machine after the other.
    """
    holdings_of: dict[str, Holdings] = {}
    free = {node.id: sorted(node.cpus) for node in host.numa_nodes}
    for name, config in sorted(configs.items()):
        passed = [item for item in config.hardware.device if is_passed(item)]
        machine_holdings = Holdings(devices=sorted(filter(None, map(address_of, passed))), page_mib=None)
        affinity = extra_of(config).get(NODE_AFFINITY, "").replace(" ", "").split(",")
        nodes = [node.id for node in host.numa_nodes if str(node.id) in affinity]
        machine_holdings.memory_mib = {node: config.hardware.memoryMB // len(nodes) for node in nodes}
        if nodes and config.latencySensitivity and str(config.latencySensitivity.level) == "high":
            share = config.hardware.numCPU // len(nodes)
            for node in nodes:
                remaining = max(len(free[node]) - share, 0)
                machine_holdings.cpus += free[node][remaining:]
                free[node] = free[node][:remaining]
            machine_holdings.cpus.sort()
        holdings_of[name] = machine_holdings
    return holdings_of
