# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The files of a Slurm cluster as texts. Pure.

Nodes that are equal share a line, with their names folded. No node has a State: Slurm would set it again at each
reconfiguration and restart, and drain nodes that are in service.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TypeVar

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import hostlist
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.hardware import NodeHardware, runs
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.request import Accounting, SchedulerRequest
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.slurm import TreeSwitch, tree_lines

HEAD = "# Written by sailloft.fleet.slurm_plan; changes here are lost.\n"
SLURM, GRES, CGROUP, DBD = "slurm.conf", "gres.conf", "cgroup.conf", "slurmdbd.conf"
TOPOLOGY_CONF, TOPOLOGY_YAML = "topology.conf", "topology.yaml"
# slurmd runs it without arguments; the role writes it on nodes and into images.
HEALTH_PROGRAM = "/usr/lib/sailloft/slurm-health"
# slurmd runs them around a job whose containers have a directory on the node; the role writes them there, too.
PROLOG_PROGRAM, EPILOG_PROGRAM = "/usr/lib/sailloft/slurm-prolog", "/usr/lib/sailloft/slurm-epilog"
# slurmctld runs it with the nodes to reboot, folded or not, as its first argument. It does not wait for boots: the
# command goes on after it, and Slurm judges by the nodes. Debian's /var/log/slurm is not the user slurm's.
REIMAGE, REIMAGE_PROGRAM = "slurm-reimage", "/usr/lib/sailloft/slurm-reimage"
_REIMAGE_TEXT = """#!/bin/sh
# Written by sailloft.fleet.slurm_service; changes here are lost. Slurm runs it as RebootProgram, on a controller.
nodes=$(scontrol show hostnames "$1" | paste -sd, -) && [ -n "$nodes" ] || exit 1
echo "$(date +%FT%T%z) $nodes" >>{log}
setsid {command} "$nodes" >>{log} 2>&1 </dev/null &
"""
# The first release that has several topologies.
TOPOLOGY_YAML_SINCE = (25, 5)
# Jobs get whole cores, whole devices and no more memory than they asked for.
CGROUP_TEXT = f"{HEAD}ConstrainCores=yes\nConstrainDevices=yes\nConstrainRAMSpace=yes\n"

# A fabric's name and its tree.
Trees = Mapping[str, list[TreeSwitch]]
_Key = TypeVar("_Key", bound=tuple[object, ...])


def settings(request: SchedulerRequest, devices: list[str], has_tree: bool) -> list[tuple[str, str]]:
    """Return the settings of slurm.conf that are not of a node or partition, in order."""
    controller = ["enable_configless", *(["reboot_from_controller"] if request.reimage_command else [])]
    pairs = [("ClusterName", request.cluster)]
    pairs += [("SlurmctldHost", host) for host in request.controllers]
    pairs += [
        ("SlurmUser", "slurm"),
        ("AuthType", "auth/munge"),
        ("SlurmctldParameters", ",".join(controller)),
        ("StateSaveLocation", request.state_directory),
        ("SlurmdSpoolDir", "/var/lib/slurm/slurmd"),
        ("SlurmctldLogFile", "/var/log/slurm/slurmctld.log"),
        ("SlurmdLogFile", "/var/log/slurm/slurmd.log"),
        ("ProctrackType", "proctrack/cgroup"),
        ("TaskPlugin", "task/cgroup,task/affinity"),
        ("SelectType", "select/cons_tres"),
        ("SelectTypeParameters", "CR_Core_Memory"),
        # Only a node that did not respond returns by itself. One that booted unasked stays down until it is proved.
        ("ReturnToService", "1"),
        ("HealthCheckProgram", HEALTH_PROGRAM),
        ("HealthCheckInterval", "60"),
        # A drained node, too: sailloft-health undrains what it drained. It only reads a file, so jobs do not notice.
        ("HealthCheckNodeState", "ANY,CYCLE"),
        ("RebootProgram", REIMAGE_PROGRAM if request.reimage_command else "/usr/sbin/reboot"),
        # Firmware, image and first health check of a diskless node; without, Slurm sets it down after 60 s.
        ("ResumeTimeout", "1800"),
        # Else a job has the limit of the host that submits it, and RDMA pins memory.
        ("PropagateResourceLimitsExcept", "MEMLOCK"),
    ]
    if devices:
        pairs.append(("GresTypes", ",".join(devices)))
    if has_tree and request.version < TOPOLOGY_YAML_SINCE:
        pairs.append(("TopologyPlugin", "topology/tree"))
    programs = (request.prolog, request.epilog)
    if request.container_directory:
        programs = (PROLOG_PROGRAM, EPILOG_PROGRAM)
        # Before srun starts a step, which would wait only for MessageTimeout (10 s).
        pairs.append(("PrologFlags", "Alloc"))
    pairs += [(name, path) for name, path in zip(("Prolog", "Epilog"), programs) if path]
    if request.accounting:
        pairs += [
            ("AccountingStorageType", "accounting_storage/slurmdbd"),
            ("AccountingStorageHost", request.accounting.host),
            ("JobAcctGatherType", "jobacct_gather/cgroup"),
        ]
        pairs += [("AccountingStorageTRES", "gres/gpu")] if "gpu" in devices else []
    return pairs


# A request never sets these by its options.
PLANNED = (
    *("ClusterName", "SlurmctldHost", "SlurmUser", "AuthType", "SlurmctldParameters", "StateSaveLocation"),
    *("SelectType", "ReturnToService", "HealthCheckProgram", "HealthCheckNodeState", "RebootProgram", "GresTypes"),
    *("TopologyPlugin", "Prolog", "Epilog", "AccountingStorageType", "AccountingStorageHost", "AccountingStorageTRES"),
)


def slurm_conf(request: SchedulerRequest, nodes: Mapping[str, NodeHardware | None], has_tree: bool) -> str:
    """Return slurm.conf. ``nodes``: each node's hardware, None where it is not known."""
    devices = sorted({name for node in nodes.values() if node for name in node.counts()})
    options = {name.lower(): (name, value) for name, value in request.options.items()}
    lines = []
    for name, value in settings(request, devices, has_tree):
        _name, text = options.pop(name.lower(), (name, value))
        lines.append(f"{name}={text}\n")
    lines += [f"{name}={value}\n" for name, value in options.values()]
    lines += [f"NodeName={hostlist(names)}{_node_text(node)}\n" for node, names in _equal(nodes).items()]
    for partition in request.partitions:
        texts = [f"PartitionName={partition.name}", f"Nodes={hostlist(partition.nodes)}"]
        texts += ["Default=YES"] if partition.is_default else []
        texts += [f"MaxTime={partition.max_time}"] if partition.max_time else []
        texts += [f"{name}={value}" for name, value in partition.options.items()]
        lines.append(" ".join(texts) + "\n")
    return HEAD + "".join(lines)


def gres_conf(nodes: Mapping[str, NodeHardware | None]) -> str:
    """Return gres.conf: the devices of each group of equal nodes, with the cores of their sockets."""
    lines = []
    for texts, names in _grouped({name: _gres_texts(node) for name, node in nodes.items() if node}).items():
        lines += [f"NodeName={hostlist(names)} {text}\n" for text in texts]
    return HEAD + "".join(lines)


def _gres_texts(node: NodeHardware) -> tuple[str, ...]:
    texts = []
    for run in runs(node, node.gpus):
        numbers = f"[{run.first}-{run.last}]" if run.last > run.first else f"{run.first}"
        texts.append(f"Name=gpu File=/dev/nvidia{numbers}" + (f" Cores={run.cores}" if run.cores else ""))
    for run in runs(node, node.nics):
        texts.append(f"Name=nic Count={run.last - run.first + 1}" + (f" Cores={run.cores}" if run.cores else ""))
    return tuple(texts)


def topologies(trees: Trees, version: tuple[int, int]) -> dict[str, str]:
    """Return the file of the trees, the first one that of jobs. Before 25.05, Slurm knows only that one."""
    if not trees:
        return {}
    if version < TOPOLOGY_YAML_SINCE:
        fabric, switches = next(iter(trees.items()))
        return {TOPOLOGY_CONF: f"{HEAD}# Fabric {fabric}\n{tree_lines(switches)}"}
    lines = ["---\n"]
    for fabric, switches in trees.items():
        is_first = len(lines) == 1
        lines.append(f"- topology: {fabric}\n  cluster_default: {str(is_first).lower()}\n  tree:\n    switches:\n")
        for tree_switch in switches:
            word = "nodes" if tree_switch.layer == 1 else "children"
            lines.append(f'      - switch: {tree_switch.name}\n        {word}: "{hostlist(tree_switch.members)}"\n')
    return {TOPOLOGY_YAML: HEAD + "".join(lines)}


def reimage_program(command: Sequence[str], state_directory: str) -> str:
    """Return the program that starts the command with the names of the nodes, joined by commas, as last argument."""
    return _REIMAGE_TEXT.format(log=shlex.quote(f"{state_directory}/reimage.log"), command=shlex.join(command))


def slurmdbd_conf(accounting: Accounting) -> str:
    """Return slurmdbd.conf without StoragePass, which is no part of the plan."""
    return (
        f"{HEAD}AuthType=auth/munge\nDbdHost={accounting.host}\nSlurmUser=slurm\n"
        f"LogFile=/var/log/slurm/slurmdbd.log\nPidFile=/run/slurmdbd.pid\n"
        f"StorageType=accounting_storage/mysql\nStorageHost={accounting.storage_host}\n"
        f"StorageLoc={accounting.database}\nStorageUser={accounting.user}\n"
    )


def _node_text(node: tuple[tuple[str, int], ...]) -> str:
    *hardware, gpus, nics = node
    texts = [f" {name}={value}" for name, value in hardware if value]
    devices = ",".join(f"{name}:{count}" for name, count in (gpus, nics) if count)
    return "".join(texts) + (f" Gres={devices}" if devices else "")


def _equal(nodes: Mapping[str, NodeHardware | None]) -> dict[tuple[tuple[str, int], ...], list[str]]:
    """Return the names of the nodes whose lines are equal."""
    keys = {}
    for name, node in nodes.items():
        counts = node.counts() if node else {}
        hardware = node[:4] if node else (0, 0, 0, 0)
        keys[name] = (
            *zip(("Sockets", "CoresPerSocket", "ThreadsPerCore", "RealMemory"), hardware),
            ("gpu", counts.get("gpu", 0)),
            ("nic", counts.get("nic", 0)),
        )
    return _grouped(keys)


def _grouped(keys: Mapping[str, _Key]) -> dict[_Key, list[str]]:
    groups: dict[_Key, list[str]] = {}
    for name, key in keys.items():
        groups.setdefault(key, []).append(name)
    return groups
