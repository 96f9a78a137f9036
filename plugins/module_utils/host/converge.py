# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring a host to its whole wanted state, or compare it in check mode, by the code of the single modules.

Packages and reboots are the caller's: if packages are missing, nothing else is done. If a reboot is due, the settings
that it loses are left to the call after it.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host import bios_settings, concerns, packages, wanted
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import now_and_at_boot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import nic_firmware
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import kernel_arguments
from ansible_collections.sailloft.fleet.plugins.module_utils.host.undo import restore
from ansible_collections.sailloft.fleet.plugins.module_utils.host.undo.record import Remembering

# The facts of the parts that the user must see, even if nothing differs.
NOTES: tuple[tuple[str, ...], ...] = (
    ("kernel_arguments", "acs", "not_taken"),
    ("kernel_arguments", "drivers_off", "reasons"),
    ("nic_firmware", "unknown"),
    ("settings", "outcomes", "pci_tuning", "acs_by_port", "unmet"),
    ("settings", "outcomes", "kernel_settings", "also_set_by"),
    ("settings", "outcomes", "vfio_binding", "reset_failures"),
)


def ensure(system: System, host: dict[str, Any], check: bool = False) -> Outcome:
    """Make ``host``, checked by ``wanted.options``, the state of the system. Raises HostError.

    Facts: ``missing`` (packages and sockets), ``notes``, ``failures`` (of firmware and settings; all others are made),
    ``reboot_required``, ``reboot_due`` (the caller reboots, then calls again) and, if requested, ``outcomes`` by part.
    """
    if host["state"] == "absent":
        return _absent(system, host, check)
    parts = host["parts"]
    lost_at_reboot = wanted.settings(host)
    now_and_at_boot.check_form(lost_at_reboot)
    if "bios" in parts or "nic_firmware" in parts:
        topology = concerns.read_topology(system)
    if "nic_firmware" in parts:
        nic_firmware.wanted(wanted.nic_firmware(host), topology)
    if "bios" in parts:
        bios_settings.observe(system, topology, host["bios_required"])
    missing = _missing(system, host) if "packages" in parts else []
    if missing:
        return Outcome(facts=_facts(missing=missing))
    noting = Remembering(system)
    done: dict[str, Outcome] = {}
    if "kernel_arguments" in parts:
        done["kernel_arguments"] = kernel_arguments.ensure(noting, wanted.kernel_arguments(host), check)
    if "nic_firmware" in parts:
        done["nic_firmware"] = nic_firmware.ensure(noting, topology, wanted.nic_firmware(host), check)
    reboot_required = any(outcome.facts["reboot_required"] for outcome in done.values())
    reboot_due = reboot_required and host["reboot_ok"]
    if "settings" in parts and not reboot_due:
        done["settings"] = now_and_at_boot.ensure(noting, lost_at_reboot, check)
        reboot_required = reboot_required or bool(done["settings"].pending)
    facts = {part: outcome.facts for part, outcome in done.items()}
    whole = Outcome()
    for outcome in done.values():
        whole = whole.and_then(outcome)
    whole.facts = _facts(
        notes=[line for path in NOTES for line in _lines(facts, path)],
        failures=[line for outcome in done.values() for line in outcome.facts.get("failures", [])],
        reboot_required=reboot_required,
        reboot_due=reboot_due,
    )
    if host["outcomes"]:
        whole.facts["outcomes"] = {part: outcome.to_result() for part, outcome in done.items()}
    return whole


def _facts(**given: Any) -> dict[str, Any]:
    return {"missing": [], "notes": [], "failures": [], "reboot_required": False, "reboot_due": False, **given}


def _absent(system: System, host: dict[str, Any], check: bool) -> Outcome:
    if not host["now"]:
        raise RequestError("gpu_host_state: absent is for hosts", "build the image again without the role instead")
    done = restore.ensure(system, check)
    done.facts = _facts(**done.facts)
    return done


def _missing(system: System, host: dict[str, Any]) -> list[str]:
    """Return the packages and sockets that are not as wanted; the error if that cannot be read."""
    try:
        return list(packages.observe(system, {"installed": host["packages"], "sockets": host["sockets"]}).after)
    except HostError as error:
        return [str(error)]


def _lines(facts: Any, path: tuple[str, ...]) -> list[str]:
    """Return the lines at a path of keys; a line for each value if they are by device."""
    for key in path:
        facts = facts.get(key) if isinstance(facts, dict) else None
    if isinstance(facts, dict):
        return [f"{device}: {value}" for device, value in sorted(facts.items())]
    return list(facts or [])


def is_held(done: Outcome) -> bool:
    """Return True if ``done`` has neither a change nor anything to report."""
    return not (done.changed or done.pending or done.failed or any(done.facts.values()))
