# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Neighbours are compared with the blueprint: each mutation of a correct cabling is reported, and nothing else."""

from __future__ import annotations

import pytest
import sites
from hypothesis import given
from hypothesis import strategies as st
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.compare import cabling_proof
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.compare import compare as judged
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import InfinibandLink, Neighbour
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import interfaces, planned

SITE = sites.site()
NAMES = interfaces(SITE)
PLANNED = planned(SITE)


def compare(*given):
    """Return the faults and the counts."""
    return judged(*given).counts()


def plugged():
    """Return the ends of all cables as they are plugged."""
    return [((c.a.name, NAMES[c.a.name, c.a_port]), (c.b.name, NAMES[c.b.name, c.b_port])) for c in SITE.cables]


def view(cables, without=()):
    """Return the neighbours that each device sees, except for the devices that are not read."""
    seen = {name: {} for name in SITE.devices if name not in without}
    for one, other in cables:
        for near, far in ((one, other), (other, one)):
            if near[0] in seen:
                seen[near[0]][near[1]] = Neighbour(far[0], (far[1],))
    return seen


def kinds(found):
    return [fault.kind for fault in found["faults"]]


def test_correct_cabling_has_no_faults():
    found = compare(PLANNED, view(plugged()))
    assert found == {"faults": [], "right": 32, "wrong": 0, "unread": 0}


def test_cables_that_were_not_read_are_counted_as_unread():
    assert compare(PLANNED, {}) == {"faults": [], "right": 0, "wrong": 0, "unread": 32}
    found = compare(PLANNED, view(plugged(), without=("gpu01", "leaf1-1")))
    assert found == {"faults": [], "right": 30, "wrong": 0, "unread": 2}


@given(st.integers(0, 31))
def test_a_missing_cable_is_found(at):
    cables = plugged()
    (one, other) = cables.pop(at)
    found = compare(PLANNED, view(cables))
    assert kinds(found) == ["missing"]
    assert found["faults"][0].cable == f"{' '.join(one)} - {' '.join(other)}"
    assert (found["right"], found["wrong"]) == (31, 1)


@given(st.integers(0, 31), st.integers(0, 31))
def test_two_exchanged_cables_are_reported_as_swapped(first, second):
    cables = plugged()
    (a, b), (c, d) = cables[first], cables[second]
    if first == second:
        return
    cables[first], cables[second] = (a, d), (c, b)
    if a[0] == d[0] or c[0] == b[0]:
        return
    found = compare(PLANNED, view(cables))
    assert kinds(found) == ["swapped"]
    message = found["faults"][0].message
    for cable in (f"{' '.join(a)} - {' '.join(b)}", f"{' '.join(c)} - {' '.join(d)}"):
        assert cable in message
    assert (found["right"], found["wrong"]) == (30, 2)


def test_three_cables_exchanged_in_a_ring_are_reported_as_wrong():
    cables = plugged()
    (a, b), (c, d), (e, f) = cables[0], cables[5], cables[10]
    cables[0], cables[5], cables[10] = (a, d), (c, f), (e, b)
    found = compare(PLANNED, view(cables))
    assert set(kinds(found)) == {"wrong"}
    assert (found["right"], found["wrong"]) == (29, 3)


@given(st.integers(0, 31), st.booleans())
def test_a_cable_that_only_one_end_sees_is_reported_as_one_sided(at, first):
    cables = plugged()
    seen = view(cables)
    blind, sees = cables[at] if first else cables[at][::-1]
    del seen[blind[0]][blind[1]]
    found = compare(PLANNED, seen)
    assert kinds(found) == ["one-sided"]
    assert found["faults"][0].message.startswith(
        f"{' '.join(sees)} sees {' '.join(blind)}, but {' '.join(blind)} sees nothing"
    )


def test_a_cable_in_an_unplanned_port_is_reported_as_wrong():
    cables = plugged()
    one, other = cables[0]
    cables[0] = (one, (other[0], "Ethernet99"))
    found = compare(PLANNED, view(cables))
    assert kinds(found) == ["wrong"]
    assert found["faults"][0].message == Mentions("gpu01 ens1f0np0", "leaf1-1 Ethernet99", "leaf1-1 Ethernet0")


def test_a_link_with_another_speed_is_reported():
    speeds = {"gpu02": {"ens1f0np0": 25, "ens1f1np0": 100, "ens2f0np0": -1}}
    found = compare(PLANNED, view(plugged()), speeds)
    assert kinds(found) == ["speed"]
    assert found["faults"][0].message == Mentions("gpu02 ens1f0np0", "25", "100")


def test_domain_names_port_descriptions_and_unknown_devices_cause_no_faults():
    seen = view(plugged())
    seen["gpu01"]["ens1f0np0"] = Neighbour("leaf1-1.example.com", ("etp1", "Ethernet0"))
    seen["gpu01"]["eno1"] = Neighbour("office-switch", ("1",))
    assert compare(PLANNED, seen)["faults"] == []


def test_ports_that_their_system_does_not_see_are_checked_from_the_other_end():
    ports = {**sites.DATA["models"]["server"]["ports"]["nic"], "lldp": False}
    site = sites.site(models__server__ports__nic=ports)
    cables = plugged()
    uplinks = cables[16:]
    assert compare(planned(site), view(uplinks)) == {"faults": [], "right": 16, "wrong": 0, "unread": 16}
    # The switch sees the planned cables, and the servers see no neighbours.
    seen = view(plugged())
    for name in ("gpu01", "gpu02", "gpu03", "gpu04"):
        seen[name] = {}
    assert compare(planned(site), seen) == {"faults": [], "right": 32, "wrong": 0, "unread": 0}
    # The switch sees another device of the site at that port.
    crossed = [*uplinks, (("spine1", "Ethernet99"), ("leaf1-1", "Ethernet0"))]
    found = compare(planned(site), view(crossed))
    assert kinds(found) == ["wrong"]
    assert found["unread"] == 15


def test_an_unplanned_link_is_found():
    found = compare(PLANNED, view([*plugged(), (("gpu01", "eno9"), ("gpu02", "eno9"))]))
    assert kinds(found) == ["unplanned"]


def infiniband(site):
    names = interfaces(site)
    links = []
    for cable in site.cables:
        if cable.rule.infiniband:
            ends = []
            for device, port in ((cable.a, cable.a_port), (cable.b, cable.b_port)):
                switch = names[device.name, port].startswith("ib")
                name = f"MF0;{device.name}:MQM9700/U1" if switch else f"{device.name} {port}"
                ends.append((name, int(port[2:]) if switch else 1))
            links.append(InfinibandLink(*sorted(ends), cable.speed_gbit_s))
    return links


@pytest.fixture(scope="module")
def blue_vela():
    return sites.example("blue_vela")


def test_faults_of_infiniband_cables_are_found(blue_vela):
    links = infiniband(blue_vela)
    found = compare(planned(blue_vela), {}, None, links)
    others = len(blue_vela.cables) - len(links)
    assert found == {"faults": [], "right": len(links), "wrong": 0, "unread": others}
    found = compare(planned(blue_vela), {}, None, links[1:])
    assert kinds(found) == ["missing"]
    (a, b, speed), (c, d, _speed) = links[0], links[9000]
    swapped = [*links[1:9000], *links[9001:], InfinibandLink(a, d, speed), InfinibandLink(c, b, speed)]
    assert kinds(compare(planned(blue_vela), {}, None, swapped)) == ["swapped"]
    slow = [links[0]._replace(speed_gbit_s=200), *links[1:]]
    assert kinds(compare(planned(blue_vela), {}, None, slow)) == ["speed"]


def test_the_proof_names_devices_without_faults_faults_and_what_was_not_read():
    cables = plugged()
    (one, other) = cables.pop(0)
    proof = cabling_proof(PLANNED, judged(PLANNED, view(cables)))
    (failed,) = [claim for claim in proof.claims if claim.holds is False]
    assert (failed.claim, failed.seen) == (f"{' '.join(one)} - {' '.join(other)}: the link", "missing")
    assert proof.counts.held == len({end.device for link in PLANNED.links for end in (link.one, link.other)}) - 2
    assert cabling_proof(PLANNED, judged(PLANNED, view(plugged()))).holds
    nothing = cabling_proof(PLANNED, judged(PLANNED, {}))
    assert {(claim.layer, claim.seen) for claim in nothing.claims} == {("unread", None)}


def test_two_exchanged_cables_are_two_links_of_the_proof():
    (one, far), (other, beyond), *rest = plugged()
    crossed = [(one, beyond), (other, far), *rest]
    proof = cabling_proof(PLANNED, judged(PLANNED, view(crossed)))
    failed = {claim.claim for claim in proof.claims if claim.holds is False}
    assert failed == {f"{' '.join(a)} - {' '.join(b)}: the link" for a, b in ((one, far), (other, beyond))}
