# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Slices of inventories in the form of ansible-inventory --list --export."""

from __future__ import annotations

import copy
import json
import subprocess

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.gateways.errors import GatewayError
from ansible_collections.sailloft.fleet.plugins.module_utils.gateways.slices import by_gateway, cut

LISTED = {
    "_meta": {"hostvars": {"a": {"x": [{"__ansible_vault": "code"}]}, "c": {"y": 1}}, "profile": "inventory_legacy"},
    "all": {"children": ["ungrouped", "site"], "vars": {"dns": "192.0.2.1"}},
    "site": {"children": ["one", "two"], "vars": {"ntp": "192.0.2.2"}},
    "one": {"hosts": ["a", "b"], "vars": {"key": {"__ansible_unsafe": "{{"}}},
    "two": {"hosts": ["c"], "vars": {"password": {"__ansible_vault": "other"}}},
}


def test_a_slice_has_its_hosts_and_no_variables_of_others():
    before = copy.deepcopy(LISTED)
    found = cut(LISTED, ["a", "b"], str.upper)
    assert found == {
        "all": {"hosts": {"a": {"x": ["CODE"]}, "b": {}}, "vars": {"dns": "192.0.2.1"}, "children": {"site": {}}},
        "site": {"hosts": {}, "children": {"one": {}, "two": {}}, "vars": {"ntp": "192.0.2.2"}},
        "one": {"hosts": {"a": {}, "b": {}}, "children": {}, "vars": {"key": {"__ansible_unsafe": "{{"}}},
        "two": {"hosts": {}, "children": {}, "vars": {}},
    }
    assert before == LISTED


def test_a_slice_gives_its_hosts_the_same_variables_as_the_full_inventory(tmp_path):
    (tmp_path / "whole.yml").write_text(
        "all: {vars: {v: 1}, children: {site: {vars: {v: 2, w: '{{ v }}'}, children: {one: {hosts: {a: {x: 3}, b: {}}},"
        " two: {hosts: {a: {}, c: {}}, vars: {v: 4}}}}}}"
    )

    def listed(file, *export):
        command = ["ansible-inventory", "-i", file, "--list", *export]
        given = {"cwd": tmp_path, "capture_output": True, "stdin": subprocess.DEVNULL}
        return json.loads(subprocess.run(command, check=True, **given).stdout)

    whole = listed("whole.yml")
    (tmp_path / "slice.json").write_text(json.dumps(cut(listed("whole.yml", "--export"), ["a"], str)))
    assert listed("slice.json")["_meta"]["hostvars"] == {"a": whole["_meta"]["hostvars"]["a"]}


def test_hosts_are_divided_in_the_order_of_the_inventory():
    assert by_gateway({"b": "gw1", "a": "gw1", "c": "u@gw2"}) == {"gw1": ["b", "a"], "u@gw2": ["c"]}


@pytest.mark.parametrize("gateway", ["-oProxyCommand=x", "..", "a/b", "a\nb"])
def test_an_invalid_gateway_name_is_refused(gateway):
    with raises(GatewayError, "gpu-[1-2]", "runner_gateway"):
        by_gateway({"gpu-1": gateway, "gpu-2": gateway})


def test_hosts_without_a_gateway_are_named():
    with pytest.raises(GatewayError, match=r"^leaf-\[1-2\]: no gateway; set runner_gateway"):
        by_gateway({"leaf-1": "", "gpu-1": "gw1", "leaf-2": ""})
