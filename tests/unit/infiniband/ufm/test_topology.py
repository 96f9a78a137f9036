# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The links of a UFM are compared by GUIDs and ports."""

from __future__ import annotations

import ib_sites
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm.ports import PortNames, UfmPort
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm.topology import WIDTH, compare

SITE, GUIDS = ib_sites.small()
PLAN = plan(SITE, "compute", {}, GUIDS)
NAMES = PortNames(PLAN)
LINKS = {frozenset(map(NAMES.port_of, ends)): WIDTH for ends in [*PLAN.fabric.hcas.items(), *PLAN.fabric.uplinks]}


def test_links_as_planned_have_no_fault():
    assert compare(PLAN, NAMES, LINKS) == ([], 16, 0, 0)


def test_a_swapped_pair_is_two_missing_and_two_unplanned_links():
    (one, far), (other, far_of_other) = [tuple(link) for link in list(LINKS)[-2:]]
    swapped = {link: width for link, width in LINKS.items() if not {one, other} & link}
    swapped[frozenset((one, far_of_other))] = swapped[frozenset((other, far))] = WIDTH
    compared = compare(PLAN, NAMES, swapped)
    assert (len(compared.faults), compared.missing) == (4, 2)
    assert compared.faults[-1] == Mentions("planned")


def test_a_port_that_is_not_planned_has_its_guid():
    assert NAMES.name_of(UfmPort("00000000000000ff", 3)) == Mentions("0x00000000000000ff", "3")
