# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""node_health_info reads the state of its node, or the BMCs of many, and shows no account."""

from __future__ import annotations

import json

from ansible.errors import AnsibleUndefinedVariable
from messages import Mentions
from redfish_bmc import PASSWORD, USER, RedfishBmc, new, status

from ansible_collections.sailloft.fleet.plugins.filter.node_health_bmcs import node_health_bmcs
from ansible_collections.sailloft.fleet.plugins.modules import node_health_info

SUPPLIES = {"Bay1": status(Id="Bay1", LineInputStatus="Normal"), "Bay2": status("Critical", Id="Bay2")}


def test_a_node_without_a_state_is_not_known(call, tmp_path):
    health = call(node_health_info, {"state_dir": str(tmp_path)})["health"]
    assert str(tmp_path) in health["error"]


class UnreadTemplate(dict):
    """Variables whose templates name an unknown variable."""

    def __getitem__(self, name):
        raise AnsibleUndefinedVariable("'rack_gateway' is undefined")


def test_the_bmcs_of_an_inventory_are_read_in_one_call(call, tmp_path):
    server = RedfishBmc(tmp_path / "bmc", new(SUPPLIES))
    account = {"address": server.address, "username": USER, "password": PASSWORD, "ca": server.ca, "boot_mode": "UEFI"}
    hostvars = {
        "gpu-1": {"node_boot_bmc": account, "node_health_checks": {"bmc_power_supply": {"disabled": "ordered"}}},
        "gpu-2": {"node_boot_bmc": {**account, "timeout_s": 60}},
        "gpu-3": {},
        "gpu-4": {"node_boot_bmc": {**account, "address": "127.0.0.1:1"}},
        "gpu-5": UnreadTemplate(),
    }
    try:
        result = call(node_health_info, {"bmcs": node_health_bmcs(list(hostvars), hostvars)})
    finally:
        server.stop()
    checks = {name: [fault["check"] for fault in said["faults"]] for name, said in result["bmcs"].items()}
    assert checks == {"gpu-1": [], "gpu-2": ["bmc_power_supply"], "gpu-4": ["bmc_unread"], "gpu-5": ["bmc_unread"]}
    assert result["bmcs"]["gpu-5"]["faults"][0]["seen"] == Mentions("gpu-5", "node_boot_bmc", "rack_gateway")
    assert PASSWORD not in json.dumps(result)


def test_the_port_of_a_bmc_with_ipmi_is_part_of_its_address():
    bmc = {"type": "ipmi", "address": "10.9.1.1", "port": 6230, "username": "a", "password": "b", "system": "1"}
    (given,) = node_health_bmcs(["gpu-1"], {"gpu-1": {"node_boot_bmc": bmc}})
    assert (given["host"], given["type"], given["address"], given["checks"]) == ("gpu-1", "ipmi", "10.9.1.1:6230", {})
