# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The catalogue has each Xid once, and none that an application causes takes a node out of service."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import ACTIONS, APPLICATION
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules import xid
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES

# By NVIDIA's catalogue of October 2025.
RESTART = [8, 11, 13, 25, 31, 32, *range(39, 42), 60, *range(68, 73), *range(75, 78), 80, *range(82, 87), 88, 89]
RESTART += [94, *range(96, 106), *range(126, 136), 139]
IGNORE = [14, 37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141, 152, 153, 157, 160, 161]
RESET = [46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158]


def test_the_catalogues_groups_have_their_actions():
    for codes, action in ((RESTART, "restart_application"), (IGNORE, "note"), (RESET, "reset_gpu")):
        assert {code: RULES[f"xid_{code}"].action for code in codes} == dict.fromkeys(codes, action)


def test_what_applications_cause_keeps_the_node_in_service():
    for code in (13, 31, 43, 45, 94):
        assert ACTIONS.index(RULES[f"xid_{code}"].action) < ACTIONS.index("drain")
    assert {RULES[f"xid_{code}"].layer for code in (13, 31, 43)} == {APPLICATION}


def test_each_number_of_the_catalogue_is_known():
    known = {check for check in xid.CHECKS if check.startswith("xid_")}
    decoded = {*range(144, 151), 154}
    assert {f"xid_{code}" for code in {*RESTART, *IGNORE, *RESET, 45, 48, 54, 74, 78, 79, 142, 151, 159}} <= known
    assert {f"xid_{code}" for code in range(151, 173) if code not in decoded} <= known
    assert {f"xid_{code}_fatal" for code in range(144, 151)} <= known
