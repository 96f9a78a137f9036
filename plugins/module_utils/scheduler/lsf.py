# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The same cluster as texts for the files of IBM Spectrum LSF 10.1: hosts, groups, compute units, health. Pure.

They were never read by an LSF, which cannot be had without a licence. Sources: IBM's documentation of lsf.conf,
lsf.shared, lsf.cluster, lsb.hosts and lsb.params, and of compute units and external load indices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.request import SchedulerRequest
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.slurm import TreeSwitch

HEAD = "# Written by sailloft.fleet.slurm_plan; changes here are lost.\n"
# The load index of the elim: 0 the node may take work, 1 it may not, 2 not known. A host above the threshold gets no
# job; running ones go on, because there is no second threshold (loadStop).
INDEX, FIT_BELOW, PERIOD_S = "sailloft_health", "0.5", 60
ELIM = f"""#!/bin/sh
# Written by sailloft.fleet.slurm_plan; changes here are lost. LSF's LIM runs it in LSF_SERVERDIR.
exec /usr/bin/sailloft-health --format lsf --every {PERIOD_S}
"""


def lsf_files(request: SchedulerRequest, switches: list[TreeSwitch], spares: list[str]) -> dict[str, str]:
    """Return the files by name. ``switches``: those of the fabric of jobs, which become compute units.

    lsf.conf and lsb.params have other lines too, of the installation: their texts are lines to add there. The first
    type of compute units is the finest, and the default ("!").
    """
    types = list(dict.fromkeys(f"layer{switch.layer}" for switch in switches))
    parameters = [f"COMPUTE_UNIT_TYPES={' '.join((f'{types[0]}!', *types[1:]))}"] if types else []
    return {
        "lsf.conf": HEAD
        + "LSF_GPU_AUTOCONFIG=Y\nLSB_GPU_NEW_SYNTAX=extend\nLSF_GPU_RESOURCE_IGNORE=Y\n"
        + f'LSF_MASTER_LIST="{" ".join(request.controllers)}"\n',
        "lsf.shared": HEAD
        + _section("Cluster", "ClusterName", [request.cluster])
        + _section(
            "Resource",
            "RESOURCENAME TYPE INTERVAL INCREASING DESCRIPTION",
            [f"{INDEX} Numeric {PERIOD_S} Y (0 fit for work, 1 not, 2 not known)"],
        ),
        f"lsf.cluster.{request.cluster}": HEAD
        + _section(
            "Host",
            "HOSTNAME model type server RESOURCES",
            [f"{name} ! ! 1 ()" for name in dict.fromkeys((*request.controllers, *request.nodes))],
        )
        + _section("ResourceMap", "RESOURCENAME LOCATION", [f"{INDEX} [default]"]),
        "lsb.params": HEAD + _section("Parameters", "", parameters),
        "lsb.hosts": HEAD + _hosts(request, switches, spares),
        f"elim.{INDEX}": ELIM,
    }


def _hosts(request: SchedulerRequest, switches: list[TreeSwitch], spares: list[str]) -> str:
    # Controllers run no jobs.
    rows = [f"{name} 0 ()" for name in request.controllers if name not in request.nodes]
    groups: Mapping[str, Iterable[str]] = {
        **{partition.name: partition.nodes for partition in request.partitions},
        **({"spares": spares} if spares else {}),
    }
    text = _section("Host", f"HOST_NAME MXJ {INDEX}", [*rows, f"default ! {FIT_BELOW}"])
    text += _section("HostGroup", "GROUP_NAME GROUP_MEMBER", [_members(*item) for item in groups.items()])
    units = [f"{_members(switch.name, switch.members)} layer{switch.layer}" for switch in switches]
    return text + (_section("ComputeUnit", "NAME MEMBER TYPE", units) if units else "")


def _members(name: str, members: Iterable[str]) -> str:
    return f"{name} ({' '.join(members)})"


def _section(name: str, keywords: str, rows: list[str]) -> str:
    lines = [f"Begin {name}", *([keywords] if keywords else []), *rows, f"End {name}"]
    return "\n".join(lines) + "\n"
