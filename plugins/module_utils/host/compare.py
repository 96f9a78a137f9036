# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare a host with all settings of gpu_host, by running the code that sets them in check mode."""

from __future__ import annotations

from typing import Any, Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.given.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.host import bios_settings, packages
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import now_and_at_boot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.concerns import read_topology
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import nic_firmware
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import kernel_arguments

# By module ("packages" stands for tasks of the role): the comparison, and the paths of the facts that the role shows to
# the user.
PARTS: dict[str, Callable[[System, dict[str, Any]], Outcome]] = {
    "packages": packages.observe,
    "bios_info": lambda system, data: bios_settings.observe(system, read_topology(system), data["required"]),
    "kernel_arguments": lambda system, data: kernel_arguments.ensure(system, data, check=True),
    "nic_firmware": lambda system, data: nic_firmware.ensure(system, read_topology(system), data, check=True),
    "gpu_host_boot": lambda system, data: now_and_at_boot.ensure(system, data, check=True),
}
SHOWN: dict[str, list[tuple[str, ...]]] = {
    "kernel_arguments": [("acs", "not_taken"), ("drivers_off", "reasons")],
    "nic_firmware": [("unknown",)],
    "gpu_host_boot": [
        ("outcomes", "pci_tuning", "acs_by_port", "unmet"),
        ("outcomes", "kernel_settings", "also_set_by"),
        ("outcomes", "vfio_binding", "reset_failures"),
    ],
}


def options() -> dict[str, dict[str, Any]]:
    """Return the options of each part as an argument_spec."""
    return {
        "packages": packages.options(),
        "bios_info": bios_settings.options(),
        "kernel_arguments": kernel_arguments.options(),
        "nic_firmware": nic_firmware.options(),
        "gpu_host_boot": now_and_at_boot.options(),
    }


def differences(name: str, system: System, given: dict[str, Any]) -> list[str]:
    """Return the reasons why a part of PARTS must run, one line each; empty if it would change and report nothing.

    ``given``: its arguments, checked by ``options``. A part that cannot be read counts as different.
    """
    try:
        outcome = PARTS[name](system, given)
    except SailloftError as error:
        return [str(error)]
    found = [*outcome.after, *outcome.pending, *([outcome.failed] if outcome.failed else [])]
    found += [f"{' '.join(path)}: {value}" for path in SHOWN.get(name, []) if (value := _at(outcome.facts, path))]
    if outcome.facts.get("reboot_required") and not outcome.pending:
        found.append("a reboot is required")
    return found


def _at(facts: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path of keys, None if there is none."""
    for key in path:
        facts = facts.get(key) if isinstance(facts, dict) else None
    return facts
