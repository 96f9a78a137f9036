# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel arguments: in the boot loader's files, in its generated configuration, and in the running kernel.

These are three places, and each is looked at, so that a run that was killed between two of them is completed.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host import boot_loader, wishes
from ansible_collections.sailloft.fleet.plugins.module_utils.host import kernel_command_line as command_line
from ansible_collections.sailloft.fleet.plugins.module_utils.host.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.system import System


def ensure(system: System, data: Any, check: bool = False) -> Outcome:
    """``{"arguments": ["iommu=pt"], "remove": ["quiet"]}``: at the next boot the kernel has just these of their keys.

    ``reboot_required`` in the facts says whether the running kernel was started otherwise. Raises HostError.
    """
    given = wishes.record(data, "kernel_arguments", {"arguments": list}, {"remove": list})
    arguments, remove = command_line.checked(
        wishes.strings(given["arguments"], "kernel_arguments.arguments"),
        wishes.strings(given.get("remove", []), "kernel_arguments.remove"),
    )
    running = system.read("/proc/cmdline")
    if running is None:
        raise HostError("kernel_arguments: there is no /proc/cmdline to compare with")
    loader = boot_loader.find(system)
    outcome = Outcome(
        facts={
            "boot_loader": loader.name,
            "running": command_line.split(running),
            "reboot_required": not command_line.in_effect(running, arguments, remove),
        }
    )
    files = loader.files(system, arguments, remove)
    for path, content in files.items():
        there = system.read_bytes(path)
        if there != content.encode():
            outcome.differ(path, None if there is None else there.decode(errors="replace"), content)
    stale = loader.stale(system, arguments, remove)
    if stale:
        outcome.differ("generated configuration", "without the arguments", "with the arguments")
    if outcome.facts["reboot_required"]:
        outcome.pending.append(f"the running kernel was not started with {' '.join(arguments)}: reboot")
    if check or not outcome.changed:
        return outcome
    for path in outcome.after:
        if path in files:
            system.replace(path, files[path].encode(), 0o600 if path == boot_loader.ENVIRONMENT else 0o644)
    loader.generate(system)
    if loader.stale(system, arguments, remove):
        raise HostError(
            "kernel_arguments: update-grub ran, but an entry of the generated configuration is without "
            f"{' '.join(arguments)}: look for a later file in /etc/default/grub.d that sets GRUB_CMDLINE_LINUX"
        )
    return outcome
