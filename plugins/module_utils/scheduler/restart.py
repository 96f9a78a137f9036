# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Find out what Slurm's daemons take only when they start, by slurm.conf(5), gres.conf(5) and scontrol(1) of 22.05.

``scontrol reconfigure`` reaches all daemons, and is enough for everything else. Running jobs survive both.
"""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import unfold

# Settings after which slurm.conf(5) demands a restart of slurmctld.
CONTROLLER = {
    *("accountingstorageenforce", "accountingstoragetype", "authtype", "credtype", "grestypes", "jobcontainertype"),
    *("maxjobcount", "maxnodecount", "plugindir", "proctracktype", "schedulerparameters", "schedulertype"),
    *("selecttype", "selecttypeparameters", "slurmctldhost", "slurmctldparameters", "slurmctldport", "slurmdport"),
    *("statesavelocation", "switchtype", "taskplugin", "topologyplugin"),
}
# Those after which it demands one of slurmd, too.
SLURMD = {"authtype", "credtype", "grestypes", "plugindir", "proctracktype", "selecttype", "slurmdport", "taskplugin"}
_GATE = re.compile(r"^DownNodes=(\S+) State=DRAIN Reason=.*\n", re.MULTILINE)


def reasons(old: str, new: str, old_gres: str, new_gres: str) -> list[str]:
    """Return why a slurmctld with the old files must be restarted for the new ones; none if it need not be."""
    old_settings, new_settings = _settings(old), _settings(new)
    changed = sorted(name for name in CONTROLLER if old_settings.get(name) != new_settings.get(name))
    if node_names(old) != node_names(new):
        changed.append("nodes")
    if old_gres != new_gres:
        changed.append("gres.conf")
    return changed


def slurmd_settings(text: str) -> str:
    """Return the part of slurm.conf after whose change each slurmd must be restarted."""
    lines = [line for line in text.splitlines() if _name(line) in SLURMD or _name(line) == "nodename"]
    return "\n".join(lines)


def node_names(text: str) -> list[str]:
    """Return the names of the nodes in slurm.conf."""
    return unfold(",".join(re.findall(r"(?mi)^NodeName=(\S+)", text)))


def gated(text: str, nodes: str, reason: str) -> str:
    """Return slurm.conf for one start of slurmctld in which new nodes are drained; ``nodes`` are folded.

    Slurm keeps the drain in its own state. The line must not stay: it would drain the nodes again at each start.
    """
    return f'{text}DownNodes={nodes} State=DRAIN Reason="{reason}"\n'


def gate_of(text: str) -> str:
    """Return the nodes of a line of ``gated`` that a killed run has left; "" for none."""
    match = _GATE.search(text)
    return match[1] if match else ""


def _settings(text: str) -> dict[str, list[str]]:
    settings: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, separator, value = line.partition("#")[0].partition("=")
        if separator:
            settings.setdefault(name.strip().lower(), []).append(value.strip())
    return settings


def _name(line: str) -> str:
    return line.partition("=")[0].strip().lower()
