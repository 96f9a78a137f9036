# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""MIG and locked clocks of NVIDIA GPUs, by nvidia-smi.

The fields are those of ``nvidia-smi --help-query-gpu``. Locked clocks cannot be read back, and a reload of the driver
loses them. They are therefore recorded in ``/run`` with the identity of the loaded driver, and set again if either
differs.
"""

from __future__ import annotations

import json
import os
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

LOADED = "/proc/driver/nvidia/version"
MODULE = "/sys/module/nvidia"
NOTE = "/run/sailloft/gpu_clocks.json"
QUERY = ["nvidia-smi", "--query-gpu=pci.bus_id,mig.mode.current,mig.mode.pending", "--format=csv,noheader"]
TIMEOUT_S = 60
NOT_LOADED = "the driver of the GPUs is not loaded: MIG and clocks are set at the next boot"


def ensure(system: System, mig_off: bool, clocks_mhz: list[int], check: bool = False) -> Outcome:
    """Turn MIG off, and lock the clocks to ``clocks_mhz`` (lowest, highest; empty: unchanged). Raises HostError."""
    outcome = Outcome()
    if not mig_off and not clocks_mhz:
        return outcome
    if not system.exists(LOADED):
        outcome.pending.append(NOT_LOADED)
        return outcome
    modes = _modes(system)
    if mig_off:
        _mig_off(system, modes, outcome, check)
    if clocks_mhz:
        _lock(system, sorted(modes), clocks_mhz, outcome, check)
    outcome.facts["gpus"] = sorted(modes)
    return outcome


def _modes(system: System) -> dict[str, tuple[str, str]]:
    """Return MIG's current and pending mode by GPU: Enabled, Disabled or [N/A]."""
    modes = {}
    for line in system.run(QUERY, timeout_s=TIMEOUT_S).splitlines():
        columns = [word.strip() for word in line.split(",")]
        if len(columns) != 3:
            raise HostError(f"nvidia-smi: expected a GPU and its MIG modes, found {line.strip()!r}")
        modes[columns[0]] = (columns[1], columns[2])
    return modes


def _mig_off(system: System, modes: dict[str, tuple[str, str]], outcome: Outcome, check: bool) -> None:
    on = sorted(gpu for gpu, (now, pending) in modes.items() if "Enabled" in (now, pending))
    for gpu in on:
        if modes[gpu][1] == "Enabled":
            outcome.differ(f"{gpu} MIG", "Enabled", "Disabled")
            if not check:
                system.run(["nvidia-smi", "-i", gpu, "-mig", "0"], timeout_s=TIMEOUT_S)
    modes_after = modes if check or not on else _modes(system)
    for gpu in on:
        if modes_after[gpu][0] == "Enabled":
            outcome.pending.append(f"MIG of GPU {gpu} is turned off when the GPU is reset, or at the next boot")


def _lock(system: System, gpus: list[str], clocks_mhz: list[int], outcome: Outcome, check: bool) -> None:
    wanted: dict[str, Any] = {"driver": _driver(system), "gpus": gpus, "clocks_mhz": clocks_mhz}
    noted = system.read(NOTE)
    try:
        previous = json.loads(noted) if noted else None
    except ValueError:
        previous = None
    if previous == wanted:
        return
    previous_clocks_mhz = (
        previous["clocks_mhz"] if isinstance(previous, dict) and previous.get("driver") == wanted["driver"] else None
    )
    outcome.differ("locked clocks, MHz", previous_clocks_mhz, clocks_mhz)
    if previous_clocks_mhz == clocks_mhz and isinstance(previous, dict):
        # The clocks are the same, but the GPUs are others.
        outcome.differ("GPUs with locked clocks", previous.get("gpus"), gpus)
    if check:
        return
    for gpu in gpus:
        limits = f"--lock-gpu-clocks={clocks_mhz[0]},{clocks_mhz[1]}"
        system.run(["nvidia-smi", "-i", gpu, limits], timeout_s=TIMEOUT_S)
    system.replace(NOTE, (json.dumps(wanted, sort_keys=True) + "\n").encode())


def _driver(system: System) -> int:
    """Return the identity of the driver's current load: the inode of its sysfs directory, which is never reused."""
    try:
        return os.stat(system.path(MODULE)).st_ino
    except OSError as error:
        raise HostError(f"cannot read {MODULE}: {error.strerror}") from error
