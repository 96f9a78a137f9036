# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rails and planes that follow from the links, and NICs at the switch of another one."""

from __future__ import annotations

import pytest
from messages import Mentions
from proof_requests import params as proof_request

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.links import Cabling, End
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import report
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.rails import Rails
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.proof import prove


def rail_links(hosts=4, nics=2, leaf_of=lambda _host, nic: f"leaf{nic}", unit="", first=0):
    """Return the links of hosts to the leaves of a unit, of these to the spine of their rail, and of it to the core."""
    links = [
        (End(f"gpu{host}", f"mlx5_{nic}"), End(leaf_of(host, nic) + unit, f"h{host}-{nic}"))
        for host in range(first, first + hosts)
        for nic in range(nics)
    ]
    for nic in range(nics):
        links.append((End(f"leaf{nic}{unit}", "up"), End(f"spine{nic}", f"down{unit}")))
        links.append((End(f"spine{nic}", "up"), End("core", f"down{nic}")))
    return links


def rails(links, carried_by=None):
    switches = {end.device for link in links for end in link if not end.device.startswith(("gpu", "vm", "store"))}
    return Rails(Cabling(links, switches), carried_by or {})


def found(links):
    """Return the place of each finding, what is wanted there, and what is seen."""
    return [(str(end).strip(), finding.wanted, finding.seen) for end, finding in rails(links).findings()]


def places(links):
    return [place for place, _wanted, _seen in found(links)]


def exchanged(host, nic):
    """Connect the NICs of each second host to the leaf of the other one."""
    return f"leaf{1 - nic if host % 2 else nic}"


@pytest.mark.parametrize(
    ("place", "title"),
    [
        ("gpu2 mlx5_1", "rail mlx5_1"),
        ("leaf0 h1-0, in", "rail mlx5_0"),
        ("leaf1", "rail mlx5_1"),
        ("spine1 down, out", "rail mlx5_1"),
        ("core down0 - spine0 up", "rail mlx5_0"),
        ("gpu0 mlx5_0 VF 3", "rail mlx5_0"),
        ("core down0, in", ""),
        ("gpu2 NCCL", ""),
        ("lossless links", ""),
    ],
)
def test_each_part_belongs_to_the_rail_of_its_switches(place, title):
    assert rails(rail_links()).title(place) == title


def test_switches_that_serve_several_nics_are_a_plane():
    links = rail_links(nics=4, leaf_of=lambda _host, nic: f"leaf{nic % 2}")
    assert rails(links).title("gpu0 mlx5_2") == "plane mlx5_[0,2]"


def test_a_guest_belongs_to_the_rail_of_its_port():
    made = rails(rail_links(), {End("vm1", "mlx5_7"): End("gpu1", "mlx5_1")})
    assert made.title("vm1 mlx5_7") == "rail mlx5_1"
    assert made.title("vm1 NCCL") == ""


def test_switches_that_serve_all_nics_are_no_rails():
    links = rail_links(leaf_of=lambda host, _nic: f"leaf{host % 2}")
    assert [rails(links).title(place) for place in ("gpu0 mlx5_0", "leaf0", "spine1")] == ["", "", ""]
    assert found(links) == []


OTHER_UNIT = rail_links(unit="b", first=4)
STORE = [(End("store1", "mlx5_1"), End("leaf0", "store1"))]


@pytest.mark.parametrize("others", [[], OTHER_UNIT, STORE])
def test_a_nic_at_the_switch_of_another_rail_is_named(others):
    """The two cables of gpu3 are exchanged."""
    links = rail_links(leaf_of=lambda host, nic: f"leaf{1 - nic if host == 3 else nic}")
    assert found([*links, *others]) == [("gpu3 mlx5_1", "leaf1", "leaf0"), ("gpu3 mlx5_0", "leaf0", "leaf1")]


def test_a_nic_at_a_switch_beside_its_plane_is_named_once():
    links = rail_links(nics=4, leaf_of=lambda host, nic: f"leaf{(nic + (host == 3 and nic < 2)) % 2}")
    assert found(links) == [("gpu3 mlx5_1", "leaf1", "leaf0"), ("gpu3 mlx5_0", "leaf0", "leaf1")]


@pytest.mark.parametrize("others", [[], OTHER_UNIT, STORE])
def test_half_of_the_hosts_decide_nothing_even_beside_another_unit(others):
    assert [(place, seen) for place, _wanted, seen in found([*rail_links(leaf_of=exchanged), *others])] == [
        ("leaf0", "mlx5_0 of gpu[0,2] at h[0,2]-0; mlx5_1 of gpu[1,3] at h[1,3]-1"),
        ("leaf1", "mlx5_0 of gpu[1,3] at h[1,3]-0; mlx5_1 of gpu[0,2] at h[0,2]-1"),
    ]


def test_half_of_the_hosts_decide_nothing_of_a_plane():
    """Two cables of half of the hosts are exchanged, at leaves of two NICs each."""
    links = rail_links(nics=4, leaf_of=lambda host, nic: f"leaf{(nic + (host % 2 and nic < 2)) % 2}")
    assert [(place, "mlx5_0" in seen, "mlx5_2" in seen) for place, _wanted, seen in found(links)] == [
        ("leaf0", True, False),
        ("leaf1", True, False),
    ]


@pytest.mark.parametrize("hosts", [3, 6, 7, 12])
@pytest.mark.parametrize("right", [0, 1])
def test_cables_of_three_rails_that_rotate_decide_nothing(hosts, right):
    """A third of the hosts, or less, is right; each other third has its cables one or two rails further."""
    links = rail_links(hosts, 3, lambda host, nic: f"leaf{(nic + (host % 3 if host >= right else 0)) % 3}")
    assert places([*links, *rail_links(hosts, 3, unit="b", first=hosts)]) == ["leaf0", "leaf1", "leaf2"]


def test_more_than_half_decide_where_the_others_rotate():
    links = rail_links(10, 3, lambda host, nic: f"leaf{(nic + max(host - 7, 0)) % 3}")
    assert sorted(places(links)) == [f"gpu{host} mlx5_{nic}" for host in (8, 9) for nic in range(3)]


@pytest.mark.parametrize(("units", "switches"), [(2, ["spine0", "spine1"]), (3, [])])
def test_a_unit_that_is_exchanged_as_a_whole_is_found_above(units, switches):
    links = [link for unit in range(units) for link in rail_links(2, unit="abc"[unit], first=2 * unit)]
    wrong = rail_links(2, unit="a", leaf_of=lambda _host, nic: f"leaf{1 - nic}")
    nics = [f"gpu{host} mlx5_{nic}" for nic in (1, 0) for host in range(2)]
    assert places([*wrong, *(link for link in links if link not in rail_links(2, unit="a"))]) == [
        *switches,
        *(nics if units == 3 else []),
    ]


def test_hosts_are_not_compared_above_leaves_whose_links_are_not_known():
    links = [*rail_links(), *(link for link in OTHER_UNIT if link[0] != End("leaf0b", "up"))]
    assert found(links) == []


@pytest.mark.parametrize(
    "links",
    [
        rail_links(),
        [*rail_links(), *OTHER_UNIT],
        [*rail_links(), *STORE],
        rail_links(hosts=2, leaf_of=lambda host, _nic: f"leaf{host}"),
        [*rail_links(hosts=1), *STORE],
        rail_links(nics=4, leaf_of=lambda _host, nic: f"leaf{nic % 2}"),
    ],
)
def test_nothing_is_found_where_hosts_are_alike_or_have_other_nics(links):
    assert found(links) == []


def two_rails(swapped, hosts=(1, 2, 3)):
    """Return the arguments for a fabric of hosts with two NICs at two leaves, those of gpu3 exchanged or not."""
    request = proof_request("eos")
    names = list(request["switches"]["leaf1"]["ports"])[:1]
    speed = request["switches"]["leaf1"]["ports"][names[0]]
    reading = request["nics"]["gpu1"]["mlx5_0"]
    for number, leaf in enumerate(("leaf1", "leaf2")):
        del request["switches"][leaf]["ports"][names[0]]
        for host in hosts:
            nic = 1 - number if swapped and host == 3 else number
            peer = {"host": f"gpu{host}", "port": f"mlx5_{nic}"}
            request["switches"][leaf]["ports"][f"Ethernet{20 + host}/1"] = {**speed, "peer": peer}
    nics = {name: {**reading, "name": name} for name in ("mlx5_0", "mlx5_1")}
    request["nics"] = {f"gpu{host}": nics for host in hosts}
    request["applications"] = {host: [{"name": "NCCL", "tos": 106, "queue_pairs": 4}] for host in request["nics"]}
    return request


def test_the_proof_names_the_rail_of_a_broken_hop_and_a_nic_of_another_rail():
    request = two_rails(swapped=True)
    result = report.checked({**request, "paths": [], "rdma_class": None, "thresholds": True})
    strays = [(fault["where"], fault["rail"], fault["seen"]) for fault in result["faults"] if fault["seen"] == "leaf1"]
    assert strays == [("gpu3 mlx5_1", "rail mlx5_1", "leaf1")]
    failed = [claim.claim for claim in prove(request)[0].claims if claim.holds is False]
    assert [claim for claim in failed if claim.startswith("gpu3 mlx5_1 (rail mlx5_1): ")]
    held = [claim.claim for claim in prove(two_rails(swapped=False))[0].claims if claim.holds]
    assert any(claim.startswith("gpu3 mlx5_1 (rail mlx5_1): ") for claim in held)
    assert not any("gpu3" in claim.claim for claim in prove(two_rails(swapped=False))[0].claims if claim.holds is False)


def test_the_proof_fails_where_the_rail_cannot_be_told():
    request = two_rails(swapped=True, hosts=(2, 3))
    faults = report.checked({**request, "paths": [], "rdma_class": None, "thresholds": True})["faults"]
    assert [
        (fault["where"], fault["seen"]) for fault in faults if fault["consequence"] == Mentions("1 of 2 hosts")
    ] == [
        ("leaf1", "mlx5_0 of gpu2 at Ethernet22/1; mlx5_1 of gpu3 at Ethernet23/1"),
        ("leaf2", "mlx5_0 of gpu3 at Ethernet23/1; mlx5_1 of gpu2 at Ethernet22/1"),
    ]
    failed = [claim.claim for claim in prove(request)[0].claims if claim.holds is False and "1 of 2" in claim.reason]
    assert [claim.partition(":")[0] for claim in failed] == ["leaf1", "leaf2"]
