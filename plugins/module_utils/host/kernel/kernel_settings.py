# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel settings that slow down guests with dedicated CPUs and memory: frequency, idle states, balancing.

A setting that is not given is not changed. One that this host does not have is reported as not applicable. The reasons
against a profile of tuned are in docs/background/gpu-hosts.md, "CPUs and memory of the host".

Sources: Linux Documentation/admin-guide/pm/cpufreq.rst (scaling_governor), pm/cpuidle.rst (pm_qos_resume_latency_us),
sysctl/kernel.rst (numa_balancing), mm/ksm.rst (run), mm/transhuge.rst (enabled). The sources for AVIC are in avic.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import avic

CPUS = "/sys/devices/system/cpu"
NUMA_BALANCING = "/proc/sys/kernel/numa_balancing"
KSM = "/sys/kernel/mm/ksm/run"
HUGE = "/sys/kernel/mm/transparent_hugepage/enabled"
# From 1 us: 0 is "no limit" in that file. The deepest states of servers wake in less than 1 ms (intel_idle.c).
LATENCY_US_MAX = 1_000_000
# Linux Documentation/admin-guide/pm/cpufreq.rst, "Generic Scaling Governors".
GOVERNORS = ("performance", "powersave", "userspace", "schedutil", "ondemand", "conservative")
# Programs that also set some of these settings: by unit, the settings that they change.
RIVALS = {
    "tuned.service": "governor, transparent_huge_pages and others, by its profile",
    "ksmtuned.service": "ksm",
    "power-profiles-daemon.service": "governor",
}


@dataclass
class SettingFiles:
    """One setting on this host: its files with their current and wanted texts, or the reason why there are none.

    ``argument``: the kernel argument that sets it, if the running kernel cannot change it.
    """

    files: dict[str, tuple[str, str]] = field(default_factory=dict)
    reason: str = ""
    argument: str = ""

    @property
    def changes(self) -> dict[str, str]:
        """Return the text to write, by file."""
        return {path: wanted for path, (now, wanted) in self.files.items() if now != wanted}

    @property
    def seen(self) -> str:
        """Return the current values in the files; several values are separated by commas."""
        return ",".join(sorted({now for now, _wanted in self.files.values()}))


def _governor(system: System, wanted: str) -> SettingFiles:
    reading = SettingFiles()
    for policy in system.names(f"{CPUS}/cpufreq"):
        place = f"{CPUS}/cpufreq/{policy}"
        now = system.read(f"{place}/scaling_governor") if policy.startswith("policy") else None
        if now is None:
            continue
        offered = (system.read(f"{place}/scaling_available_governors") or now).split()
        if wanted not in offered:
            return SettingFiles(reason=f"the driver of its CPUs has the governors {', '.join(offered)}")
        reading.files[f"{place}/scaling_governor"] = (now, wanted)
    if not reading.files:
        reading.reason = "the kernel does not control the frequency of its CPUs (no cpufreq)"
    return reading


def _idle(system: System, wanted: int) -> SettingFiles:
    reading = SettingFiles()
    for cpu in system.names(CPUS):
        path = f"{CPUS}/{cpu}/power/pm_qos_resume_latency_us"
        if re.fullmatch(r"cpu\d+", cpu) and system.exists(f"{CPUS}/{cpu}/cpuidle"):
            now = system.read(path)
            if now is not None:
                reading.files[path] = (now, str(wanted))
    if not reading.files:
        reading.reason = "the kernel does not choose idle states of its CPUs (no cpuidle)"
    return reading


def _switch(path: str, missing: str) -> Callable[[System, bool], SettingFiles]:
    def read(system: System, wanted: bool) -> SettingFiles:
        now = system.read(path)
        return SettingFiles(reason=missing) if now is None else SettingFiles({path: (now, str(int(wanted)))})

    return read


def _huge(system: System, wanted: str) -> SettingFiles:
    now = system.read(HUGE)
    chosen = re.search(r"\[(\w+)\]", now or "")
    if not chosen:
        return SettingFiles(reason="its kernel has no transparent huge pages")
    return SettingFiles({HUGE: (chosen[1], wanted)})


def _avic(system: System, wanted: bool) -> SettingFiles:
    reason = avic.cannot(system)
    if reason:
        return SettingFiles(reason=reason)
    return SettingFiles({avic.PARAMETER: (avic.seen(system), str(int(wanted)))}, argument=avic.argument(wanted))


@dataclass(frozen=True)
class KernelSetting:
    """A setting: the check of its value, and the function that reads it on a host."""

    check: values.Check
    read: Callable[[System, Any], SettingFiles]


# In the order in which they are applied and reported.
SETTINGS: dict[str, KernelSetting] = {
    "governor": KernelSetting(values.among(*GOVERNORS), _governor),
    "idle_exit_latency_us_max": KernelSetting(values.within(1, LATENCY_US_MAX, "us"), _idle),
    "numa_balancing": KernelSetting(values.flag, _switch(NUMA_BALANCING, "its kernel has no automatic NUMA balancing")),
    "ksm": KernelSetting(values.flag, _switch(KSM, "its kernel does not merge pages (no KSM)")),
    "transparent_huge_pages": KernelSetting(values.among("always", "madvise", "never"), _huge),
    "avic": KernelSetting(values.flag, _avic),
}


def wanted(data: Any) -> dict[str, Any]:
    """Return ``{"governor": "performance", ...}`` checked, in the order of SETTINGS. Raises HostError."""
    request = Settings(RequestError, "kernel_settings", data)
    request.only(*SETTINGS)
    return {name: request.value(name, setting.check) for name, setting in SETTINGS.items() if name in request.data}


def ensure(system: System, data: Any, check: bool = False) -> Outcome:
    """Apply the settings in ``data`` (see ``wanted``). Raises HostError.

    Facts: for each setting ``wanted`` and ``seen``, or ``not_applicable`` with the reason; and the programs that also
    set them.
    """
    want = wanted(data)
    outcome = Outcome()
    report: dict[str, dict[str, Any]] = {}
    for name, value in want.items():
        reading = SETTINGS[name].read(system, value)
        report[name] = {"wanted": value}
        if reading.reason:
            report[name]["not_applicable"] = reading.reason
            continue
        if reading.argument:
            report[name]["seen"] = reading.seen
            if reading.changes:
                outcome.pending.append(f"{name} is {reading.seen} until a boot with {reading.argument}")
            continue
        if reading.changes:
            outcome.differ(name, reading.seen, value)
        if not check:
            for path, text in reading.changes.items():
                system.poke(path, text)
            reading = SETTINGS[name].read(system, value)
            if reading.changes:
                raise HostError(
                    f"kernel_settings: {name} is {reading.seen} after {value} was written to "
                    f"{next(iter(reading.changes))}: another program sets it, or the kernel does not allow it",
                    "look for the other program (tuned, sysctl.d)",
                )
        report[name]["seen"] = reading.seen
    outcome.facts = {"settings": report, "also_set_by": _rivals(system)}
    return outcome


def _rivals(system: System) -> list[str]:
    """Return the enabled programs that also change these settings, as text."""
    return [
        f"{unit} is enabled and sets {settings}: disable it, or leave the setting out"
        for unit, settings in RIVALS.items()
        if system.exists(f"/etc/systemd/system/multi-user.target.wants/{unit}")
    ]
