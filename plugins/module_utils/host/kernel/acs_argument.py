# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""ACS by port as the kernel argument ``pci=config_acs=``, for kernels that can do it without known defects.

With this argument the kernel sets ACS before it creates IOMMU groups. User space does not write config space, so the
argument works under lockdown, too. Syntax: Linux Documentation/admin-guide/kernel-parameters.txt, pci=config_acs=.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_plan import AcsPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import (
    KERNEL_DEFAULT,
    VERA_DEFAULT,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.kernel_release import RELEASE, includes

# Commit 47c8846a49ba "PCI: Extend ACS configurability" is in Linux 6.11.
SINCE = (6, 11)
# Until commit 9cf8a952d57b "PCI/ACS: Fix 'pci=config_acs=' parameter" the kernel uses the first entry only, and logs
# "PCI: Can't parse ACS command line parameter". The commit is in Linux 6.15; of the stable branches, in 6.12.23
# (changelog of Debian's linux 6.12.25-1, which names it). Other branches and distributions may have it, too, but a
# kernel that is not listed here is treated as one without it, or, if it gets changes of later ones, as unknown.
SEVERAL_SINCE = (6, 15)
SEVERAL_IN_STABLE = {(6, 12): 23}
# A reason why the argument is not used: its ports are then set at boot, as without it.
UNKNOWN = "has changes of later kernels, and its number does not say whether"
PREFIX = "pci=config_acs="


@dataclass
class AcsDecision:
    """The argument, or the reason why ACS is written to config space at boot instead. Both are None if not needed."""

    argument: str | None
    reason: str | None
    # Ports that the running kernel did not set although its argument names them, as text.
    not_taken: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return {"argument": self.argument, "reason": self.reason, "not_taken": self.not_taken}


NOT_NEEDED = AcsDecision(None, None)


def decide(plan: AcsPlan, command_line: str) -> AcsDecision:
    """Return the argument for the ports whose mask differs from the kernel's default.

    ``command_line`` is the running kernel's. If it has exactly this argument, ``not_taken`` names the ports that do not
    have their bits.
    """
    entries = []
    for port in plan.ports:
        acs = plan.host.function(port.address).acs
        if acs and port.mask not in (KERNEL_DEFAULT, VERA_DEFAULT) and not port.mask.lacking(acs.capability):
            entries.append((port, acs))
    if not entries:
        return NOT_NEEDED
    reason = cannot(plan.host.kernel_release, len(entries))
    if reason:
        return AcsDecision(None, reason)
    argument = PREFIX + ";".join(f"{port.mask.text}@{port.address}" for port, _acs in entries)
    not_taken = []
    if argument in command_line.replace('"', "").split():
        not_taken = [
            f"port {port.address} has ACS {acs.control:07b}, although the kernel argument requests {port.mask.text}"
            for port, acs in entries
            if not port.mask.holds(acs.control, acs.capability)
        ]
    return AcsDecision(argument, None, not_taken)


def cannot(release: str | None, entries: int) -> str | None:
    """Return why the kernel of this release cannot set ACS of so many ports by its argument; None if it can."""
    if not RELEASE.match(release or ""):
        return "the release of the running kernel is not known"
    able = includes(release, SINCE)
    if not able:
        has = "has no" if able is False else f"{UNKNOWN} it has"
        return f"Linux {release} {has} pci=config_acs= (6.11 has it)"
    all_entries = includes(release, SEVERAL_SINCE, SEVERAL_IN_STABLE)
    if entries > 1 and not all_entries:
        sets = "sets only" if all_entries is False else f"{UNKNOWN} it sets more than"
        return f"Linux {release} {sets} the first port of pci=config_acs= (6.12.23 and 6.15 set all)"
    return None
