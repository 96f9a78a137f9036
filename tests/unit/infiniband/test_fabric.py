# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Fabrics without a spine: one switch is planned, proved and drawn; switches without a link are no fabric."""

from __future__ import annotations

import ib_sites
import made_up_dumps
import made_up_ports
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.marks import Marks
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.picture import picture
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.proof import cable_claims
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.routes.claims import route_claims


def test_a_fabric_of_one_switch_is_planned_proved_and_drawn():
    site = ib_sites.star()
    fabric = fabric_of(site, "compute")
    guids = ib_sites.made_up_guids(fabric)
    with raises(InfinibandError, "ftree", "updn"):
        plan(site, "compute", {}, guids)
    planned = plan(site, "compute", {"managers": ["node-1 mlx5_0"], "routing": ["updn"]}, guids)
    assert planned.files["root_guids.conf"].split() == [guids["leaf-1"]]
    marks = Marks()
    claims = [
        *cable_claims(planned, made_up_ports.found(fabric, guids=guids), marks),
        *route_claims(fabric, made_up_dumps.Dumps(fabric).tables(), marks),
    ]
    assert [claim.claim for claim in claims if claim.holds is False] == []
    assert sum(claim.holds is True for claim in claims) > 4
    assert "4 HCAs" in picture(fabric, marks)


def test_rails_that_nothing_joins_are_not_one_fabric():
    with raises(InfinibandError, "fabric compute", "leaf-1", "leaf-2", "a fabric of its own"):
        fabric_of(ib_sites.star(switches=2), "compute")
