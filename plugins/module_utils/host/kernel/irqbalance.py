# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The CPUs to which irqbalance assigns no interrupts: the guests' CPUs, where vCPUs would wait for host interrupts.

irqbalance reads them from its environment when it starts (irqbalance(1), IRQBALANCE_BANNED_CPULIST, since 1.8). A
systemd drop-in sets the variable, so that the distribution's /etc/default/irqbalance is not changed; if that file sets
the variable, the file takes precedence (systemd.exec(5), EnvironmentFile=).
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

UNIT = "irqbalance.service"
DROP_IN = f"/etc/systemd/system/{UNIT}.d/sailloft.conf"
VARIABLE = "IRQBALANCE_BANNED_CPULIST"
HEAD = "# Written by sailloft.fleet.gpu_domain; changes here are lost.\n"
# With and without a merged /usr.
PLACES = (f"/usr/lib/systemd/system/{UNIT}", f"/lib/systemd/system/{UNIT}")


def ensure(system: System, cpus: str, check: bool = False) -> Outcome:
    """Ban ``cpus`` ("2-47", "" none), now and at every start of irqbalance. Raises HostError.

    Facts: ``seen``, the list of the running program (None: it has no list) or a text if it does not run; or
    ``not_applicable``.
    """
    outcome = Outcome()
    if not any(system.exists(path) for path in PLACES):
        outcome.facts = {"not_applicable": "irqbalance is not installed"}
        return outcome
    text = f'{HEAD}[Service]\nEnvironment="{VARIABLE}={cpus}"\n'.encode()
    running, seen = _running(system)
    content = system.read_bytes(DROP_IN)
    # Without CPUs, a list that others have set stays.
    if (content != text or (running and seen != cpus)) if cpus else content is not None:
        outcome.differ(DROP_IN, seen if cpus else (content or b"").decode(errors="replace"), cpus or None)
    if outcome.changed and not check:
        if content != text:
            system.replace(DROP_IN, text)
            system.run(["systemctl", "daemon-reload"])
        system.run(["systemctl", "try-restart", UNIT])
        running, seen = _running(system)
        if running and (seen or "") != cpus:
            raise HostError(
                f"irqbalance runs with {VARIABLE}={seen or ''} after {DROP_IN} was written",
                "look for the variable in /etc/default/irqbalance or /etc/sysconfig/irqbalance",
            )
        if not cpus:
            system.remove(DROP_IN)
            system.run(["systemctl", "daemon-reload"])
    outcome.facts = {"seen": seen if running else "irqbalance does not run"}
    return outcome


def _running(system: System) -> tuple[bool, str | None]:
    """Return whether irqbalance runs, and the list that it was started with."""
    for process in system.names("/proc"):
        if not process.isdecimal():
            continue
        try:
            name = system.read(f"/proc/{process}/comm")
            content = system.read_bytes(f"/proc/{process}/environ") if name == "irqbalance" else None
        except HostError:
            continue  # it ended meanwhile
        if content is not None:
            environment = content.decode(errors="replace").split("\0")
            values = [entry.partition("=")[2] for entry in environment if entry.startswith(f"{VARIABLE}=")]
            return True, values[0] if values else None
    return False, None
