# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel arguments: in the boot loader's files, in its generated configuration, and in the running kernel.

All three places are checked, so that a run that was killed between two of them is completed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.host import hugepages
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import acs_ports, vfio_binding
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import (
    acs_argument,
    avic,
    boot_loader,
    vfio_consoles,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import kernel_command_line as command_line
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import host_drivers
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import PURPOSES
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.sysfs import read_host

# The argument that turns the IOMMU on, by the vendor of the CPU; the IOMMUs of AMD and Arm are on by default.
# Source: Linux Documentation/admin-guide/kernel-parameters.txt, intel_iommu=, amd_iommu=, iommu=.
IOMMU_ON = {"GenuineIntel": ["intel_iommu=on"]}
# The default domain of host devices: "pt" maps addresses one to one, so that the IOMMU costs the host nothing.
IOMMU_MODES = {"passthrough": ["iommu=pt"], "translated": ["iommu=nopt"]}
# mstconfig's ways to write that a NIC offers ATS; 1 equals True.
ATS_ON = (True, "1", "True", "true")


def options() -> dict[str, Any]:
    """Return the options of the module as an argument_spec."""
    page = {
        "node": {"type": "int", "required": True},
        "size_mib": {"type": "int", "required": True},
        "count": {"type": "int", "required": True},
    }
    return {
        "iommu": {"type": "str", "choices": list(IOMMU_MODES)},
        "pages": {"type": "list", "elements": "dict", "default": [], "options": page},
        "arguments": {"type": "list", "elements": "str", "default": []},
        "remove": {"type": "list", "elements": "str", "default": []},
        "avic": {"type": "bool"},
        "acs_by_port": {
            "type": "dict",
            "options": {
                "devices": {"type": "list", "elements": "str", "required": True},
                "purpose": {"type": "str", "choices": list(PURPOSES), "required": True},
            },
        },
        "vfio_binding": {"type": "dict"},
        "nic_firmware": {"type": "list", "elements": "dict", "default": []},
    }


def for_iommu(mode: str | None, vendor: str | None) -> list[str]:
    """Return the arguments for an IOMMU mode of IOMMU_MODES on the IOMMU of a vendor (a key of IOMMU_ON)."""
    if mode is None:
        return []
    return IOMMU_ON.get(vendor or "", []) + IOMMU_MODES[mode]


def for_any_host(data: Any) -> list[str]:
    """Return the arguments for ``ensure``'s data if no host was read, as for an image. Raises HostError.

    They include each vendor's argument that turns its IOMMU on, because a kernel without that IOMMU ignores it.
    """
    request = _read(data)
    every = [argument for arguments in IOMMU_ON.values() for argument in arguments]
    iommu = every + for_iommu(_iommu(request), None) if _iommu(request) else []
    off = vfio_binding.kept_off_on_any_host(request.data["vfio_binding"]) if request.data.get("vfio_binding") else []
    return command_line.checked(_with_modules_off(_complete(request, iommu), off), [])[0]


def for_pages(pages: dict[hugepages.Pool, int]) -> list[str]:
    """Return the arguments that reserve huge pages by node, the largest size first and as default.

    ``hugepages=0:200,1:200`` needs Linux 5.16 (or a kernel with commit b5389086ad7b).
    """
    sizes = sorted({pool.size_mib for pool, count in pages.items() if count}, reverse=True)
    arguments = []
    for size in sizes:
        word = f"{size // 1024}G" if size % 1024 == 0 else f"{size}M"
        counts = ",".join(
            f"{pool.node}:{pages[pool]}" for pool in sorted(pages) if pool.size_mib == size and pages[pool]
        )
        arguments += [f"default_hugepagesz={word}"] * (size == sizes[0]) + [f"hugepagesz={word}", f"hugepages={counts}"]
    return arguments


def wanted(
    system: System,
    data: Any,
    acs: acs_argument.AcsDecision = acs_argument.NOT_NEEDED,
    modules_off: Sequence[str] = (),
    further: Sequence[str] = (),
) -> tuple[list[str], list[str]]:
    """Return the arguments and the names to remove, from ``ensure``'s data. Raises HostError."""
    request = _read(data)
    first = for_iommu(_iommu(request), iommu_vendor(system))
    if not avic.unsupported_reason(system):
        first += _avic(request)
    arguments = _with_modules_off(_complete(request, first), modules_off)
    arguments += [argument for argument in further if argument not in arguments]
    if acs.argument:
        arguments.append(acs.argument)
    return command_line.checked(arguments, request.value("remove", values.texts, []))


def _with_modules_off(arguments: list[str], modules: Sequence[str]) -> list[str]:
    """Return the arguments with one module_blacklist= for ``modules`` and those by hand: the kernel uses only one."""
    if not modules:
        return arguments
    by_hand = [argument for argument in arguments if argument.startswith(host_drivers.ARGUMENT)]
    names = [name for argument in by_hand for name in argument[len(host_drivers.ARGUMENT) :].split(",")]
    computed = [argument for argument in arguments if argument not in by_hand]
    return [*computed, host_drivers.ARGUMENT + ",".join(dict.fromkeys([*names, *modules]))]


def _acs(request: Settings, host: Host | None, running: str) -> acs_argument.AcsDecision:
    """Decide about the ACS argument; it is not needed if ``request`` does not request it, or sets it by hand."""
    by_hand = any(argument.startswith(acs_argument.PREFIX) for argument in request.value("arguments", values.texts, []))
    if host is None or not request.data.get("acs_by_port") or by_hand:
        return acs_argument.NOT_NEEDED
    plan = acs_ports.wanted(request.part("acs_by_port"), host)
    return acs_argument.decide(plan, running) if plan else acs_argument.NOT_NEEDED


def _uses(request: Settings, host: Host | None) -> set[str]:
    """Return what the settings need of the kernel: names in kernel_command_line.CONTRADICTIONS."""
    mode, binding = _iommu(request), request.data.get("vfio_binding")
    uses = {mode, "iommu"} if mode else set()
    if binding and binding.get("devices"):
        uses |= {"iommu", "vfio"}
    if any(pool.node for pool in hugepages.wanted({"pages": request.data.get("pages") or []})):
        uses.add("nodes")
    firmware = [entry.value("values", values.by_name, {}) for entry in request.parts("nic_firmware")]
    if any(wanted.get("ATS_ENABLED") in ATS_ON for wanted in firmware):
        uses.add("ats")
    if host is not None and request.data.get("acs_by_port"):
        plan = acs_ports.wanted(
            Settings(RequestError, "kernel_arguments.acs_by_port", request.data["acs_by_port"]), host
        )
        if plan and plan.needs_ats():
            uses.add("ats")
    return {use for use in uses if use}


def _host(system: System, request: Settings) -> Host | None:
    """Return the host if an argument is computed from its topology. Raises HostError."""
    if not request.data.get("acs_by_port") and not request.data.get("vfio_binding"):
        return None
    try:
        return read_host(system.root)
    except TopologyError as error:
        raise HostError.of(error) from error


def _read(data: Any) -> Settings:
    request = Settings(RequestError, "kernel_arguments", data)
    request.only("arguments", "remove", "iommu", "pages", "avic", "acs_by_port", "vfio_binding", "nic_firmware")
    return request


def _iommu(request: Settings) -> str | None:
    return request.value("iommu", values.among(*IOMMU_MODES))


def _avic(request: Settings) -> list[str]:
    wanted = request.value("avic", values.flag)
    return [] if wanted is None else [avic.argument(wanted)]


def _complete(request: Settings, arguments: list[str]) -> list[str]:
    """Return all arguments of ``request`` after the computed ``arguments``. Raises HostError."""
    if request.data.get("pages"):
        arguments = arguments + for_pages(hugepages.wanted({"pages": request.data["pages"]}))
    arguments = arguments + request.value("arguments", values.texts, [])
    for name in ("intel_iommu", "iommu", "kvm_amd.avic"):
        same_name = [argument for argument in arguments if command_line.key(argument) == name]
        if len(same_name) > 1:
            raise HostError(f"kernel_arguments: {' and '.join(same_name)} contradict each other", "leave one out")
    return arguments


def ensure(system: System, data: Any, check: bool = False) -> Outcome:
    """Make the next boot have exactly the requested arguments for each of their keys.

    ``{"iommu": "passthrough", "pages": [...], "arguments": ["pci=realloc"], "remove": ["quiet"]}``, all optional;
    ``pages`` as in hugepages, ``avic`` as in kernel_settings, ``acs_by_port`` as in pci_tuning, ``vfio_binding`` as
    there, ``nic_firmware`` the settings of nic_firmware. ``reboot_required`` in the facts is True if the running kernel
    was started with other arguments. Raises HostError.
    """
    running = system.read("/proc/cmdline")
    if running is None:
        raise HostError("kernel_arguments: there is no /proc/cmdline to compare with", "mount /proc")
    request = _read(data)
    host = _host(system, request)
    acs = _acs(request, host, running)
    off: list[str] = []
    may_load: list[str] = []
    consoles: list[str] = []
    if host is not None and request.data.get("vfio_binding"):
        off, may_load = vfio_binding.kept_off(request.data["vfio_binding"], host)
        consoles = vfio_consoles.arguments(system, host, request.data["vfio_binding"])
    arguments, remove = wanted(system, data, acs, off, consoles)
    loader = boot_loader.find(system, needed=bool(arguments or remove))
    outcome = Outcome(
        facts={
            "boot_loader": loader.name if loader else None,
            "arguments": arguments,
            "running": command_line.split(running),
            "reboot_required": not command_line.in_effect(running, arguments, remove),
            "acs": acs.to_dict(),
            "drivers_off": {"modules": off, "reasons": may_load},
        }
    )
    uses = _uses(request, host)
    prefix = " ".join(argument for argument in command_line.split(running) if argument.startswith("BOOT_IMAGE="))
    for line in (loader.lines(system) if loader else []) or [running[len(prefix) :]]:
        command_line.check_line(line, arguments, remove, uses, prefix)
    if loader is None:
        return outcome
    files = loader.files(system, arguments, remove)
    for path, content in files.items():
        old_content = system.read_bytes(path)
        if old_content != content.encode():
            outcome.differ(path, None if old_content is None else old_content.decode(errors="replace"), content)
    stale = loader.stale(system, arguments, remove)
    if stale:
        outcome.differ("generated configuration", "without the arguments", "with the arguments")
    if outcome.facts["reboot_required"]:
        outcome.pending.append(f"the running kernel {command_line.differences(running, arguments, remove)}: reboot")
    if check or not outcome.changed:
        return outcome
    for path in outcome.after:
        if path in files:
            system.replace(path, files[path].encode())
    loader.generate(system)
    if loader.stale(system, arguments, remove):
        raise HostError(
            "kernel_arguments: update-grub ran, but an entry of the generated configuration is without "
            f"{' '.join(arguments)}",
            "look for a later file in /etc/default/grub.d that sets GRUB_CMDLINE_LINUX",
        )
    return outcome


def iommu_vendor(system: System) -> str | None:
    """Return the IOMMU's vendor from the firmware's tables (a VM may mix CPU and IOMMU), else the CPU's vendor."""
    for table, vendor in (("DMAR", "GenuineIntel"), ("IVRS", "AuthenticAMD")):
        if system.exists(f"/sys/firmware/acpi/tables/{table}"):
            return vendor
    match = re.search(r"^vendor_id\s*: (\S+)", system.read("/proc/cpuinfo") or "", re.MULTILINE)
    return match[1] if match else None
