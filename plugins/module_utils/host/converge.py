# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring a host to its whole wanted state, or compare it in check mode, by the code of the single modules.

Packages and reboots are the caller's: if packages are missing, nothing else is done. If a reboot is due, the settings
that it loses are left to the call after it.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host import (
    bios_settings,
    concerns,
    packages,
    wanted,
    whole_host,
)
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
    observed = concerns.ConcernPass(system, check)
    host = whole_host.completed(host, lambda: observed.host)
    # Mistakes in the request are found before the first change.
    now_and_at_boot.check_form(wanted.settings(host))
    if "nic_firmware" in parts:
        nic_firmware.wanted(wanted.nic_firmware(host), observed.host)
    if "bios" in parts:
        bios_settings.observe(system, observed.host, host["bios_required"])
    missing = _missing(system, host) if "packages" in parts else []
    if missing:
        return Outcome(facts=_facts(missing=missing))
    recording = Remembering(system)
    outcomes: dict[str, Outcome] = {}
    if "kernel_arguments" in parts:
        outcomes["kernel_arguments"] = kernel_arguments.ensure(recording, wanted.kernel_arguments(host), check)
    if "nic_firmware" in parts:
        outcomes["nic_firmware"] = nic_firmware.ensure(recording, observed.host, wanted.nic_firmware(host), check)
    reboot_required = any(outcome.facts["reboot_required"] for outcome in outcomes.values())
    reboot_due = reboot_required and host["reboot_ok"]
    if "settings" in parts and not reboot_due:
        outcomes["settings"] = now_and_at_boot.ensure(recording, wanted.settings(host), check)
        reboot_required = reboot_required or bool(outcomes["settings"].pending)
    total = Outcome()
    for outcome in outcomes.values():
        total = total.and_then(outcome)
    facts = {part: outcome.facts for part, outcome in outcomes.items()}
    total.facts = _facts(
        notes=[line for path in NOTES for line in _lines(facts, path)],
        failures=[line for outcome in outcomes.values() for line in outcome.facts.get("failures", [])],
        reboot_required=reboot_required,
        reboot_due=reboot_due,
    )
    if host["outcomes"]:
        total.facts["outcomes"] = {part: outcome.to_result() for part, outcome in outcomes.items()}
    return total


def _facts(**facts: Any) -> dict[str, Any]:
    return {"missing": [], "notes": [], "failures": [], "reboot_required": False, "reboot_due": False, **facts}


def _absent(system: System, host: dict[str, Any], check: bool) -> Outcome:
    if not host["now"]:
        raise RequestError("gpu_host_state: absent is for hosts", "build the image again without the role instead")
    outcome = restore.ensure(system, check)
    outcome.facts = _facts(**outcome.facts)
    return outcome


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


def is_held(outcome: Outcome) -> bool:
    """Return True if ``outcome`` has neither a change nor anything to report."""
    return not (outcome.changed or outcome.pending or outcome.failed or any(outcome.facts.values()))
