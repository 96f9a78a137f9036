# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The message about a host that is not reached, and its address."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.template import Templar, trust_as_template
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.action.reached import ActionModule

NO_ROUTE = "banner\nno route to host."


def failure(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, Any],
    *,
    delegate_to: Any = None,
    message: str = NO_ROUTE,
    **connection: Any,
):
    """Return the message about a host whose connection, with these attributes, fails with ``message``."""
    task = Task.load({"action": "sailloft.fleet.reached", "args": {}, "delegate_to": delegate_to})
    connected = SimpleNamespace(
        supports_persistence=False, force_persistence=False, _shell=SimpleNamespace(tmpdir="/nowhere"), **connection
    )
    templar = Templar(DataLoader(), variables=variables)
    action = ActionModule(task, connected, PlayContext(), DataLoader(), templar, None)

    def refuse(command, sudoable):
        assert (command, sudoable) == ("true", False)
        raise AnsibleConnectionFailure(message)

    monkeypatch.setattr(action, "_low_level_execute_command", refuse)
    result = action.run(task_vars={"inventory_hostname": "hv01", **variables})
    assert result["failed"]
    assert message != NO_ROUTE or result["cause"] == "banner; no route to host"
    return result["msg"]


def test_a_templated_port_of_the_inventory_is_reported_as_a_number(monkeypatch):
    """The connection does not show its port, so the port of the inventory is reported."""
    given = {"site_ports": {"lab": 2201}, "ansible_port": trust_as_template("{{ site_ports.lab }}")}
    assert failure(monkeypatch, given) == Mentions("hv01, port 2201")


@pytest.mark.parametrize(
    ("connection", "given", "address"),
    [
        ({}, {}, "at hv01:"),
        ({}, {"ansible_host": "192.0.2.1"}, "at 192.0.2.1:"),
        ({"host": "192.0.2.2"}, {"ansible_host": "192.0.2.1", "ansible_port": 22}, "at 192.0.2.2, port 22:"),
        ({"host": "192.0.2.2", "port": 2222}, {"ansible_port": 22}, "at 192.0.2.2, port 2222:"),
        ({"host": "192.0.2.2", "port": None}, {}, "at 192.0.2.2:"),
    ],
)
def test_the_address_is_that_of_the_connection_and_else_of_the_inventory(monkeypatch, connection, given, address):
    assert failure(monkeypatch, given, **connection) == Mentions("hv01", address)


def test_a_delegated_task_names_the_host_that_it_runs_on(monkeypatch):
    assert failure(monkeypatch, {}, delegate_to="boot01") == Mentions("boot01 cannot be reached")


def test_a_host_whose_key_is_not_known_fails_with_the_ways_to_accept_it(monkeypatch):
    message = "Failed to connect to the host via ssh: Host key verification failed."
    assert failure(monkeypatch, {}, message=message, host="192.0.2.1", port=None) == Mentions(
        "hv01", "192.0.2.1", "accept-new", "ssh-keygen -R"
    )


def test_a_host_that_answers_is_reached(monkeypatch):
    task = Task.load({"action": "sailloft.fleet.reached", "args": {}})
    connection = SimpleNamespace(
        supports_persistence=False, force_persistence=False, _shell=SimpleNamespace(tmpdir="/nowhere")
    )
    action = ActionModule(task, connection, PlayContext(), DataLoader(), None, None)
    monkeypatch.setattr(action, "_low_level_execute_command", lambda command, sudoable: {"rc": 0})
    assert not action.run(task_vars={"inventory_hostname": "hv01"}).get("failed")


@pytest.mark.parametrize(
    ("answer", "causes"),
    [
        ({"rc": 0, "stdout": "0\nroot\n"}, ()),
        ({"rc": 0, "stdout": "1000\nadmin\n"}, ("hv01", "need root", "admin", "ansible_become: true")),
        ({"rc": 1, "stdout": "", "stderr": "sudo: a password is required"}, ("hv01", "sudo: a password is required")),
    ],
)
@pytest.mark.parametrize("check_mode", [False, True])
def test_another_user_than_root_is_refused_where_root_is_needed(monkeypatch, answer, causes, check_mode):
    task = Task.load({"action": "sailloft.fleet.reached", "args": {"root": True}})
    task.check_mode = check_mode
    connection = SimpleNamespace(
        supports_persistence=False, force_persistence=False, _shell=SimpleNamespace(tmpdir="/nowhere")
    )
    action = ActionModule(task, connection, PlayContext(), DataLoader(), None, None)
    monkeypatch.setattr(action, "_low_level_execute_command", lambda command, sudoable=True: answer)
    result = action.run(task_vars={"inventory_hostname": "hv01"})
    assert bool(result.get("failed")) is bool(causes)
    assert all(each in result["msg"] for each in causes)
