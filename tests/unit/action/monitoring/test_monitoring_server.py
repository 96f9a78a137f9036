# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The files of a server are planned on the controller, from the run's inventory, and given to the module."""

from __future__ import annotations

import time

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.sailloft.fleet.plugins.action import monitoring_server

VARIABLES = {
    "inventory_hostname": "mon1",
    "groups": {"monitoring_servers": ["mon1", "mon2"]},
    "hostvars": {"mon1": {"ansible_host": "10.0.0.1"}, "mon2": {"monitoring_address": "10.0.0.2"}},
}


@pytest.fixture
def run(make, monkeypatch):
    """Return a function that runs the action and returns the arguments that the module gets."""
    given = []

    def execute(_action, _name, arguments, **_others):
        given.append(arguments)
        return {}

    monkeypatch.setattr(monitoring_server.ActionModule, "_execute_module", execute)

    def called(variables=None, **arguments):
        make(monitoring_server, **arguments).run(task_vars=variables or VARIABLES)
        return given.pop()

    return called


def test_the_module_gets_the_files_and_the_addresses_of_the_inventory(run):
    arguments = run(plan={"receivers": {}}, retention_days=60)
    assert set(arguments) == {"files", "address", "peers", "retention_days", "controller_s"}
    assert (arguments["address"], arguments["peers"]) == ("10.0.0.1", ["10.0.0.2"])
    assert "replica: mon1" in arguments["files"]["prometheus.yml"]
    assert "10.0.0.2:9100" in arguments["files"]["targets/node.json"]


def test_without_a_plan_the_module_gets_the_arguments_as_they_are(run):
    arguments = run(files={"prometheus.yml": ""}, address="10.0.0.1")
    assert abs(arguments.pop("controller_s") - time.time()) < 60
    assert arguments == {"files": {"prometheus.yml": ""}, "address": "10.0.0.1"}


@pytest.mark.parametrize(
    ("plan", "hostvars", "message"),
    [
        ({"rooutes": [1]}, VARIABLES["hostvars"], "rooutes"),
        ({}, {"mon1": {}, "mon2": {"ansible_host": "10.0.0.2"}}, "mon1: 'mon1' is no IP address"),
        ({"routes": [{"receiver": "noc"}]}, VARIABLES["hostvars"], "there is no receiver 'noc'"),
    ],
)
def test_nothing_is_given_to_the_module_of_what_is_refused(run, plan, hostvars, message):
    with pytest.raises(AnsibleActionFail, match=message):
        run({**VARIABLES, "hostvars": hostvars}, plan=plan)
