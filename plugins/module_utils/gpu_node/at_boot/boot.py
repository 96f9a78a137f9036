# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read, check and apply the settings of a GPU node that a reboot loses, both in a module's run and at boot."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.at_boot import gpus, rings
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.files import ARP
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import retry
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

# Far above the ring sizes of any NIC and the clocks of any GPU.
RING_MOST, CLOCK_MOST_MHZ = 65536, 10000


@dataclass(frozen=True)
class BootSettings:
    """The settings of a node at every boot. ``ring_entries`` 0 and empty ``clocks_mhz`` change nothing."""

    mig_off: bool
    clocks_mhz: list[int]
    ring_entries: int
    rails_on_one_subnet: bool


def read(data: Any) -> BootSettings:
    """Return the settings in the module's arguments. Raises RequestError."""
    settings = Settings(RequestError, "gpu_node", data)
    settings.only("mig_off", "clocks_mhz", "ring_entries", "rails_on_one_subnet")
    clocks = settings.value("clocks_mhz", values.each(values.within(1, CLOCK_MOST_MHZ, "MHz")), [])
    if clocks and (len(clocks) != 2 or clocks[0] > clocks[1]):
        raise settings.refuse(
            f"clocks_mhz: {clocks} is not a range", "give the minimum and the maximum, like [1980, 1980]"
        )
    return BootSettings(
        settings.value("mig_off", values.flag, True),
        clocks,
        settings.value("ring_entries", values.within(0, RING_MOST), 0),
        settings.value("rails_on_one_subnet", values.flag, False),
    )


def ensure(system: System, settings: BootSettings, check: bool = False) -> Outcome:
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


def apply(system: System, settings: Any, say: retry.Say, wait: retry.Wait = time.sleep) -> list[str]:
    """Apply the saved ``settings``, and return the failure if there is one. Raises RequestError."""
    wanted = read(settings)
    # The driver may load while this runs.
    return retry.until_applied(
        {"": lambda: ensure(system, wanted)},
        say,
        wait,
        lambda outcome: bool(outcome.failed) or gpus.NOT_LOADED in outcome.pending,
    )


def main(arguments: list[str]) -> int:
    """Return exit status 0 if everything is as saved."""
    return retry.run("gpu_node", arguments[0], System(), apply)
