# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Make what a node must have: from its recording, its plan, the inventory and its first day's measurements. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect import devices, ports, settings
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect.errors import ExpectError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    BARE_METAL,
    GUEST,
    HYPERVISOR,
    IMAGE,
    Expected,
    ExpectedDevice,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host

MIB = 1 << 20
# What the inventory says of a device beside its recording.
DEVICE = {
    "slot": values.text,
    "serial_place": values.text,
    "link_width": values.within(1, 32),
    "link_speed_gt_s": lambda value: values.number(value, 2.5, 128),
    "nvlinks": values.within(0, 64),
}
TEXTS = ("versions", "gpu_settings")
# The versions that only a node with the GPUs' driver has.
GPU_VERSIONS = ("nvidia_driver", "vbios")


def make(
    host_name: str,
    machine: str,
    host: Host | None,
    data: Mapping[str, Any],
    checks: Mapping[str, Any],
    plan: Mapping[str, Any] | None = None,
    hypervisor: str = "",
    accepted: Mapping[str, float] | None = None,
    guest_plans: Sequence[Mapping[str, Any]] = (),
) -> Expected:
    """Return what the node must have. Raises ExpectError.

    ``host`` is the recording of the machine; for a guest of its hypervisor, whose name is ``hypervisor``; for an image
    of any node that boots it, or None. ``data``: the inventory's ports, checks, devices, versions, gpu_settings,
    mounts and units. ``checks``: the known checks. ``guest_plans``: of a hypervisor's guests, which have
    the ports of the NICs that are passed through to them.
    """

    def refusal(subject: str, cause: str, remedy: str) -> ExpectError:
        return ExpectError(
            f"{host_name}: node_health_{subject}: {cause}" if subject else f"{host_name}: {cause}", remedy
        )

    inventory = Settings(refusal, "", data)
    try:
        listed = _devices(machine, host, _people(inventory.part("devices")), plan, hypervisor)
        nics = [] if machine == GUEST or host is None else [item for item in host.functions if item.kind == "nic"]
        port_list = ports.read(inventory.data.get("ports", {}), nics, devices.passed_through(guest_plans))
        setting_list = settings.read(inventory.data.get("checks", {}), checks)
    except ExpectError as error:
        cause = error.cause if error.cause.startswith(f"{host_name}: ") else f"{host_name}: {error.cause}"
        raise ExpectError(cause, error.remedy) from error
    texts = {name: _texts(inventory.part(name)) for name in TEXTS}
    if machine == HYPERVISOR:
        texts["versions"] = {
            name: value for name, value in texts["versions"].items() if name.partition(" ")[0] not in GPU_VERSIONS
        }
    runs_gpus = machine != HYPERVISOR and any(device.kind == "gpu" for device in listed)
    return Expected(
        host="" if machine == IMAGE else host_name,
        devices=tuple(listed),
        ports=tuple(port_list),
        memory_bytes=_memory(machine, host, plan),
        processors=_processors(machine, host, plan),
        versions=texts["versions"],
        gpu_settings=texts["gpu_settings"] if runs_gpus else {},
        accepted=dict(accepted or {}),
        mounts=tuple(inventory.value("mounts", values.texts, [])),
        units=tuple(inventory.value("units", values.texts, [])),
        needs_fabric_manager=machine in (BARE_METAL, IMAGE) and _has_nvswitches(host),
        settings=setting_list,
        machine=machine,
    )


def _devices(
    machine: str,
    host: Host | None,
    people: Mapping[str, Mapping[str, Any]],
    plan: Mapping[str, Any] | None,
    hypervisor: str,
) -> list[ExpectedDevice]:
    if host is None:
        if machine == IMAGE:
            return []
        name = f"its hypervisor {hypervisor}" if machine == GUEST else "it"
        raise ExpectError(
            f"{name} has no recording, so that it is not known what the node must have",
            "record it on its first day: playbooks/record.yml",
        )
    listed = devices.of_host(host)
    if machine != GUEST:
        return devices.changed(listed, people)
    if plan is None:
        raise ExpectError(
            "it has no plan, so that it is not known which devices it has", "run playbooks/node_health.yml"
        )
    return devices.of_guest(plan, host, hypervisor, devices.changed(listed, people))


def _people(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return what the inventory says of devices, by kind, name or address."""
    people = {}
    for key in settings.data:
        part = settings.part(key)
        part.only(*DEVICE)
        people[key] = {name: part.value(name, check) for name, check in DEVICE.items() if name in part.data}
    return people


def _texts(part: Settings) -> dict[str, str]:
    return {name: part.required(name, values.text) for name in sorted(part.data)}


def _has_nvswitches(host: Host | None) -> bool:
    return host is not None and any(
        item.kind in ("nvswitch", "nvswitch_management") or item.manages_nvswitches for item in host.functions
    )


def _memory(machine: str, host: Host | None, plan: Mapping[str, Any] | None) -> int | None:
    if machine == GUEST:
        return int(plan["memory_mib"]) * MIB if plan and "memory_mib" in plan else None
    return sum(node.memory_bytes for node in host.numa_nodes) or None if host else None


def _processors(machine: str, host: Host | None, plan: Mapping[str, Any] | None) -> int | None:
    if machine == GUEST:
        return int(plan["vcpus"]) if plan and "vcpus" in plan else None
    return sum(len(node.cpus) for node in host.numa_nodes) or None if host else None
