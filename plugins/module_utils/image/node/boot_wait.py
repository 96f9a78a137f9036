# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check that a power-cycled node is up again, according to the node itself and not to its BMC. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

# systemd's states once its start is over (systemctl(1), is-system-running).
FINISHED = ("running", "degraded")


@dataclass(frozen=True)
class Limits:
    """Time limits of a restart. ``boot_id`` is that of the previous boot (empty if unknown).

    After waiting for ``restart_s``, the previous boot must be over; after ``boot_s``, systemd must have finished.
    """

    boot_id: str
    restart_s: float
    boot_s: float


@dataclass(frozen=True)
class Elapsed:
    """The time that has passed.

    ``since_s`` counts from just before the restart: a boot with a shorter uptime is a new one. ``waited_s`` counts from
    the beginning of the wait; the limits apply to it. Between these two times, the BMCs of all nodes of a wave are
    accessed, which can take minutes.
    """

    since_s: float
    waited_s: float


@dataclass(frozen=True)
class BootAnswer:
    """A node's answer: node_image_info's result, or else the reason why the node did not answer."""

    state: dict[str, Any] | None = None
    why: str = ""


def is_new(state: dict[str, Any], elapsed: Elapsed, limits: Limits) -> bool:
    """Return whether the node runs a boot that began after the restart."""
    return state["boot_id"] != limits.boot_id and state["uptime_s"] <= elapsed.since_s


def phase(reading: BootAnswer, elapsed: Elapsed, limits: Limits) -> str:
    """Return the current phase of the restart as readable text; empty once the node is up."""
    if reading.state is None:
        return f"does not answer yet ({reading.why})"
    if not is_new(reading.state, elapsed, limits):
        return "is still in the previous boot"
    systemd = reading.state["systemd"]["state"]
    return "" if systemd in FINISHED else f"has booted, systemd is {systemd}"


def check(subject: str, reading: BootAnswer, elapsed: Elapsed, limits: Limits) -> None:
    """Raise ImageError if there is nothing left to wait for."""
    now = phase(reading, elapsed, limits)
    if not now:
        return
    old = reading.state is not None and not is_new(reading.state, elapsed, limits)
    if old and elapsed.waited_s > limits.restart_s:
        raise ImageError(
            f"is still in the previous boot {elapsed.since_s:.0f} s after the restart, whatever its BMC answered",
            "check that node_boot_bmc names this node's BMC and system, and read the BMC's event log",
            subject=subject,
        )
    if elapsed.waited_s > limits.boot_s:
        raise ImageError(
            f"is not up {elapsed.since_s:.0f} s after the restart: it {now}",
            "read its console, where the first stage reports what it refused or could not reach",
            subject=subject,
        )


def summary(state: dict[str, Any], elapsed_s: float) -> str:
    """Return how long a boot took, phase by phase, for a terminal.

    ``state``: node_image_info's result of a node that is up.
    """
    phases = (state["report"] or {}).get("phases") or []
    parts = [f"{part['name']} {part['end_s'] - part['start_s']:.1f} s" for part in phases]
    finished = f"systemd finished {state['systemd']['finished_s']} s after the kernel started"
    return f"up {elapsed_s:.1f} s after the restart; {', '.join([*parts, finished])}"
