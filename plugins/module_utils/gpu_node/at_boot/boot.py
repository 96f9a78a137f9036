# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read, check and apply the settings of a GPU node that a reboot loses, both in a module's run and at boot.

``python3 gpu_node.pyz SETTINGS.json`` applies them at boot. A device or its driver may appear late, so failures are
retried until the time is up.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.given import values
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.at_boot import gpus, rings
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.files import ARP
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.settings import HostSettings
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

PATIENCE_S = 60
PAUSE_S = 2
# Far above the ring sizes of any NIC and the clocks of any GPU.
RING_MOST, CLOCK_MOST_MHZ = 65536, 10000


@dataclass(frozen=True)
class Settings:
    """The settings of a node at every boot. ``ring_entries`` 0 and empty ``clocks_mhz`` change nothing."""

    mig_off: bool
    clocks_mhz: list[int]
    ring_entries: int
    rails_on_one_subnet: bool


def read(data: Any) -> Settings:
    """Return the settings in the module's arguments. Raises RequestError."""
    given = HostSettings("gpu_node_boot", data)
    given.only("mig_off", "clocks_mhz", "ring_entries", "rails_on_one_subnet")
    clocks = given.value("clocks_mhz", values.each(values.within(1, CLOCK_MOST_MHZ, "MHz")), [])
    if clocks and (len(clocks) != 2 or clocks[0] > clocks[1]):
        raise given.refuse(
            f"clocks_mhz: {clocks} is not a range", "give the minimum and the maximum, like [1980, 1980]"
        )
    return Settings(
        given.value("mig_off", values.flag, True),
        clocks,
        given.value("ring_entries", values.within(0, RING_MOST), 0),
        given.value("rails_on_one_subnet", values.flag, False),
    )


def ensure(system: System, settings: Settings, check: bool = False) -> Outcome:
    """Apply all settings; a failure does not stop the others, and is in the outcome's ``failed``."""
    outcome = Outcome()
    parts: list[Callable[[], Outcome]] = [
        lambda: _arp(system, check) if settings.rails_on_one_subnet else Outcome(),
        lambda: rings.ensure(system, settings.ring_entries, check),
        lambda: gpus.ensure(system, settings.mig_off, settings.clocks_mhz, check),
    ]
    for part in parts:
        try:
            outcome = outcome.and_then(part())
        except HostError as error:
            outcome = outcome.and_then(Outcome(failed=str(error)))
    return outcome


def _arp(system: System, check: bool) -> Outcome:
    outcome = Outcome()
    for name, value in ARP.items():
        path = "/proc/sys/" + name.replace(".", "/")
        now = system.read(path)
        if now != str(value):
            outcome.differ(name, now, str(value))
            if not check:
                system.poke(path, f"{value}\n")
    return outcome


def apply(
    system: System, settings: Settings, say: Callable[[str], object], wait: Callable[[float], object] = time.sleep
) -> str:
    """Apply ``settings``, and retry while something fails; return the last failure, or an empty text."""
    outcome = Outcome()
    for _attempt in range(PATIENCE_S // PAUSE_S):
        outcome = ensure(system, settings)
        for name, after in outcome.after.items():
            say(f"{name}: {outcome.before[name]} -> {after}")
        # The driver may load while this runs.
        if not outcome.failed and gpus.NOT_LOADED not in outcome.pending:
            break
        wait(PAUSE_S)
    for line in outcome.pending:
        say(line)
    return outcome.failed


def main(arguments: list[str]) -> int:
    """Return exit status 0 if everything is as saved."""
    system = System()
    saved = system.read(arguments[0])
    if saved is None:
        sys.stderr.write(f"there is no {arguments[0]}: run the role gpu_node again\n")
        return 1
    why = apply(system, read(json.loads(saved)), lambda line: sys.stdout.write(line + "\n"))
    if why:
        sys.stderr.write(why + "\n")
    return 1 if why else 0
