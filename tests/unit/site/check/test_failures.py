# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Failures that a fabric survives, compared with a search of the whole graph for each loss."""

from __future__ import annotations

import pytest
import sites
from hypothesis import given

from ansible_collections.sailloft.fleet.plugins.module_utils.site.check.fabric import nic_of
from ansible_collections.sailloft.fleet.plugins.module_utils.site.check.failures import (
    articulation_points,
    check_failures,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.site import expand
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.read import read


def found(site):
    return [finding for promise in site.blueprint.promises for finding in check_failures(site, promise)]


def connected(site, cables):
    """Return True if a walk from each host over switches reaches a switch and all other hosts."""
    switches = {rule.to for rule in site.blueprint.links}
    ways = {}
    for cable in cables:
        ways.setdefault(cable.a, set()).add(cable.b)
        ways.setdefault(cable.b, set()).add(cable.a)
    hosts = {cable.a for cable in site.cables if cable.a.kind.name not in switches}
    for start in hosts:
        seen, ahead = {start}, [start]
        while ahead:
            device = ahead.pop()
            if device is start or device.kind.name in switches:
                more = ways.get(device, set()) - seen
                seen |= more
                ahead += more
        if hosts - seen or not ways.get(start):
            return False
    return True


def losses(site):
    """Return {what is lost: True if the site survives each loss of one}."""
    held = {}
    for kind in ("leaf", "spine"):
        held[kind] = all(
            connected(site, [cable for cable in site.cables if lost not in (cable.a, cable.b)])
            for lost in site.by_kind[kind]
        )
    nics = {(cable.a, nic_of(cable.a, "nic", cable.a_port)) for cable in site.cables if cable.a.kind.name == "node"}
    held["nic"] = all(
        connected(
            site, [c for c in site.cables if (c.a, c.a.kind.name == "node" and nic_of(c.a, "nic", c.a_port)) != nic]
        )
        for nic in nics
    )
    return held


@given(sites.blueprints())
def test_survived_failures_agree_with_a_search_of_the_graph(data):
    site = expand(read({**data, "checks": {}}))
    whole = connected(site, site.cables)
    held = losses(site)
    for lost, survives in held.items():
        promised = expand(read({**data, "checks": {"fabric": {"survives": [lost]}}}))
        assert (not found(promised)) == (whole and survives), lost


def test_the_declared_failures_of_the_examples_are_survived():
    for name in ("vela", "blue_vela", "small"):
        assert found(sites.example(name)) == []


def test_a_loss_is_reported_with_the_hosts_that_it_cuts_off():
    one_leaf = {"names": "Down[0:31]", "speed_gbit_s": 100}
    site = sites.site(devices__leaf__count=1, models__leaf__ports__down=one_leaf, checks__fabric={"survives": ["leaf"]})
    assert [str(finding) for finding in found(site)] == [
        "leaf1-1: its loss cuts off gpu[01-02] in fabric (rule: any one leaf lost)",
        "leaf2-1: its loss cuts off gpu[03-04] in fabric (rule: any one leaf lost)",
    ]


def test_the_loss_of_the_only_spine_is_found():
    site = sites.site(devices__spine__count=1, checks__fabric={"survives": ["spine"]})
    (finding,) = found(site)
    assert finding.offender == "spine1"
    assert finding.rule == "any one spine lost"


def test_the_loss_of_a_single_nic_is_found():
    site = sites.site(models__server__ports__nic__nic_ports=4, checks__fabric={"survives": ["nic"]})
    (finding,) = found(site)
    assert finding.offender == "gpu[01-04]"
    assert finding.message == "without its NIC nic 0 it is cut off from fabric"


def test_hosts_that_are_not_connected_without_a_failure_are_found():
    site = sites.site(links__uplink=None, checks__fabric={"survives": ["nic"]})
    (finding,) = found(site)
    assert (finding.rule, finding.offender) == ("all hosts connected", "gpu[03-04]")


def test_the_loss_of_one_of_two_different_nics_is_found():
    """The servers of rack 1 have all ports of their first NIC at a leaf without uplinks."""
    ports = {"names": "Down[0:31]", "speed_gbit_s": 100}
    alone = {"from": "node", "ports": "other", "to": "alone", "to_ports": "down", "medium": "dac", "fabric": "fabric"}
    site = sites.site(
        models__server__ports__other={"names": "mlx5_9", "speed_gbit_s": 100},
        models__alone={"watts": 100, "ports": {"down": ports}},
        devices__alone={"model": "alone", "per": "rack", "unit": 20, "name": "alone{n}"},
        links__alone=alone,
        models__server__ports__nic__nic_ports=4,
        checks__fabric={"survives": ["nic", "alone", "leaf", "spine"]},
    )
    # Without the NIC of four ports, a server reaches only the servers of its rack.
    assert [str(finding) for finding in found(site)] == [
        "gpu[01-04]: without its NIC nic 0 it is cut off from fabric (rule: any one NIC lost)"
    ]


def test_the_loss_of_a_switch_that_joins_two_parts_is_found():
    site = sites.from_text(
        sites.TEXT.replace("spine: {model: spine, count: 2", "spine: {model: spine, count: 1")
        .replace("each: 2", "each: 1")
        .replace("oversubscription: 1, ", ""),
        "site.yml",
    )
    assert [str(finding) for finding in found(site)] == [
        "site.yml:41: spine1: its loss cuts off gpu[03-04] in fabric (rule: any one spine lost)"
    ]


def test_a_fabric_without_hosts_survives_every_failure():
    peers = {"from": "leaf", "ports": "up", "to": "leaf", "to_ports": "up", "each": 1, "medium": "dac"}
    assert found(sites.site(links__uplink=peers, checks={"uplink": {"survives": ["leaf", "nic"]}})) == []


def test_one_host_survives_only_failures_that_leave_it_a_switch():
    changes = {"devices__node__total": 1, "blocks__rack__count": 1, "checks__fabric": {"survives": ["leaf", "nic"]}}
    assert found(sites.site(**changes)) == []
    down = {"names": "Down[0:31]", "speed_gbit_s": 100}
    site = sites.site(**changes, devices__leaf__count=1, models__leaf__ports__down=down)
    assert [str(finding) for finding in found(site)] == [
        "leaf1-1: its loss cuts off gpu01 in fabric (rule: any one leaf lost)"
    ]


# Graphs as lists of edges, and the vertices whose loss splits a part of them.
GRAPHS = {
    "no edge": ("", "a b", ""),
    "one edge": ("ab", "", ""),
    "path": ("ab bc cd", "", "b c"),
    "path from its middle": ("ba bc", "", "b"),
    "ring": ("ab bc cd da", "", ""),
    "ring with a tail": ("ab bc ca cd", "", "c"),
    "two rings with a common vertex": ("ab bc ca cd de ec", "", "c"),
    "two rings with an edge between them": ("ab bc ca cd de ef fd", "", "c d"),
    "star": ("sa sb sc", "", "s"),
    "two parts": ("ab bc xy yz", "", "b y"),
    "complete": ("ab ac ad bc bd cd", "", ""),
    "two leaves and two spines": ("ls lt ms mt", "", ""),
    "two leaves and one spine": ("ls ms", "", "s"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_articulation_points_are_the_vertices_whose_loss_splits_a_part(name):
    edges, single, points = (part.split() for part in GRAPHS[name])
    vertices = sorted({*"".join(edges), *single})
    # The result does not depend on the order of the vertices, and so on the root of the search.
    for first in vertices:
        graph = {each: set() for each in sorted(vertices, key=lambda each, first=first: (each != first, each))}
        for one, other in edges:
            graph[one].add(other)
            graph[other].add(one)
        assert articulation_points(graph) == set(points)
