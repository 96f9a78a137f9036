# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Routes are followed through made-up tables of trees that hold, and of trees with one fault each."""

from __future__ import annotations

import copy
import re

import ib_sites
import made_up_dumps
import pytest
import sites
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import Hca, fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.marks import Marks
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.routes.claims import route_claims
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.routes.tables import read_tables

ORDER = "opensm: links that a shift"


def dumps():
    return made_up_dumps.Dumps(fabric_of(ib_sites.tree(), "compute"))


def claims(made, fabric=None):
    tables = read_tables(made.links_text(), made.forwarding_text(), made.order_text())
    return list(route_claims(fabric or made.fabric, tables, Marks()))


def failing(made, fabric=None):
    return {claim.claim: claim for claim in claims(made, fabric) if claim.holds is not True}


def test_a_tree_as_planned_holds():
    assert failing(dumps()) == {}
    assert len(claims(dumps())) == 5 + 4 + 1


def test_a_route_to_no_port_is_named():
    made = dumps()
    del made.forwarding["spine-1"][Hca("node-3", "mlx5_0")]
    claim = failing(made)["opensm: every HCA reaches every other one"]
    assert claim.seen < claim.wanted
    assert claim.reason == Mentions("leaf-1-1 to node-3 mlx5_0", "spine-1 sends it to no port")
    # Shifts are not counted as held where a path is missing.
    assert [text for text in failing(made) if text.startswith(ORDER)]


def test_a_route_to_the_wrong_hca_and_a_loop_are_named():
    made = dumps()
    made.forwarding["leaf-1-1"][Hca("node-1", "mlx5_0")] = 2
    claim = failing(made)["opensm: every HCA reaches every other one"]
    assert claim.reason == Mentions("leaf-1-1 sends it to port 2")
    made = dumps()
    hca = Hca("node-3", "mlx5_0")
    made.forwarding["spine-1"][hca] = made.fabric.uplinks[2][1].number  # leaf-1-2
    made.forwarding["leaf-1-2"][hca] = 3
    claim = failing(made)["opensm: every HCA reaches every other one"]
    assert claim.reason == Mentions("loop", "leaf-1-2", "spine-1")


def test_an_hca_that_opensm_does_not_see_is_named():
    made = dumps()
    whole = fabric_of(ib_sites.tree(), "compute")
    gone = Hca("node-2", "mlx5_1")
    del made.fabric.hcas[gone]
    for ports in made.forwarding.values():
        del ports[gone]
    claim = failing(made, whole)["opensm: every HCA reaches every other one"]
    assert claim.reason == Mentions("node-2 mlx5_1")


def test_a_credit_loop_is_shown_with_its_ports():
    """Four paths that go down and up again, each over two links of a ring of leaves and spines."""
    made = dumps()
    up = {(low.switch, high.switch): (low.number, high.number) for low, high in made.fabric.uplinks}
    ring = ["leaf-1-1", "spine-1", "leaf-2-1", "spine-2"]

    def port(one, other):
        return up[one, other][0] if (one, other) in up else up[other, one][1]

    # To an HCA of leaf-1-2 from the ring's leaves, and to one of leaf-2-2, each the long way round.
    first, second = Hca("node-1", "mlx5_1"), Hca("node-3", "mlx5_1")
    for hca, start in ((first, 0), (second, 2)):
        for step in range(2):
            one, other = ring[(start + step) % 4], ring[(start + step + 1) % 4]
            made.forwarding[one][hca] = port(one, other)
        last = ring[(start + 2) % 4]
        made.forwarding[last][hca] = port(last, ring[(start + 3) % 4])
    claim = failing(made)["opensm: no links that wait for each other (credit loop)"]
    assert claim.seen == Mentions("leaf-1-1 port 3", "spine-2")
    assert claim.seen.count("->") == 4


def test_uneven_loads_and_shared_links_are_named():
    made = dumps()
    for hca in made.forwarding["leaf-1-1"]:
        if hca.host in ("node-3", "node-4"):
            made.forwarding["leaf-1-1"][hca] = 3
    found = failing(made)
    assert found["leaf-1-1: HCAs by up port"].reason == Mentions("port 3 has 5 HCAs")
    (shift,) = (claim for text, claim in found.items() if text.startswith(ORDER))
    assert shift.seen >= 1
    assert shift.reason == Mentions("leaf-1-1 port 3", "shift 2", "node-1 mlx5_0 to node-3 mlx5_0")


def test_a_crossed_rail_is_named_at_both_leaves():
    made = dumps()
    one, other = Hca("node-1", "mlx5_0"), Hca("node-1", "mlx5_1")
    hcas = made.fabric.hcas
    hcas[one], hcas[other] = hcas[other], hcas[one]
    found = failing(made_up_dumps.Dumps(made.fabric), dumps().fabric)
    assert found["leaf-1-1: it is one rail"].seen == ["mlx5_0", "mlx5_1"]
    assert "leaf-1-2: it is one rail" in found


def test_shifts_do_not_apply_where_the_plan_is_blocking():
    fabric = fabric_of(ib_sites.tree(), "compute")
    fabric.uplinks = [pair for pair in fabric.uplinks if pair[1].switch == "spine-1"]
    fabric.switches.remove("spine-2")
    (claim,) = failing(made_up_dumps.Dumps(fabric)).values()
    assert (claim.holds, claim.reason) == (None, Mentions("leaf-1-1", "2 links below and 1 above"))


def test_up_ports_that_do_not_reach_everything_are_as_even_as_the_tree_allows():
    """A spine that lost its link to a leaf gets none of that leaf's HCAs, and the other spine all of them."""
    fabric = fabric_of(ib_sites.tree(), "compute")
    fabric.uplinks = [pair for pair in fabric.uplinks if (pair[0].switch, pair[1].switch) != ("leaf-2-1", "spine-2")]
    made = made_up_dumps.Dumps(fabric)
    for leaf in ("leaf-1-1", "leaf-1-2", "leaf-2-2"):
        for hca in fabric.leaves["leaf-2-1"]:
            made.forwarding[leaf][hca] = 3
    found = failing(made)
    # leaf-1-1 could send its other HCAs to spine-2.
    assert {text for text in found if "HCAs by up port" in text} >= {"leaf-1-1: HCAs by up port"}
    made.forwarding["leaf-1-1"][Hca("node-1", "mlx5_1")] = 4
    # 2 HCAs can be reached by port 3 only, and the other 4 by both: 3 for each.
    assert "leaf-1-1: HCAs by up port" not in failing(made)


def test_tables_of_another_sweep_are_refused():
    made = dumps()
    text = made.forwarding_text()
    with raises(InfinibandError, "spine-2"):
        read_tables("\n".join(line for line in made.links_text().splitlines() if "spine-2" not in line), text)
    with raises(InfinibandError, "opensm-lfts.dump"):
        read_tables(made.links_text(), text[: text.index("Unicast", 10)])


@pytest.mark.long
def test_blue_vela_in_full():
    """4,096 HCAs: 16.8 million pairs and 511 shifts of 8 rails."""
    made = made_up_dumps.Dumps(fabric_of(sites.example("blue_vela"), "compute"))
    assert failing(made) == {}


def test_free_places_of_uneven_leaves_are_places_of_the_order():
    """ftree fills every leaf to the size of the largest one with places that no HCA has."""
    tree = copy.deepcopy(ib_sites.TREE)
    tree["blocks"]["rack"]["count"] = 4
    tree["models"]["node"]["ports"]["hca"]["names"] = "mlx5_[0:0]"
    tree["models"]["leaf"]["ports"]["down"]["names"] = "ib[1:4]"
    tree["models"]["leaf"]["ports"]["up"]["names"] = "ib[5:8]"
    tree["devices"]["node"]["count"] = 4
    tree["devices"]["leaf"]["count"] = 1
    tree["devices"]["spine"]["count"] = 4
    fabric = fabric_of(sites.site(**tree), "compute")
    # One host is off in the first unit, and two in the third.
    fabric.hcas = {hca: port for hca, port in fabric.hcas.items() if hca.host not in ("node-4", "node-11", "node-12")}
    made = made_up_dumps.Dumps(fabric)
    free = "0xFFFF\tDUMMY\n"
    order = re.sub("(?m)^.*node-3 .*\n", lambda line: line[0] + free, made.order_text())
    order = re.sub("(?m)^.*node-10 .*\n", lambda line: line[0] + free + free, order)
    tables = read_tables(made.links_text(), made.forwarding_text(), order)
    found = {claim.claim: claim for claim in route_claims(fabric, tables, Marks())}
    (claim,) = (claim for text, claim in found.items() if text.startswith(ORDER))
    assert (claim.holds, claim.seen) == (True, 0)
    # 9 of 12 places beyond the leaf have an HCA. ftree gives its 4 up ports 3 places each.
    assert found["leaf-2-1: HCAs by up port"].seen == "1 to 3"
    assert [text for text, claim in found.items() if claim.holds is not True] == []
    for hca in fabric.leaves["leaf-1-1"]:
        made.forwarding["leaf-2-1"][hca] = 5
    tables = read_tables(made.links_text(), made.forwarding_text(), order)
    (claim,) = (
        claim for claim in route_claims(fabric, tables, Marks()) if claim.holds is False and "up port" in claim.claim
    )
    assert (claim.claim, claim.reason) == ("leaf-2-1: HCAs by up port", Mentions("port 5 has 5 HCAs"))


def test_forwarding_tables_that_are_none_are_refused():
    made = dumps()
    text = made.forwarding_text()
    with raises(InfinibandError, "leaf-1-1", "999"):
        read_tables(made.links_text(), text.replace(" 001 ", " 999 ", 1))
    with raises(InfinibandError, "leaf-1-1", "two tables"):
        read_tables(made.links_text(), text + text)
