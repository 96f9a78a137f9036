# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A wrong value of a role's variable is one sentence, for variables of each type of each role."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from playing import ROOT, ansible_playbook

from ansible_collections.sailloft.fleet.plugins.plugin_utils.role_values import FORMS, check_values, fault

ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
WRONG = {"bool": "perhaps", "dict": ["x"], "float": "fast", "int": "many", "list": {"x": 1}, "path": {}, "str": {}}
SECRET = "what nobody may see"


class Hosts(dict):
    """Hosts with their variables, as Ansible's hostvars."""

    raw_get = dict.__getitem__


def options(role):
    entries = yaml.safe_load((ROOT / f"roles/{role}/meta/argument_specs.yml").read_text())["argument_specs"].values()
    return {name: option for entry in entries for name, option in entry.get("options", {}).items()}


@pytest.mark.parametrize("role", ROLES)
def test_a_wrong_type_of_each_variable_is_one_short_sentence(role):
    for name, option in options(role).items():
        kind = option.get("type", "str")
        if kind in ("raw", "str", "path") or option.get("no_log"):
            continue  # Ansible makes text of everything
        with pytest.raises(AnsibleActionFail) as refused:
            check_values(role, {name: option}, ["a"], Hosts(a={name: WRONG[kind]}))
        text = str(refused.value)
        assert text.startswith(f"a: {name} ")
        assert f"is not {FORMS[kind]};" in text
        assert f"sailloft.fleet.{role}" in text
        assert len(text) < 400
        assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ({"type": "int"}, 5, ""),
        ({"type": "int"}, "5", ""),
        ({"type": "int"}, "{{ other }}", ""),
        ({"type": "list", "elements": "int"}, [1, "{{ other }}"], ""),
        ({"type": "list", "elements": "int"}, [1, object()], ""),  # a value that Ansible decrypts is an object
        ({"type": "int", "required": True}, None, ""),
        ({"type": "int", "no_log": True}, SECRET, ""),
        ({"type": "str", "choices": ["a", "b"]}, "c", "is 'c', which is not one of: a, b"),
        ({"type": "dict"}, "x" * 999, "is 'x"),
        ({"type": "list", "elements": "int"}, ["x"], "is wrong: "),
        ({"type": "dict", "options": {"a": {"type": "int"}}}, {"b": 1}, "is wrong: "),
        (
            {"type": "dict", "options": {"a": {"no_log": True}, "b": {"type": "int"}}},
            {"a": SECRET, "b": SECRET},
            "has a",
        ),
        ({"type": "dict", "options": {"a": {"no_log": True}}}, SECRET, "has a value that is not a dictionary"),
    ],
)
def test_literal_values_are_checked_and_secrets_are_not_shown(option, value, text):
    found = fault("x", option, value) or ""
    assert found.startswith(text)
    assert bool(found) is bool(text)
    assert SECRET not in found
    assert len(found) < 300


def test_hosts_with_the_same_fault_are_named_together():
    hosts = Hosts({f"h{number}": {"x": "many"} for number in range(9)}, good={"x": 1, "y": 1}, other={"y": "z"})
    with pytest.raises(AnsibleActionFail) as refused:
        check_values("gpu_host", {"x": {"type": "int"}, "y": {"type": "int"}}, hosts, hosts)
    assert str(refused.value).startswith("h0, h1, h2 and 6 more: x is 'many', which is not a whole number;")
    assert str(refused.value).endswith("Wrong, too: y")


@pytest.mark.parametrize(
    "source",
    ["host", pytest.param("group", marks=pytest.mark.long), pytest.param("command line", marks=pytest.mark.long)],
)
def test_a_play_ends_before_the_roles_with_the_sentence(tmp_path, source):
    wrong = {"roce_switch_ports": "Ethernet0"}
    hosts = {"leaf1": {"ansible_connection": "local", **(wrong if source == "host" else {})}}
    group = {"hosts": hosts, "vars": wrong if source == "group" else {}}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": {"roce_switches": group}}}))
    more = ["-e", json.dumps(wrong)] if source == "command line" else []
    status, output = ansible_playbook(
        *(f"-i{tmp_path}/hosts.json", "playbooks/fabric_config.yml", "-e", f"fabric_path={tmp_path}/fabric", *more),
        COLUMNS="80",
    )
    assert status == 2
    sentence = "leaf1: roce_switch_ports is 'Ethernet0', which is not a dictionary; "
    assert sentence in re.sub(r"\s+", " ", output)
    assert "argument_spec_data" not in output
    assert len(output.splitlines()) < 50
    assert not (tmp_path / "fabric").exists()
