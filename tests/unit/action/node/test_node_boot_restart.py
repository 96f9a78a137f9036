# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A restart through a BMC runs in one module, on the host that accesses the BMC."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.sailloft.fleet.plugins.action import node_boot_restart


@pytest.fixture
def restart(make, monkeypatch):
    """Return a function that runs the action with the module's answer, for its result and the number of calls."""

    def run(answer, check_mode=False):
        action = make(node_boot_restart, check_mode, node="bm01", host="ctl1", bmc={"address": "10.9.9.1"})
        calls = []

        def execute(task_vars):
            calls.append(task_vars)
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(action, "_execute_module", execute)
        monkeypatch.setattr(node_boot_restart.time, "time", lambda: 1234.5)
        return action.run(task_vars={}), len(calls)

    return run


def test_a_restart_is_a_change_and_returns_its_time(restart):
    result, calls = restart({"changed": True})
    assert (result["changed"], result["since"], calls) == (True, 1234.5, 1)


def test_a_lost_host_between_controller_and_bmc_is_named(restart):
    result, _calls = restart(AnsibleConnectionFailure("gone"))
    assert result["failed"]
    assert all(part in result["msg"] for part in ("bm01", "ctl1", "gone"))


def test_check_mode_restarts_nothing(restart):
    result, calls = restart({}, check_mode=True)
    assert (result["skipped"], calls) == (True, 0)
