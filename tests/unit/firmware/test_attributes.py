# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A value that a node's BIOS cannot have is refused."""

from __future__ import annotations

import pytest
from baseline_bmc import ATTRIBUTES, ENTRIES

from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.attributes import refusals

FORMED = [
    {"AttributeName": "Name", "Type": "String", "MinLength": 2, "MaxLength": 4, "ValueExpression": "^[a-z]+$"},
    {"AttributeName": "Quiet", "Type": "Boolean"},
    {"AttributeName": "Secret", "Type": "Password"},
    {"AttributeName": "Odd", "Type": "String", "ValueExpression": "["},
]
REGISTRY = {"RegistryEntries": {"Attributes": ENTRIES + FORMED}}
SHOWN = {**ATTRIBUTES, "Name": "ab", "Quiet": False, "Secret": "", "Odd": "", "Unlisted": "x"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ProcTurboMode", "Disabled"),
        ("ProcCoreDisable", 0),
        ("ProcCoreDisable", 8),
        ("AdminPhone", ""),
        ("Name", "abcd"),
        ("Quiet", True),
        ("Odd", "anything"),
    ],
)
def test_a_possible_value_is_not_refused(name, value):
    assert refusals({name: value}, SHOWN, REGISTRY) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ProcTurboMode", "disabled"),
        ("ProcTurboMode", 0),
        # YAML's Off without quotes.
        ("EmbeddedSata", False),
        ("NicBoot2", "NetworkBoot"),
        ("ProcCoreDisable", "2"),
        ("ProcCoreDisable", True),
        ("ProcCoreDisable", 10),
        ("ProcCoreDisable", -2),
        ("ProcCoreDisable", 3),
        ("AdminPhone", "0" * 21),
        ("AdminPhone", 5),
        ("Name", "a"),
        ("Name", "AB"),
        ("Quiet", "true"),
        ("Quiet", 1),
        ("Secret", "s3cr3t"),
        ("Unlisted", "y"),
        ("Absent", "y"),
    ],
)
def test_an_impossible_value_is_refused(name, value):
    assert refusals({name: value, "NicBoot1": "Disabled"}, SHOWN, REGISTRY).keys() == {name}


def test_a_value_that_yaml_changed_names_the_quotes():
    assert "quotes" in refusals({"EmbeddedSata": False}, SHOWN, REGISTRY)["EmbeddedSata"]


def test_without_a_registry_the_type_is_checked():
    wanted = {"ProcTurboMode": "Whatever", "ProcCoreDisable": "2", "Quiet": 1, "Absent": "y"}
    assert refusals(wanted, SHOWN, None).keys() == {"ProcCoreDisable", "Quiet", "Absent"}
