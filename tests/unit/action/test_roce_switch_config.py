# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The modules of a fabric get the variables of the switches and hosts that a task names."""

from __future__ import annotations

import json

import pytest

from ansible_collections.sailloft.fleet.plugins.action import roce_fabric_proof, roce_path_info, roce_switch_config

PORTS = {"Ethernet0": {"speed_gbit_s": 400, "cable_m": 5}}
NIC = {"mlx5_0": {"mtu_bytes": 9000}}
HOSTVARS = {
    "leaf1": {"roce_switch_system": "sonic", "roce_switch_ports": PORTS, "roce_switch_running": "{}"},
    "leaf2": {"roce_switch_asic": "spectrum4", "roce_switch_headroom": [], "roce_switch_queue_buffer_bytes": 0},
    "gpu1": {"roce_host_nics": {"mlx5_0": {}}, "roce_host_read": {"nics": NIC}, "roce_host_planned": {"nics": {}}},
    "gpu2": {"roce_host_read": {"failed": True, "msg": "no answer"}, "roce_host_applications": [{"name": "NCCL"}]},
    "vm1": {"gpu_guest_host": "gpu1"},
}
MODULES = [roce_switch_config, roce_fabric_proof, roce_path_info]


@pytest.fixture
def arguments(make, monkeypatch):
    """Return a function that returns the arguments with which the action runs the module, or the action's refusal."""

    def once(module=roce_switch_config, **given):
        action = make(module, **given)
        monkeypatch.setattr(action, "_execute_module", lambda module_args, task_vars: module_args)
        result = action.run(task_vars={"hostvars": HOSTVARS})
        if result.get("failed"):
            return result["msg"]
        return {name: json.loads(result[name]) if isinstance(given[name], list) else result[name] for name in given}

    return once


@pytest.mark.parametrize("module", MODULES)
def test_names_stand_for_the_variables_of_switches_and_hosts(arguments, module):
    given = {
        "switches": ["leaf2", "leaf1"],
        "running": ["leaf1"],
        "hosts": ["gpu1", "leaf1"],
        "nics": ["gpu1"],
        "applications": ["gpu1", "gpu2"],
        "guests": ["vm1", "gpu2"],
    }
    assert arguments(module, **given) == {
        "switches": {
            "leaf2": {"asic": "spectrum4", "headroom": [], "queue_buffer_bytes": 0},
            "leaf1": {"system": "sonic", "ports": PORTS},
        },
        "running": {"leaf1": "{}"},
        "hosts": {"gpu1": {"mlx5_0": {}}, "leaf1": None},
        "nics": {"gpu1": NIC},
        "applications": {"gpu1": [], "gpu2": [{"name": "NCCL"}]},
        "guests": {"vm1": "gpu1", "gpu2": None},
    }
    assert arguments(module, switches=[], nics_wanted=["gpu1"]) == {"switches": {}, "nics_wanted": {"gpu1": {}}}


def test_values_are_passed_as_they_are(arguments):
    given = {"switches": {"leaf1": {"system": "sonic"}}, "running": '{"leaf1": ""}', "asics": {"a": {}}}
    assert arguments(**given) == given


@pytest.mark.parametrize(
    ("option", "name"), [("running", "leaf2"), ("nics", "gpu2"), ("nics_wanted", "gpu2"), ("switches", "leaf9")]
)
def test_a_device_that_was_not_read_or_is_not_in_the_inventory_is_named(arguments, option, name):
    assert arguments(**{option: [name]}).startswith(f"{name}: ")
