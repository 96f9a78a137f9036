# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Keep the host's processes and interrupts off the CPUs that are pinned to virtual CPUs.

The top-level units of systemd except machine.slice, which has the guests, get the other CPUs (systemd.special(7);
systemd.resource-control(5), AllowedCPUs=, since 244, cgroup version 2), and irqbalance bans the pinned ones. Drop-ins
last over reboots, and systemd applies them to running units at daemon-reload (src/core/unit-serialize.c invalidates
what is realized). Kernel threads and interrupts that no irqbalance moves stay where they are.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import format_ranges, parse_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import irqbalance

# The section of its unit file by unit.
UNITS = {"init.scope": "Scope", "system.slice": "Slice", "user.slice": "Slice"}
CGROUP = "/sys/fs/cgroup"
ONLINE = "/sys/devices/system/cpu/online"
# The URI of libvirt on the host itself.
LOCAL = "qemu:///system"
HEAD = "# Written by sailloft.fleet.gpu_domain; changes here are lost.\n"


def drop_in(unit: str) -> str:
    """Return the path of the drop-in of a unit."""
    return f"/etc/systemd/system/{unit}.d/sailloft.conf"


def of_options(system: System, options: dict[str, Any], pinned: list[int], check: bool = False) -> Outcome:
    """Apply ``ensure`` by the options of gpu_domain; with a topology or a URI of another host, change nothing."""
    if options["topology"] is not None or options["uri"] != LOCAL:
        return Outcome(facts={"pinned": format_ranges(pinned), "not_applicable": "topology or libvirt of another host"})
    return ensure(system, pinned if options["keep_host_off_pinned_cpus"] else [], check)


def ensure(system: System, pinned: list[int], check: bool = False) -> Outcome:
    """Keep the host off the ``pinned`` CPUs; none: remove all limits of this module. Raises HostError.

    Facts: ``pinned`` and ``allowed`` (lists like "2-7"), ``units`` (the CPUs that each may use, as the kernel reports
    them; in check mode those before the change) and ``irqbalance`` (facts of ``irqbalance.ensure``); or
    ``not_applicable``, the reason, and ``pinned``.
    """
    online = set(parse_ranges(system.read(ONLINE) or ""))
    allowed = online - set(pinned)
    reason = _unsupported_reason(system, allowed)
    if reason:
        return Outcome(facts={"pinned": format_ranges(pinned), "not_applicable": reason})
    outcome = Outcome()
    for unit in UNITS:
        used, content = _may_use(system, unit, online), system.read_bytes(drop_in(unit))
        wanted = _text(unit, allowed) if pinned else None
        if content != wanted:
            outcome.differ(drop_in(unit), *(text and text.decode(errors="replace") for text in (content, wanted)))
        if pinned and not used <= allowed:
            outcome.differ(f"CPUs of {unit}", format_ranges(used), format_ranges(allowed))
    if outcome.changed and not check:
        _apply(system, online, allowed)
    of_irqbalance = irqbalance.ensure(system, format_ranges(pinned), check)
    outcome.facts = {
        "pinned": format_ranges(pinned),
        "allowed": format_ranges(allowed),
        "units": {unit: format_ranges(_may_use(system, unit, online)) for unit in UNITS},
        "irqbalance": of_irqbalance.facts,
    }
    for name, old_value in of_irqbalance.before.items():
        outcome.differ(name, old_value, of_irqbalance.after[name])
    return outcome


def _unsupported_reason(system: System, allowed: set[int]) -> str | None:
    """Return the reason why no CPUs can be pinned, or None."""
    if not system.exists("/run/systemd/system"):
        return "this host does not run systemd"
    if "cpuset" not in (system.read(f"{CGROUP}/cgroup.controllers") or "").split():
        return "this host has no cpuset of cgroup version 2"
    return None if allowed else "no CPU is left for the host (host_cores_per_socket)"


def _text(unit: str, allowed: set[int]) -> bytes:
    return f"{HEAD}[{UNITS[unit]}]\nAllowedCPUs={format_ranges(allowed)}\n".encode()


def _may_use(system: System, unit: str, online: set[int]) -> set[int]:
    """Return the CPUs that a unit may use; all if the kernel has no cpuset for it."""
    ranges = system.read(f"{CGROUP}/{unit}/cpuset.cpus.effective")
    return set(parse_ranges(ranges)) if ranges else online


def _apply(system: System, online: set[int], allowed: set[int]) -> None:
    """Write the drop-ins. If all CPUs are allowed, remove them again, after the kernel has the wider limit."""
    for unit in UNITS:
        system.replace(drop_in(unit), _text(unit, allowed))
    system.run(["systemctl", "daemon-reload"])
    for unit in UNITS:
        used = _may_use(system, unit, online)
        if not used <= allowed:
            raise HostError(
                f"{unit} may still use CPUs {format_ranges(used)} after {drop_in(unit)} was written",
                f"look for AllowedCPUs in its other files (systemctl cat {unit})",
            )
    if allowed == online:
        for unit in UNITS:
            system.remove(drop_in(unit))
        system.run(["systemctl", "daemon-reload"])
