# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The checks for everything that is known to fail in vCenter, before anything is sent. Pure.

vCenter refuses some of it only when a virtual machine starts, and silently accepts some of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import GIB, MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.placement import Placement
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import WARN, Finding
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import NOT_ON_VSPHERE, DomainSpec
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import bars, versions
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.request import VsphereRequest


def of_request(
    request: VsphereRequest, placement: Placement, wanted: dict[str, Any], esxi: str, host: Host
) -> Iterator[Finding]:
    """Yield the findings on one virtual machine on a host with ESXi release ``esxi``."""
    name, spec, settings = request.name, request.spec, request.vsphere
    for option in fields(DomainSpec):
        reason = option.metadata.get(NOT_ON_VSPHERE)
        if reason and getattr(spec, option.name) != option.default:
            yield Finding(name, f"{option.name} has no effect on vSphere", reason, "leave it out", WARN)
    newest = versions.newest_hardware(esxi)
    if versions.hardware(wanted["hardware_version"]) > versions.hardware(newest):
        yield Finding(
            name,
            f"virtual hardware {wanted['hardware_version']} is newer than ESXi {esxi} supports",
            f"its newest is {newest}",
            f"set vsphere.hardware_version: {newest} or older",
        )
    unknown_bars = bars.unknown(placement.chosen.gpus)
    if unknown_bars and not spec.mmio_window_mib:
        yield Finding(
            name,
            f"the BARs of {', '.join(unknown_bars)} are not known",
            "vSphere's API does not report them, and the collection's table has no such GPU: the MMIO space cannot be "
            "sized",
            "set mmio_window_mib: the power of two above the sum of their memory",
        )
    if placement.chosen.gpus and spec.firmware != "efi":
        yield Finding(
            name,
            "firmware bios with GPUs",
            "vSphere maps BARs above 4 GiB with EFI only",
            "set firmware: efi",
        )
    for item in placement.chosen.all():
        state = item.passthrough
        if item.physical_function is None and state is not None and not state.active:
            activation = "it becomes active with the host's next boot" if state.enabled else "it is not enabled"
            yield Finding(
                name,
                f"{item.kind} {item.address} is not active for passthrough",
                activation,
                "enable it (vsphere_host_passthrough)",
            )
    if any(device["type"] == "sriov" for device in wanted["devices"]) and not settings.sriov_network:
        yield Finding(
            name,
            "virtual functions without vsphere.sriov_network",
            "vSphere attaches a virtual function to a port group of its NIC's switch",
            "name the port group",
        )
    if wanted["latency_sensitivity"] == "high" and wanted["memory_reservation_mib"] < wanted["memory_mib"]:
        yield Finding(
            name,
            "latency sensitivity high without all memory reserved",
            "ESXi gives exclusive CPUs only with it",
            "set lock_memory: true",
        )
    if any(item.kind == "nvswitch" for item in host.functions) and placement.chosen.gpus:
        yield Finding(
            name,
            "its host has NVSwitches",
            "NVIDIA AI Enterprise lists passthrough on NVSwitch systems as unsupported on vSphere",
            "ask NVIDIA before you rely on it",
            WARN,
        )


def of_host(
    name: str,
    host: Host,
    cpu_mhz: int,
    wanted: dict[str, dict[str, Any]],
    other_machines: dict[str, dict[str, Any]],
    of_nodes: dict[int, int],
) -> Iterator[Finding]:
    """Yield findings on reservations that the host cannot meet.

    ``wanted`` are the configurations of its virtual machines in the request, ``other_machines`` those of running ones
    that are not in the request (read_back.read), ``of_nodes`` is the memory that others hold by NUMA node, in MiB.
    """
    every = {**other_machines, **wanted}
    memory_mib = sum(node.memory_bytes for node in host.numa_nodes) // MIB
    reserved_mib = sum(row["memory_reservation_mib"] for row in every.values())
    if reserved_mib > memory_mib:
        yield Finding(
            ", ".join(sorted(wanted)),
            f"{reserved_mib} MiB of memory are reserved on {name}, which has {memory_mib} MiB",
            "ESXi does not start a virtual machine whose reservation it cannot keep",
            "give them less memory, or another host",
        )
    capacity = sum(len(node.siblings or node.cpus) for node in host.numa_nodes) * cpu_mhz
    mhz = sum(row["cpu_reservation_mhz"] for row in every.values())
    if mhz > capacity:
        yield Finding(
            ", ".join(sorted(wanted)),
            f"{mhz} MHz are reserved on {name}, which has {capacity} MHz",
            "latency sensitivity high reserves every core of a virtual machine",
            "give them fewer vCPUs, or another host",
        )
    used = dict(of_nodes)
    for row in wanted.values():
        affinity = [int(node) for node in row["extra"].get("numa.nodeAffinity", "").split(",") if node]
        for number in affinity:
            used[number] = used.get(number, 0) + row["memory_reservation_mib"] // len(affinity)
    for node in host.numa_nodes:
        node_mib = node.memory_bytes // MIB
        if used.get(node.id, 0) > node_mib:
            yield Finding(
                ", ".join(sorted(wanted)),
                f"{used[node.id]} MiB are planned on NUMA node {node.id} of {name}, which has {node_mib} MiB",
                "memory beyond it comes from another node",
                "give them less memory, or other nodes (numa_nodes)",
            )


def of_datastores(disks_mib: dict[str, int], free_bytes: dict[str, int]) -> Iterator[Finding]:
    """Yield findings on datastores with less free space than the new disks (MiB by datastore) can grow to."""
    for name, size_mib in sorted(disks_mib.items()):
        if size_mib * MIB > free_bytes.get(name, 0):
            yield Finding(
                "",
                f"the new disks can grow to {size_mib // 1024} GiB in datastore {name}, which has "
                f"{free_bytes.get(name, 0) // GIB} GiB",
                "guests stop when a datastore is full",
                "choose another datastore, or smaller disks",
            )
