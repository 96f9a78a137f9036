# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each system of the registry fulfils the contract; any output of a switch is read, or refused with one error."""

from __future__ import annotations

import contextlib
import re
from dataclasses import fields
from pathlib import Path

import pytest
import switches
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import PortQos
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS

ROLE = Path(__file__).parents[4] / "roles/roce_switch"
FABRIC = Path(__file__).parents[4] / "plugins/module_utils/fabric"
TEXTS = [(system, system.render(switches.switch(name, [switches.PORTS[name][0]]))) for name, system in SYSTEMS.items()]
TEXTS.append((SYSTEMS["linux"], Path(__file__).parents[1].joinpath("systems/linux_reading.json").read_text()))
BITS = ['"', "{", "}", "[", "]", ":", ",", "null", "true", "-1", "9" * 20, "'", "\n", "  ", "- ", "0x", "{}", "1e400"]
PLACES = st.integers(0, 1 << 16)
OTHERS = {
    "traffic class": {"classes": {"roce": {"traffic_class": 4}}},
    "DSCP": {"classes": {"roce": {"dscp": 24}}},
    "bandwidth": {"classes": {"roce": {"bandwidth_percent": 30}}},
}
SPLICES = st.lists(st.tuples(PLACES, st.integers(0, 40), st.sampled_from(["", *BITS])), min_size=1, max_size=4)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_has_all_names_and_task_files_of_the_contract(name):
    system = SYSTEMS[name]
    assert set(system.not_held) <= {field.name for field in fields(PortQos)} | {"ecmp_fields"}
    assert all(system.port.fullmatch(port) for port in switches.PORTS[name])
    assert all(callable(function) for function in (system.render, system.parse, system.remediation, system.restoration))
    saved = set() if system.saves_with_change else {"save.yml"}
    files = {path.name for path in (ROLE / "tasks" / name).iterdir()}
    assert {"read.yml", "apply.yml", "restore.yml", *saved} <= files
    assert ("save.yml" in files) == bool(saved)
    assert ("counters.yml" in files) == bool(system.counters)
    if system.counters and name not in ("cumulus", "junos"):  # these ask by path and by RPC
        tasks = (ROLE / "tasks" / name / "counters.yml").read_text()
        assert [command for command in system.counters.commands if f"    - {command}\n" not in tasks] == []


def test_a_system_is_imported_only_where_it_is_used():
    """Each run of a module compiles what it imports: 480 KB for all systems, 100 KB for one."""
    paths = [path for folder in ("model", "path", "policy", "switch") for path in (FABRIC / folder).rglob("*.py")]
    assert len(paths) > 20
    at_import = re.compile(r"^from \S+\.fabric\.(?:systems|running)\b.*", re.M)
    assert [(path.name, line) for path in paths for line in at_import.findall(path.read_text())] == []
    assert {name: system.name for name, system in SYSTEMS.items()} == {name: name for name in SYSTEMS}


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("other_policy", OTHERS.values(), ids=OTHERS)
def test_a_change_is_computed_only_if_something_differs(name, other_policy):
    system, ports = SYSTEMS[name], [switches.PORTS[name][0]]
    planned = [switches.switch(name, ports), switches.switch(name, ports, other_policy)]
    texts = [switches.running(switch) for switch in planned]
    for first, second in ((0, 1), (1, 0)):
        assert system.remediation(texts[first], planned[second])
        assert system.remediation(texts[second], planned[second]) == ""
        assert system.restoration(texts[second], texts[first], "leaf1")
        assert system.restoration(texts[first], texts[first], "leaf1") == ""


def test_the_role_accepts_the_systems_of_the_registry():
    options = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    assert options["roce_switch_system"]["choices"] == sorted(SYSTEMS)
    counting = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__roce_switch_counting"]
    assert counting == sorted(name for name, system in SYSTEMS.items() if system.counters)
    assert {path.parent.name for path in (ROLE / "tasks").glob("*/apply.yml")} == set(SYSTEMS)


@pytest.mark.parametrize(
    ("system", "text"), TEXTS, ids=[f"{system.name}{position}" for position, (system, _t) in enumerate(TEXTS)]
)
@given(splices=SPLICES, head=PLACES)
def test_a_damaged_configuration_is_read_or_refused(system, text, splices, head):
    for place, length, bit in splices:
        position = place % len(text)
        text = text[:position] + bit + text[position + length :] or "-"
    if head % 3 == 0:
        text = text[: head % len(text)]
    wanted = switches.switch(system.name, [switches.PORTS[system.name][0]])
    with contextlib.suppress(FabricError):
        assert system.parse(text, "leaf1").name == "leaf1"
    with contextlib.suppress(FabricError):
        assert isinstance(system.remediation(text, wanted), str)
