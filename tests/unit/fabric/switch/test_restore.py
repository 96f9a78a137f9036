# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check mode plans and restores the other switches where devices were not read; a run is refused."""

from __future__ import annotations

import pytest
from messages import Mentions, raises
from proof_requests import params

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import restore, rollout

ASKED = {**params("eos", nics={}), **dict.fromkeys(("nics_wanted", "backup_path", "restore_path"))}
HALF = {**ASKED, "running": {"leaf1": ASKED["running"]["leaf1"]}, "unread": ["gpu1", "leaf2"]}


def test_devices_that_were_not_read_refuse_a_run_and_check_mode_plans_the_others():
    assert rollout.planned(HALF, True, False)["left_out"] == [
        Mentions("2 of 3 devices", "gpu1", "leaf2", "all:!gpu1:!leaf2")
    ]
    for changes, check in (({}, False), ({"running": {}}, True)):
        with raises(FabricError, "gpu1", "leaf2"):
            rollout.planned({**HALF, **changes}, check, False)


@pytest.mark.parametrize("unread", [[], ["leaf3"]])
def test_check_mode_restores_the_other_switches_where_one_cannot_be_read(unread):
    running = {**ASKED["running"], "leaf2": "nothing"}
    asked = {**ASKED, "running": running, "backup": ASKED["running"], "unread": unread}
    shown = restore.restored(asked, True)
    assert (shown["as_before"], shown["changes"]) == ({"leaf1": True, "spine1": True, "leaf2": None}, {})
    assert shown["left_out"] == [*(Mentions("1 of 4", name) for name in unread), Mentions("leaf2", "all:!leaf2")]
    with raises(FabricError, *(unread or ["leaf2"])):
        restore.restored(asked, False)
