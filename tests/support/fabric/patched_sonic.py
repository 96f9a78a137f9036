# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Apply SONiC's patches with jsonpatch, and check references and headroom after each operation."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_tables import references
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import sonic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.sonic_wanted import (
    MAPS,
    PFC_TO_PG,
    PFC_TO_PG_TABLE,
)

jsonpatch = pytest.importorskip("jsonpatch")


LOSSY = {"classes": {"roce": {"mode": "lossy"}}}


TABLES = {*MAPS.values(), PFC_TO_PG_TABLE, "SCHEDULER", "WRED_PROFILE", "BUFFER_PROFILE", "BUFFER_POOL"}


REFERENCES = {*MAPS, PFC_TO_PG, "scheduler", "wred_profile", "profile", "pool"}


def patch(config: dict, wanted: Switch) -> list[dict[str, Any]]:
    """Return all operations of the patches, in the order in which they are applied."""
    return [each for one in patches(config, wanted) for each in one]


def patches(config: dict, wanted: Switch) -> list[list[dict[str, Any]]]:
    text = sonic.remediation(json.dumps(config), wanted)
    return [json.loads(each) for each in text.split("\n\n")] if text else []


def pausing(config: dict) -> set[tuple[str, str]]:
    """Return port and priority of all PFC."""
    maps = {key: entry.get("pfc_enable", "") for key, entry in config.get("PORT_QOS_MAP", {}).items()}
    return {(port, one) for key, pfc in maps.items() for port in key.split(",") for one in pfc.split(",")}


def with_headroom(config: dict) -> set[tuple[str, str]]:
    """Return port and number of the groups that have headroom."""
    groups = set()
    for key, entry in config.get("BUFFER_PG", {}).items():
        profiles = [config.get("BUFFER_PROFILE", {}).get(name, {}) for name in references(entry)]
        if entry["profile"] == "NULL" or any("xoff" in profile for profile in profiles):
            ports, numbers = key.split("|")
            first, last = numbers[0], numbers[-1]
            groups |= {(port, str(one)) for port in ports.split(",") for one in range(int(first), int(last) + 1)}
    return groups


def check_steps(config: dict, steps: list[list[dict[str, Any]]]) -> dict:
    """Apply one operation after the other, and check that no entry ever refers to a missing one.

    No patch removes headroom of a priority that pauses when the patch begins: the switch orders its operations itself.
    """
    config = copy.deepcopy(config)
    for step in steps:
        pausing_before, before = pausing(config) & with_headroom(config), copy.deepcopy(config)
        for operation in step:
            config = jsonpatch.apply_patch(config, [copy.deepcopy(operation)], in_place=True)
            assert pausing_before <= with_headroom(config), operation
            names = {"NULL"}.union(*(config.get(table, {}) for table in TABLES))
            for table in ("PORT_QOS_MAP", "QUEUE", "BUFFER_PG", "BUFFER_QUEUE", "BUFFER_PROFILE"):
                for entry in config.get(table, {}).values():
                    for field in REFERENCES & entry.keys():
                        assert names.intersection(references({field: entry[field]})), operation
        assert groups_of_image(before, config) <= config.get("BUFFER_PG", {}).keys(), step
    return config


def groups_of_image(before: dict, config: dict) -> set[str]:
    """Return the keys of BUFFER_PG that an image sets when pfc_enable has changed since ``before``.

    Source: sonic-swss 029506c5ad, cfgmgr/buffermgr.cpp, doSpeedUpdateTask. It does not so where it computes headroom.
    """
    keys = set()
    dynamic = config["DEVICE_METADATA"]["localhost"].get("buffer_model") == "dynamic"
    for port, entry in config.get("PORT_QOS_MAP", {}).items():
        former = before.get("PORT_QOS_MAP", {}).get(port, {}).get("pfc_enable")
        pfc = entry.get("pfc_enable", "")
        if port in config["PORT"] and pfc != former and not dynamic:
            bits = "".join(str(int(str(number) in pfc.split(","))) for number in range(8))
            for match in re.finditer("1+", bits):
                first, last = match.start(), match.end() - 1
                keys.add(f"{port}|{first}" if first == last else f"{port}|{first}-{last}")
    return keys


def apply(config: dict, wanted: Switch) -> dict:
    """Return the configuration after the patch, which must be the wanted one and need no further patch."""
    before = copy.deepcopy(config)
    operations = patch(config, wanted)
    after = jsonpatch.apply_patch(config, json.loads(json.dumps(operations)))
    assert config == before
    assert check_steps(config, patches(config, wanted)) == after
    read = sonic.parse(json.dumps(after), wanted.name)
    assert {port: read.ports[port] for port in wanted.ports} == wanted.ports
    assert read.ecmp_fields == wanted.ecmp_fields
    assert all(after.values()), "the updater takes no empty table"
    assert patch(after, wanted) == []
    return after
