# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A path over four switches on which everything complies with the policy, and changes of single settings."""

from __future__ import annotations

from dataclasses import replace

from roce_path import LEAVES, LINKS, SPINES, nic
from switches import port_qos

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.links import Cabling, End
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Application, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import SeenNic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.follow import (
    Checker,
    PathHost,
    ReadBack,
    claims,
    follow,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy

START, GOAL = End("gpu1", "mlx5_0"), End("gpu2", "mlx5_0")


def site(given=None):
    """Return a policy, and a fabric of four switches on which everything complies with it."""
    policy = read_policy(given)
    apps = (Application("NCCL", policy.classes[0].tos, queue_pairs=4),)
    hosts = {name: PathHost({"mlx5_0": SeenNic(nic(policy))}, apps) for name in ("gpu1", "gpu2")}
    fabric = Cabling(LINKS, [*LEAVES, *SPINES])
    qos = port_qos(policy)
    switches = {
        name: Switch(name, "any", {end.port: qos for end in fabric.peer if end.device == name}, policy.ecmp_fields)
        for name in fabric.switches
    }
    return policy, fabric, ReadBack(hosts, switches, switches)


def checked(policy, fabric, seen, at=0):
    return follow(fabric, START, GOAL, Checker(policy, policy.classes[at], seen))


def claimed(parts, holds):
    """Return the claims about ``parts`` that hold (True), fail (False) or cannot be made (None)."""
    return [claim for claim in claims(parts, "test") if claim.holds is holds]


def first_fault(parts):
    """Return the claim about the first broken hop."""
    return next(iter(claimed(parts, False)), None)


def port(seen, switch, name, **changes):
    """Return ``seen`` with another QoS on one port."""
    old = seen.switches[switch]
    new = replace(old, ports={**old.ports, name: replace(old.ports[name], **changes)})
    return replace(seen, switches={**seen.switches, switch: new})


def host(seen, name, cannot=None, **changes):
    """Return ``seen`` with another NIC in one host; ``cannot``: why settings of ``changes`` are missing."""
    old = seen.hosts[name]
    nic_there = old.nics["mlx5_0"]
    other = replace(nic_there, nic=replace(nic_there.nic, **changes), cannot=cannot or {})
    return replace(seen, hosts={**seen.hosts, name: replace(old, nics={"mlx5_0": other})})


def app(seen, **changes):
    old = seen.hosts["gpu1"]
    return replace(
        seen, hosts={**seen.hosts, "gpu1": replace(old, applications=(replace(old.applications[0], **changes),))}
    )


POLICY, FABRIC, SEEN = site()


QOS = port_qos(POLICY)
