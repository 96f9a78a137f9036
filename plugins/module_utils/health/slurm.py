# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Drain a node in Slurm by its verdict, and undrain it again, but only what this program drained.

Slurm itself does nothing with what HealthCheckProgram returns or prints (slurm.conf(5)). Its own drains begin with
``verdict.SLURM_PREFIX``; the drain of anybody else is never touched, nor is its reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError, run
from ansible_collections.sailloft.fleet.plugins.module_utils.health.verdict import (
    FIT,
    SLURM_PREFIX,
    UNFIT,
    Verdict,
    slurm,
)

# Slurm kills HealthCheckProgram after 60 s.
TIMEOUT_S = 20.0


def node_name() -> str:
    """Return the node's name in Slurm: slurmd sets it, else it is the short host name."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]


def wanted(shown: str, result: Verdict) -> list[str]:
    """Return what to change, as arguments of ``scontrol update``. ``shown``: what ``scontrol show node`` printed."""
    state = re.search(r"(?:^|\s)State=(\S+)", shown)
    if state is None:
        return []
    is_drained = any(part.startswith("DRAIN") for part in re.split(r"[^A-Z]+", state[1]))
    is_ours = f" Reason={SLURM_PREFIX}" in shown
    reason = slurm(result).strip()
    if result.status == UNFIT and not is_drained:
        return ["State=DRAIN", f"Reason={reason}"]
    if result.status == UNFIT and is_ours and f" Reason={reason}" not in shown:
        return [f"Reason={reason}"]
    # A state that does not know the drain has lost faults and a person's drain too: the disk is new, or there is none.
    if result.status == FIT and is_drained and is_ours and result.state.condition.slurm_drain:
        return ["State=UNDRAIN"]
    return []


def act(result: Verdict, note: Callable[[bool], object]) -> str:
    """Drain or undrain the node and return what was done, "" if nothing. Raises NotMeasuredError and what note raises.

    ``note`` stores that the node is drained now, or no longer.
    """
    name = node_name()
    # Where Slurm's files are, if HealthCheckProgram says so: slurmd does not (22.05).
    environment = {"SLURM_CONF": os.environ["SLURM_CONF"]} if "SLURM_CONF" in os.environ else {}
    shown = run(["scontrol", "show", "node", name, "--oneliner"], TIMEOUT_S, environment=environment)
    if shown.rc != 0:
        raise NotMeasuredError(f"scontrol show node {name}: {(shown.stderr or shown.stdout).strip():.200}")
    change = wanted(shown.stdout.strip(), result)
    if not change:
        return ""
    changed = run(["scontrol", "update", f"NodeName={name}", *change], TIMEOUT_S, environment=environment)
    if changed.rc != 0:
        raise NotMeasuredError(f"scontrol update {name}: {(changed.stderr or changed.stdout).strip():.200}")
    if change[0].startswith("State="):
        note(result.status == UNFIT)
    return f"{name}: {' '.join(change)}"
