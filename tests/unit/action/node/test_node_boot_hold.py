# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A hold names this run, and the hold of a run of this machine that has ended is taken over."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
from ansible import context
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.utils.context_objects import CLIArgs
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.action import node_boot_hold


def ended_process():
    """Return the number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def hold(**changes):
    machine = node_boot_hold.this_run()["machine"]
    return {"name": "hold-1", "described": "hold-1 of ann", "machine": machine, "process": ended_process(), **changes}


class Hold(node_boot_hold.ActionModule):
    """The action plugin; ``answers`` are those of the module, in order."""

    def __init__(self, answers, check_mode=False, **given):
        task = Task.load({"action": "sailloft.fleet.node_boot_hold", "args": given})
        task.check_mode = check_mode
        connection = SimpleNamespace(transport="ssh", _shell=SimpleNamespace(tmpdir="/nowhere"))
        super().__init__(task, connection, PlayContext(), DataLoader(), None, None)
        self.answers, self.asked = list(answers), []

    def _execute_module(self, module_args=None, **_more):
        self.asked.append(dict(module_args))
        return self.answers.pop(0)


@pytest.mark.parametrize(("check_mode", "verb"), [(False, "is taken over"), (True, Mentions("taken"))])
@pytest.mark.parametrize(
    ("given", "over"), [({}, []), ({"take_over": "hold-7,hold-8"}, ["hold-7", "hold-8"]), ({"take_over": ["x"]}, ["x"])]
)
def test_the_hold_of_an_ended_run_is_taken_over(given, over, check_mode, verb):
    action = Hold(
        [{"failed": True, "conflicts": [hold(), hold(name="hold-2", process=os.getpid())]}, {"warnings": ["w"]}],
        check_mode=check_mode,
        **given,
    )
    result = action.run()
    assert action.asked[1]["take_over"] == [*over, "hold-1"]
    assert result["warnings"] == ["w", Mentions("hold-1", verb)]


def test_a_failure_after_the_takeover_is_returned_without_a_warning():
    result = Hold([{"failed": True, "conflicts": [hold()]}, {"failed": True, "msg": "held"}]).run()
    assert (result["msg"], result.get("warnings")) == ("held", None)


@pytest.mark.parametrize("changes", [{"process": os.getpid()}, {"machine": "another"}, {"machine": ""}])
def test_another_hold_stays(changes):
    answer = {"failed": True, "msg": "held", "conflicts": [hold(**changes)]}
    action = Hold([answer])
    assert action.run()["msg"] == "held"
    assert len(action.asked) == 1


def test_a_hold_names_this_run(monkeypatch):
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({"args": ["/site/rollout.yml", "reimage.yml"]}))
    run = node_boot_hold.this_run()
    assert {name: run[name] for name in ("host", "process", "playbook")} == {
        "host": socket.gethostname(),
        "process": os.getppid(),
        "playbook": "rollout.yml reimage.yml",
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", run["since"])
    assert re.fullmatch(r"[0-9a-f-]{36} \d+", run["machine"])
    action = Hold([{}])
    action.run()
    assert {**action.asked[0]["holder"], "since": ""} == {**run, "since": ""}


def test_a_run_without_a_playbook_is_named_ansible(monkeypatch):
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({}))
    assert node_boot_hold.this_run()["playbook"] == "ansible"


def test_a_user_without_a_name_has_its_number(monkeypatch):
    def no_name():
        raise KeyError("no such user")

    monkeypatch.setattr(node_boot_hold.getpass, "getuser", no_name)
    assert node_boot_hold.this_run()["user"] == f"uid {os.getuid()}"
