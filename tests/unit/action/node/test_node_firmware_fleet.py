# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Many hosts are compared with their baselines in one task, and a wrong variable of one fails that one alone."""

from __future__ import annotations

import importlib
import json
from types import SimpleNamespace

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play import Play
from ansible.plugins.loader import init_plugin_loader
from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.state import NodeFirmware

fleet = importlib.import_module("ansible_collections.sailloft.fleet.plugins.action.node_firmware_fleet")
BASELINES = {"X": {"bios": {"Turbo": "Off"}}}
GOOD = {
    "node_bmc_baselines": BASELINES,
    "node_boot_bmc": {"address": "10.9.1.{{ 1 }}", "username": "a", "password": "b"},
}


@pytest.fixture(scope="module", autouse=True)
def plugins_of_collections():
    """Let Ansible find plugins by their full names, as its programs do first."""
    init_plugin_loader([])
    yield
    _AnsibleCollectionFinder._remove()


@pytest.fixture
def compare(make, tmp_path, monkeypatch):
    """Return a function that compares hosts with these variables; their BMCs, which nothing reaches, are as wanted."""

    def call(_hosts, _module, calls, ended, _limit_s):
        for key, (_place, given) in calls.items():
            json.dumps(given)  # what is sent to the host that reaches the BMCs has no template left
            ended(key, {"nodes": {row["name"]: NodeFirmware("X").to_dict() for row in given["nodes"]}})

    def compared(hosts):
        (tmp_path / "hosts.json").write_text(json.dumps({"nodes": {"hosts": hosts}}))
        loader = DataLoader()
        inventory = InventoryManager(loader, [str(tmp_path / "hosts.json")])
        manager = VariableManager(loader, inventory)
        play = Play().load({"hosts": "all", "tasks": [{"meta": "noop"}]}, variable_manager=manager, loader=loader)
        action = make(fleet, names=list(hosts))
        action._task._parent = play.get_tasks()[0][0]._parent
        monkeypatch.setattr(fleet.HostsOfTask, "call", call)
        monkeypatch.setattr(action, "_shared_loader_obj", SimpleNamespace())
        return action.run(task_vars={"hostvars": HostVars(inventory, manager, loader)})

    return compared


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("node_bmc_baselines", "{{ rack_baselines }}"),
        ("node_bmc_baselines", {"X": {"bios": {"Turbo": "{{ rack_baselines }}"}}}),
        ("node_bmc_baselines", {"X": {"bioss": {}}}),
        ("node_bmc_set", "{{ rack_baselines }}"),
        ("node_bmc_set", ["bioss"]),
        ("node_boot_bmc", "{{ rack_baselines }}"),
        ("node_boot_bmc", {"address": "{{ rack_baselines }}", "username": "a", "password": "b"}),
        ("node_boot_bmc", {"username": "a"}),
        ("node_boot_bmc_from", "{{ rack_baselines }}"),
    ],
)
def test_a_wrong_variable_of_a_host_fails_this_host_alone(compare, variable, value):
    result = compare({"gpu01": GOOD, "gpu02": {**GOOD, variable: value}, "gpu03": GOOD, "gpu04": {}})
    assert list(result["failures"]) == ["gpu02"]
    (line,) = (line for line in result["lines"] if line.startswith("gpu02"))
    assert line == Mentions(variable, "rack_baselines" if "rack_baselines" in str(value) else variable)
    assert line.count("gpu02") == 1
    assert (result["holds"], any("gpu04" in line for line in result["lines"])) == (False, True)
