# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wait for a node reports each phase once, then every 30 s, and ends when the node is up or at a limit."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.action import node_image_wait

UP = {
    "boot_id": "2",
    "image": "a" * 64,
    "reason": "",
    "report": {},
    "systemd": {"state": "running", "finished_s": 4.0},
    "failed_units": [],
    "uptime_s": 5.0,
}


class Wait(node_image_wait.ActionModule):
    """The action plugin; ``answers`` are the node's, an error is raised, and the last one is repeated."""

    def __init__(self, answers, check_mode=False, **given):
        task = Task.load({"action": "sailloft.fleet.node_image_wait", "args": {"since": 1000.0, **given}})
        task.check_mode = check_mode
        connection = SimpleNamespace(transport="ssh", _shell=SimpleNamespace(tmpdir="/nowhere"))
        super().__init__(task, connection, PlayContext(), DataLoader(), None, None)
        self.answers, self.asked = answers, []

    def _execute_module(self, module_name=None, module_args=None, **_more):
        self.asked.append((module_name, module_args))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, str):
            raise AnsibleConnectionFailure(answer)
        return answer


@pytest.fixture
def wait(monkeypatch):
    """Return a function that runs the action with a clock that only sleep moves; it returns result and messages."""
    clock, shown = SimpleNamespace(now_s=0.0), []

    def sleep(seconds):
        clock.now_s += seconds
        assert clock.now_s < 10_000, "the wait has no end"

    moved = SimpleNamespace(time=lambda: 1000 + clock.now_s, monotonic=lambda: 5000 + clock.now_s, sleep=sleep)
    monkeypatch.setattr(node_image_wait, "time", moved)
    monkeypatch.setattr(node_image_wait, "display", SimpleNamespace(display=shown.append))

    def run(*answers, **given):
        action = Wait(list(answers), **given)
        return action.run(task_vars={"inventory_hostname": "bm01"}), shown, action.asked

    return run


def test_a_node_that_is_up_is_returned_with_its_state_and_time(wait):
    result, shown, asked = wait("ssh: connect\nno route to host", {"msg": "no python", "failed": True}, UP)
    assert asked == [("sailloft.fleet.node_image_info", {})] * 3
    assert (result["elapsed_s"], result["state"]) == (10.0, UP)
    assert "failed" not in result
    assert result["summary"] == Mentions("10.0", "4.0")
    assert shown[-1] == "bm01: 10 s: is up"
    assert len(shown) == 3  # each phase once


def test_the_same_phase_is_repeated_every_30_s(wait):
    _result, shown, _asked = wait(*["no route to host"] * 14, UP)
    assert [line.split(": ")[1] for line in shown] == ["0 s", "30 s", "60 s", "70 s"]


@pytest.mark.parametrize("limit", [{}, {"timeout_s": 60}, {"interval_s": 7, "timeout_s": 63}])
def test_a_node_that_never_answers_fails_at_its_limit(wait, limit):
    result, _shown, asked = wait("no route to host", **limit)
    limit_s, interval_s = limit.get("timeout_s", 1800), limit.get("interval_s", 5)
    assert result["failed"]
    assert result["msg"].startswith("bm01")
    assert "no route to host" in result["msg"]
    assert limit_s <= result["elapsed_s"] <= limit_s + interval_s
    assert len(asked) == result["elapsed_s"] / interval_s + 1


@pytest.mark.parametrize(("given", "limit_s"), [({}, 120), ({"restart_timeout_s": 20}, 20)])
def test_a_node_that_does_not_restart_fails_at_its_limit(wait, given, limit_s):
    result, _shown, _asked = wait(UP, boot_id="2", interval_s=1, **given)
    assert result["failed"]
    assert result["elapsed_s"] == limit_s + 1  # the first reading after the limit


def test_the_time_is_rounded_to_tenths_of_a_second(wait):
    result, _shown, _asked = wait(UP, since=999.84)
    assert result["elapsed_s"] == 5.2


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"unreachable": True, "boot_id": "2", "msg": "a\nclosed"}, Mentions("closed")),
        ({"failed": True, "boot_id": "2", "msg": "no python"}, Mentions("python")),
        ({"msg": "no boot_id"}, Mentions("boot_id")),
        ({"failed": True, "msg": " "}, Mentions("reason")),
    ],
)
def test_the_last_line_of_a_failed_answer_is_the_reason(wait, answer, why):
    result, _shown, _asked = wait(answer, timeout_s=10)
    assert result["msg"] == why


def test_check_mode_does_not_wait(wait):
    result, shown, asked = wait(UP, check_mode=True)
    assert (result["skipped"], shown, asked) == (True, [], [])
