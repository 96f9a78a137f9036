# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The schedulers' words: who is out of service and why, and the commands of a drain and of its end. Pure.

A drain of a repair has a reason that begins with OURS. No other reason is ours, so no other drain is undone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import REPAIR_PREFIX
from ansible_collections.sailloft.fleet.plugins.module_utils.health.verdict import DRAINED, MAINTAINED, SLURM_PREFIX
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.errors import RepairError
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.errors import SchedulerError
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.service import read_nodes

OURS = f"{REPAIR_PREFIX} "
# The reasons of this collection's other programs: the node's own health check, the gate of new nodes, and spares.
AUTOMATIC = (OURS, SLURM_PREFIX, "sailloft-gate:", "sailloft-spare:")
# A person's word to a node's health check, which it has passed on.
TOLD = (f"{SLURM_PREFIX}{DRAINED}: ", f"{SLURM_PREFIX}{MAINTAINED}: ")
RESERVE = "sailloft-spare:"
ANNOTATION = "sailloft.io/repair"
# Who we are in the fields of Kubernetes, and the name of our lock of a host in LSF.
MANAGER = REPAIR_PREFIX.rstrip(":")
# How long jobs may take to leave when they are told to, in seconds.
EVICT_S = 600
# Reasons with which Slurm itself takes a node out that does not answer (slurmctld/ping_nodes.c, node_mgr.c).
OF_SLURM = ("Not responding", "Node unexpectedly rebooted")
_BUSY = {"ALLOCATED", "MIXED", "COMPLETING"}
_MAINTAINED = {"MAINT", "MAINTENANCE"}  # a reservation with FLAGS=MAINT has begun


@dataclass(frozen=True)
class NodeService:
    """A node as its scheduler sees it. ``is_busy`` None: nobody says whether jobs run there."""

    is_out: bool  # it gets no new job
    reason: str = ""  # why
    is_busy: bool | None = None
    is_absent: bool = False  # it does not answer
    is_maintained: bool = False  # by a plan of the scheduler

    @property
    def is_ours(self) -> bool:
        """Return True if a repair has drained it."""
        return self.is_out and self.reason.startswith(OURS)

    @property
    def is_reserve(self) -> bool:
        """Return True if it is a spare that can be taken."""
        return self.is_out and self.reason.startswith(RESERVE) and not self.is_absent

    @property
    def word(self) -> str:
        """The reason of somebody else who took it out; "" for none."""
        if self.is_maintained:
            return "maintenance in the scheduler"
        is_automatic = self.reason.startswith((*AUTOMATIC, *(OF_SLURM if self.is_absent else ())))
        is_told = self.reason.startswith(TOLD) and OURS not in self.reason
        is_others = self.is_out and (is_told or not is_automatic)
        return (self.reason or "out of service without a reason") if is_others else ""


@dataclass(frozen=True)
class Scheduler:
    """A scheduler: the command that lists its nodes, what reads it, and the commands that change a node."""

    listing: tuple[str, ...]
    read: Callable[[str], dict[str, NodeService]]
    drain: Callable[[str, str], list[str]]  # of node and reason
    restore: Callable[[str, str], list[str]]  # of node and the reason before the drain
    evict: Callable[[str], list[str]] | None = None  # asks the jobs of a drained node to leave, where something can


def _slurm(text: str) -> dict[str, NodeService]:
    try:
        nodes = read_nodes(text)
    except SchedulerError as error:
        raise RepairError(error.cause, error.remedy) from error
    return {
        name: NodeService(
            node.is_out,
            node.reason,
            not node.states.isdisjoint(_BUSY),
            node.is_absent,
            not node.states.isdisjoint(_MAINTAINED),
        )
        for name, node in nodes.items()
    }


def _slurm_drain(node: str, reason: str) -> list[str]:
    return ["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}"]


def _slurm_restore(node: str, old_reason: str) -> list[str]:
    is_kept = old_reason.startswith(AUTOMATIC[2:])
    return _slurm_drain(node, old_reason) if is_kept else ["scontrol", "update", f"NodeName={node}", "State=RESUME"]


def _kubernetes(text: str) -> dict[str, NodeService]:
    try:
        return _kubernetes_nodes(_json(text)["items"])
    except (KeyError, TypeError, AttributeError) as error:
        raise RepairError(f"the listing of nodes is not kubectl's: {error!r:.80}", "run it by hand") from error


def _kubernetes_nodes(items: Sequence[Any]) -> dict[str, NodeService]:
    absent = {item["metadata"]["name"] for item in items if item.get("kind") == "Node" and not _is_ready(item)}
    busy = {pod["spec"].get("nodeName") for pod in items if pod.get("kind") == "Pod" and _is_job(pod, absent)}
    nodes = {}
    for item in items:
        if item.get("kind") == "Node":
            name = item["metadata"]["name"]
            is_out = bool(item["spec"].get("unschedulable"))
            reason = (item["metadata"].get("annotations") or {}).get(ANNOTATION, "")
            is_known = is_out and not _cordoned_by_others(item["metadata"])
            nodes[name] = NodeService(is_out, reason if is_known else "", name in busy, name in absent)
    return nodes


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = node["status"].get("conditions", [])
    return [condition["status"] for condition in conditions if condition["type"] == "Ready"] == ["True"]


def _cordoned_by_others(metadata: Mapping[str, Any]) -> bool:
    """Return True if somebody else has cordoned the node last: our annotation may be of an earlier cordon.

    The API server notes who has set a field (Server-Side Apply, "Field management").
    """
    owners = [
        entry.get("manager")
        for entry in metadata.get("managedFields") or []
        if "f:unschedulable" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    return bool(owners) and MANAGER not in owners


def _is_job(pod: Mapping[str, Any], absent: Collection[str]) -> bool:
    """Return True for a pod that a repair would interrupt: not one of a DaemonSet or of the kubelet itself.

    A pod that was told to end on a node that does not answer stays until the node is back: nothing waits for it.
    """
    metadata = pod["metadata"]
    owners = {owner["kind"] for owner in metadata.get("ownerReferences", [])}
    is_given_up = "deletionTimestamp" in metadata and pod["spec"].get("nodeName") in absent
    is_live = pod["status"].get("phase") in ("Pending", "Running", "Unknown")
    return is_live and not is_given_up and owners.isdisjoint({"DaemonSet", "Node"})


def _patch(node: str, unschedulable: bool | None, reason: str | None) -> list[str]:
    patch = {"metadata": {"annotations": {ANNOTATION: reason}}, "spec": {"unschedulable": unschedulable}}
    options = ["--type=merge", f"--field-manager={MANAGER}", "--patch", json.dumps(patch, sort_keys=True)]
    return ["kubectl", "patch", "node", node, *options]


def _kubectl_drain(node: str) -> list[str]:
    """Return the command that evicts pods, which their disruption budgets may refuse until the timeout."""
    options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={EVICT_S}s")
    return ["kubectl", "drain", node, *options]


def _lsf(text: str) -> dict[str, NodeService]:
    """Read ``bhosts -l``: a host's block begins with HOST; its second line of STATUS has state and numbers of jobs."""
    nodes = {}
    for block in re.split(r"(?m)^HOST\s+", text)[1:]:
        name = block.partition("\n")[0].strip()
        row = re.search(r"(?m)^STATUS\s.*\n(\S+)\s+(.*)$", block)
        titles = re.search(r"(?m)^STATUS\s+(.*)$", block)
        if row is None or titles is None:
            raise RepairError(f"bhosts -l shows no STATUS of {name:.60}", "run it on a host of the cluster")
        fields = dict(zip(titles[1].split(), row[2].split()))
        is_absent = row[1] in ("unavail", "unreach")
        is_out = is_absent or row[1].startswith("closed_Adm")
        reason = _lsf_reason(block) if is_out else ""
        nodes[name] = NodeService(is_out, reason, fields.get("NJOBS") != "0", is_absent)
    return nodes


def _lsf_reason(block: str) -> str:
    """Return why a host is closed: the comment of somebody else if there is one, else ours.

    Each lock has a comment, and a host opens when its last lock is gone.
    """
    section = re.search(r"(?m)^\s*ADMIN ACTION COMMENTS?:?[ \t]*(.*(?:\n[ \t]*\S.*)*)", block)
    rows = [row.strip().strip('"') for row in section[1].splitlines()] if section else []
    # Titles of a table are in capitals.
    comments = [row for row in rows if row and row != row.upper()]
    foreign_rows = [row for row in comments if MANAGER not in row]
    ours = [row[row.index(OURS) :] for row in comments if OURS in row]
    return (foreign_rows or ours or [""])[0]


def _own(text: str) -> dict[str, NodeService]:
    nodes = {}
    for name, row in _json(text).items():
        if not isinstance(row, Mapping) or not isinstance(row.get("out"), bool):
            raise RepairError(f"the listing of nodes says {row!r:.60} of {name:.60}", 'write {"NODE": {"out": false}}')
        busy = row.get("busy")
        nodes[name] = NodeService(
            row["out"],
            str(row.get("reason") or ""),
            busy if isinstance(busy, bool) else None,
            row.get("absent") is True,
        )
    return nodes


def _json(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise RepairError(f"the listing of nodes is not JSON: {error}", "run its command by hand") from error
    if not isinstance(data, dict):
        raise RepairError("the listing of nodes is not an object of JSON", "run its command by hand")
    return data


SLURM, KUBERNETES, LSF, COMMAND, NONE = "slurm", "kubernetes", "lsf", "command", "none"
SCHEDULERS: dict[str, Scheduler] = {
    SLURM: Scheduler(("scontrol", "show", "node", "--oneliner"), _slurm, _slurm_drain, _slurm_restore),
    KUBERNETES: Scheduler(
        ("kubectl", "get", "nodes,pods", "--all-namespaces", "--output=json", "--show-managed-fields"),
        _kubernetes,
        lambda node, reason: _patch(node, True, reason),
        lambda node, _before: _patch(node, None, None),
        _kubectl_drain,
    ),
    # Never run: LSF could not be obtained.
    LSF: Scheduler(
        ("bhosts", "-l"),
        _lsf,
        lambda node, reason: ["badmin", "hclose", "-C", reason, "-i", MANAGER, node],
        lambda node, _before: ["badmin", "hopen", "-i", MANAGER, node],
    ),
    # The node's own health check is asked, and runs these itself.
    NONE: Scheduler(
        (),
        lambda _text: {},
        lambda _node, reason: ["sailloft-health", "drain", "--reason", reason],
        lambda _node, _before: ["sailloft-health", "undrain", "--only", REPAIR_PREFIX],
    ),
}


@dataclass(frozen=True)
class OwnCommands:
    """The site's own commands. Node and reason follow those of drain and return."""

    listing: Sequence[str] = ()
    drain: Sequence[str] = ()
    restore: Sequence[str] = ()


def scheduler_of(name: str, commands: OwnCommands = OwnCommands()) -> Scheduler:
    """Return a scheduler by its name. Raises RepairError."""
    if name != COMMAND:
        return SCHEDULERS[name]
    if not (commands.listing and commands.drain and commands.restore):
        raise RepairError("list, drain and return are needed", "set all three", subject="node_repair_commands")
    return Scheduler(
        tuple(commands.listing),
        _own,
        lambda node, reason: [*commands.drain, node, reason],
        lambda node, old_reason: [*commands.restore, node, old_reason],
    )
