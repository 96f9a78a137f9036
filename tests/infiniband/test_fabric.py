# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A small fabric with the real opensm and ibsim: planned = found = routed, and each fault is named with its cause."""

from __future__ import annotations

import contextlib
import copy
import re
from pathlib import Path

import ib_sites
import pytest
import simulated_subnet
import sites
from messages import Mentions
from simulated_subnet import DiedError, Subnet

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Hca, fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.proof import prove
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.routes.tables import read_tables

MASTER, STANDBY = "node-1 mlx5_0", "node-3 mlx5_0"
SETTINGS = {
    "managers": [MASTER, STANDBY],
    "partitions": {
        "tenant_a": {"pkey": 1, "members": {"node-1": "full", "node-2": "full"}, "ipoib": True, "index0": True},
        "tenant_b": {"pkey": 2, "members": {"node-3": "full", "node-4": "limited"}, "service_level": 1},
    },
    "service_levels": {0: {"lane": 0}, 1: {"lane": 1, "high": True}},
}
SITE = ib_sites.tree()
FABRIC = fabric_of(SITE, "compute")
CABLES = simulated_subnet.cables(FABRIC)
GUIDS = simulated_subnet.guids_of(CABLES)


def planned(settings=None):
    return plan(SITE, "compute", settings or SETTINGS, GUIDS)


PLAN = planned()


def connected(*pairs):
    """Return the cables with other far ends: (one end, new far end)."""
    new = dict(pairs)
    return [(one, new.get(one, other)) for one, other in CABLES]


def without(*ends):
    return [cable for cable in CABLES if not {*cable} & {*ends} and not {cable[0][0], cable[1][0]} & {*ends}]


def proved(folder: Path, cables=CABLES, master=PLAN.files, standby=PLAN.files, slow=(), others=()):
    """Return the proof of a subnet; ``master`` and ``standby`` are the files of both, ``others`` further managers."""
    for attempt in range(3):
        with contextlib.suppress(DiedError):
            return _proved(folder / f"subnet{attempt}", cables, master, standby, slow, others)
    raise AssertionError("the managers died three times")


def _proved(folder, cables, master, standby, slow, others):
    with Subnet(folder, cables, slow) as subnet, contextlib.ExitStack() as stack:
        home = stack.enter_context(subnet.manager(MASTER, subnet.configure(MASTER, master, "opensm-node-1.conf")))
        running = {STANDBY: ("opensm-node-3.conf", standby)} if standby else {}
        running.update({host: ("opensm.conf", {"opensm.conf": "sm_priority 1\n"}) for host in others})
        for host, (name, files) in running.items():
            stack.enter_context(subnet.manager(host, subnet.configure(host, files, name)))
        subnet.sweep(MASTER, home, 1 + len(running))
        return prove(PLAN, subnet.readings(MASTER, home, {"node-1": master, "node-3": standby}))


def failures(proof):
    """Return what fails: layer and claim, and why."""
    return {(claim.layer, claim.claim): claim.reason for claim in proof.claims if claim.holds is False}


def test_a_fabric_as_planned_is_proved(tmp_path):
    proof = proved(tmp_path)
    assert failures(proof) == {}
    assert {layer: len(claims) for layer, claims in proof.by_layer().items()} == {
        "cables": 7,
        "routes": 11,
        "partitions": 4,
        "managers": 3,
    }
    assert proof.counts.not_applicable == 0


OTHERS = planned(
    {
        **SETTINGS,
        "partitions": {
            **SETTINGS["partitions"],
            "tenant_b": {"pkey": 2, "members": {"node-3": "full", "node-4": "full"}},
        },
    }
).files
BROKEN = {**PLAN.files, "partitions.conf": PLAN.files["partitions.conf"].replace("=full ; #", "=full #", 1)}
MUTATIONS = {
    "swapped pair": (
        {"cables": connected((("node-3 mlx5_0", 1), ("leaf-2-1", 2)), (("node-4 mlx5_0", 1), ("leaf-2-1", 1)))},
        {("cables", Mentions("node-3 mlx5_0 - leaf-2-1 ib1", "node-4 mlx5_0 - leaf-2-1 ib2")): Mentions("swap")},
    ),
    "crossed rail": (
        {"cables": connected((("node-2 mlx5_0", 1), ("leaf-1-2", 2)), (("node-2 mlx5_1", 1), ("leaf-1-1", 2)))},
        {
            ("cables", Mentions("node-2 mlx5_0 - leaf-1-1 ib2")): Mentions("swap"),
            ("routes", Mentions("leaf-1-1", "rail")): Mentions("mlx5_1"),
            ("routes", Mentions("leaf-1-2", "rail")): Mentions("mlx5_0"),
        },
    ),
    "missing spine": (
        {"cables": without("spine-2")},
        {("cables", Mentions("spine-2")): Mentions("4 cables", "turn it on")},
    ),
    "slow link": (
        {"slow": (("leaf-2-2", 3), ("spine-1", 4))},
        {("cables", Mentions("leaf-2-2 ib3 - spine-1 ib4")): Mentions("2.5 Gbit/s", "10 is planned")},
    ),
    "dead link": (
        {"cables": without(("leaf-1-2", 4))},
        {("cables", Mentions("leaf-1-2 ib4 - spine-2 ib2")): Mentions("connect the cable")},
    ),
    "wrong partition": (
        {"master": OTHERS},
        {
            ("partitions", Mentions("node-4")): Mentions("mlx5_1", "lacks 0x0002", "has 0x8002"),
            ("managers", Mentions("node-1")): Mentions("tenant_b"),
        },
    ),
    "error in partitions.conf": (
        {"master": BROKEN, "standby": BROKEN},
        {("partitions", Mentions("node-4")): Mentions("error in partitions.conf")},
    ),
    "second manager": (
        {"others": ["node-4 mlx5_1"]},
        {("managers", Mentions("subnet managers")): Mentions("node-4 mlx5_1", "not planned")},
    ),
    "standby with other settings": (
        {"standby": {**PLAN.files, "opensm-node-3.conf": "sm_priority 14\nrouting_engine minhop\n"}},
        {("managers", Mentions("node-3")): Mentions("sm_priority 14")},
    ),
    "no standby": (
        {"standby": {}},
        {("managers", Mentions("subnet managers")): Mentions("node-3 mlx5_0")},
    ),
    "a tree that ftree refuses": (
        {"cables": connected((("node-4 mlx5_1", 1), ("spine-1", 7)))},
        {("routes", Mentions("routing engine")): Mentions("ftree", "node-4 mlx5_1 is connected to switch spine-1")},
    ),
}


# One of cables and routes, one of partitions, one of managers; each takes seconds.
QUICK = {"crossed rail", "wrong partition", "standby with other settings"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in MUTATIONS]
)
def test_each_fault_is_named_with_its_cause(tmp_path, name):
    changes, expected = MUTATIONS[name]
    found = failures(proved(tmp_path, **changes))
    missing = [
        (claim, reason)
        for claim, reason in expected.items()
        if not any(layer == claim[0] and claim[1] == text and reason == why for (layer, text), why in found.items())
    ]
    assert missing == [], found


def test_paths_of_a_partition_have_its_service_level(tmp_path):
    partition = {**SETTINGS["partitions"]["tenant_a"], "service_level": 1}
    files = planned({**SETTINGS, "managers": [MASTER], "partitions": {"tenant_a": partition}}).files
    with (
        Subnet(tmp_path / "subnet", CABLES) as subnet,
        subnet.manager(MASTER, subnet.configure(MASTER, files, "opensm-node-1.conf")) as home,
    ):
        hcas = read_tables((home / "opensm-subnet.lst").read_text(), (home / "opensm-lfts.dump").read_text()).hcas
        ends = [str(hcas[Hca(host, "mlx5_0")]) for host in ("node-1", "node-2")]
        text = subnet.run(MASTER, "saquery", "PR", "--slid", ends[0], "--dlid", ends[1], "--pkey", "0x8001")
    assert re.findall(r"(?m)^\s*sl\.+(\S+)$", text) == ["0x1"], text


def test_leaves_with_free_places_are_proved(tmp_path):
    """ftree spreads the free places of a leaf over the up ports like HCAs; one of 4 hosts or 2 of them are missing."""
    tree = copy.deepcopy(ib_sites.TREE)
    tree["blocks"]["rack"]["count"] = 4
    tree["models"]["node"]["ports"]["hca"]["names"] = "mlx5_[0:0]"
    leaf = tree["models"]["leaf"]["ports"]
    leaf["down"]["names"], leaf["up"]["names"] = "ib[1:4]", "ib[5:8]"
    tree["devices"]["node"]["count"] = 4
    tree["devices"]["leaf"]["count"] = 1
    tree["devices"]["spine"]["count"] = 4
    site = sites.site(**tree)
    gone = {"node-4 mlx5_0", "node-11 mlx5_0", "node-12 mlx5_0"}
    links = [cable for cable in simulated_subnet.cables(fabric_of(site, "compute")) if cable[0][0] not in gone]
    filled = plan(site, "compute", {"managers": [MASTER]}, simulated_subnet.guids_of(links))
    with (
        Subnet(tmp_path / "subnet", links) as subnet,
        subnet.manager(MASTER, subnet.configure(MASTER, filled.files, "opensm-node-1.conf")) as home,
    ):
        proof = prove(filled, subnet.readings(MASTER, home, {"node-1": filled.files}))
    ports = {claim.claim: claim for claim in proof.claims if "up port" in claim.claim}
    assert {claim.holds for claim in ports.values()} == {True}
    assert ports["leaf-2-1: HCAs by up port"].seen == "1 to 3"
    assert [claim.holds for claim in proof.claims if "shift" in claim.claim] == [True]
