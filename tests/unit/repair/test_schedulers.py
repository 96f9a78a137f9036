# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the lists of schedulers; the commands of a drain and its end."""

from __future__ import annotations

import json

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.repair.errors import RepairError
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.schedulers import (
    COMMAND,
    KUBERNETES,
    LSF,
    NONE,
    OURS,
    SLURM,
    NodeService,
    OwnCommands,
    scheduler_of,
)


def pod(name, node, phase="Running", owner="ReplicaSet"):
    metadata = {"name": name, "ownerReferences": [{"kind": owner}]}
    return {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase}}


def node(name, ready="True", **more):
    annotations = {"sailloft.io/repair": more["reason"]} if "reason" in more else {}
    spec = {"unschedulable": True} if more.get("cordoned") else {}
    conditions = [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}]
    return {
        "kind": "Node",
        "metadata": {"name": name, "annotations": annotations},
        "spec": spec,
        "status": {"conditions": conditions},
    }


def test_slurm():
    text = (
        "NodeName=a State=IDLE ThreadsPerCore=1\n"
        "NodeName=b State=MIXED+DRAIN ThreadsPerCore=1 Reason=ticket 7 [ada@2026-11-28T05:00:00]\n"
        "NodeName=c State=DOWN* ThreadsPerCore=1 Reason=Not responding [slurm@2026-11-28T05:00:00]\n"
        f"NodeName=d State=IDLE+DRAIN ThreadsPerCore=1 Reason={OURS}xid [root@2026-11-28T05:00:00]\n"
    )
    nodes = scheduler_of(SLURM).read(text)
    assert nodes["a"] == NodeService(False, "", False)
    assert nodes["b"] == NodeService(True, "ticket 7", True)
    assert [(nodes[name].word, nodes[name].is_ours, nodes[name].is_absent) for name in "abcd"] == [
        ("", False, False),
        ("ticket 7", False, False),
        ("", False, True),
        ("", True, False),
    ]


def test_slurm_gets_back_what_was_before():
    slurm = scheduler_of(SLURM)
    assert slurm.restore("a", "")[-1] == "State=RESUME"
    assert slurm.restore("a", "sailloft: sick: GPU 4")[-1] == "State=RESUME"
    for before in ("sailloft-spare: in reserve", "sailloft-gate: not proved yet"):
        assert slurm.restore("a", before)[-2:] == ["State=DRAIN", f"Reason={before}"]


def test_kubernetes():
    items = [
        node("a"),
        node("b", cordoned=True),
        node("c", cordoned=True, reason=f"{OURS}xid"),
        node("d", ready="Unknown"),
        pod("job", "a"),
        pod("exporter", "b", owner="DaemonSet"),
        pod("done", "c", phase="Succeeded"),
    ]
    kubernetes = scheduler_of(KUBERNETES)
    nodes = kubernetes.read(json.dumps({"items": items}))
    assert nodes["a"] == NodeService(False, "", True)
    assert nodes["b"] == NodeService(True, "", False)
    assert nodes["b"].word
    assert nodes["c"].is_ours
    assert nodes["d"].is_absent
    for command, unschedulable in ((kubernetes.drain("a", "why"), True), (kubernetes.restore("a", ""), None)):
        assert json.loads(command[-1])["spec"] == {"unschedulable": unschedulable}


def test_lsf():
    text = (
        "HOST  gpu-1\nSTATUS           CPUF  JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV DISPATCH_WINDOW\n"
        "ok              60.00     -     32      2      2      0      0      0      -\n\n CURRENT LOAD\n\n"
        "HOST  gpu-2\nSTATUS           CPUF  JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV DISPATCH_WINDOW\n"
        "closed_Adm      60.00     -     32      0      0      0      0      0      -\n\n"
        f' ADMIN ACTION COMMENT: "{OURS}xid"\n'
    )
    nodes = scheduler_of(LSF).read(text)
    assert nodes == {"gpu-1": NodeService(False, "", True), "gpu-2": NodeService(True, f"{OURS}xid", False)}
    with raises(RepairError, "gpu-3"):
        scheduler_of(LSF).read("HOST  gpu-3\nno status\n")


def test_own_commands():
    own = scheduler_of(COMMAND, OwnCommands(["list"], ["out"], ["in"]))
    assert own.drain("a", "why") == ["out", "a", "why"]
    assert own.restore("a", "before") == ["in", "a", "before"]
    assert own.read('{"a": {"out": true, "reason": "x", "busy": false}, "b": {"out": false}}') == {
        "a": NodeService(True, "x", False),
        "b": NodeService(False, "", None),
    }
    with raises(RepairError, "node_repair_commands"):
        scheduler_of(COMMAND, OwnCommands(["list"]))


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": {"out": "yes"}}'])
def test_a_listing_that_cannot_be_read(text):
    with raises(RepairError):
        scheduler_of(COMMAND, OwnCommands(["list"], ["out"], ["in"])).read(text)


def test_without_a_scheduler_the_node_is_drained_by_its_own_health_check():
    assert scheduler_of(NONE).drain("a", "why") == ["sailloft-health", "drain", "--reason", "why"]
