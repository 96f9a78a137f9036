"""What is rendered, and what a patch makes, under SONiC's own models.

SAILLOFT_SONIC_YANG names the folder that holds them: /usr/local/yang-models of a switch, or sonic-buildimage's
src/sonic-yang-models/yang-models with sonic-types.yang made of its template. `pip install yangson` besides.
"""

from __future__ import annotations

import copy
import json
import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from sonic_configs import PORTS, default_config
from switches import policies, switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.state import Switch, Watchdog
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import sonic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.sonic_patch import OF_PORTS, SHARED

FOLDER = os.environ.get("SAILLOFT_SONIC_YANG")
if not FOLDER:
    pytest.skip("SAILLOFT_SONIC_YANG names no folder of SONiC's models", allow_module_level=True)
yangson = pytest.importorskip("yangson")
jsonpatch = pytest.importorskip("jsonpatch")

TABLES = (*SHARED, *OF_PORTS, "BUFFER_POOL")


class Models:
    """SONiC's models of TABLES, and what they import."""

    def __init__(self, folder: Path) -> None:
        texts = {each.stem.split("@")[0]: each.read_text() for each in folder.glob("*.yang")}
        self.of_table: dict[str, str] = {}
        for name, text in texts.items():
            for table in TABLES:
                inner = r"container\s+GLOBAL" if table == "SWITCH_HASH" else rf"list\s+{table}_LIST"
                if re.search(rf"container\s+{table}\s*\{{", text) and re.search(rf"{inner}\s*\{{", text):
                    self.of_table[table] = name
        missing = set(TABLES) - set(self.of_table)
        assert not missing, f"{folder} has no model of {missing}"
        needed: list[str] = []
        queue = sorted(set(self.of_table.values()))
        while queue:
            name = queue.pop()
            if name not in needed:
                needed.append(name)
                queue += re.findall(r"import\s+([\w-]+)", texts[name])
        self.namespaces = {name: re.search(r'namespace\s+"([^"]+)"', texts[name])[1] for name in needed}
        library = {
            "ietf-yang-library:modules-state": {
                "module-set-id": "",
                "module": [
                    {
                        "name": name,
                        "revision": max(re.findall(r"revision\s+\"?([\d-]{10})", texts[name]), default=""),
                        "namespace": self.namespaces[name],
                        "conformance-type": "implement",
                    }
                    for name in sorted(needed)
                ],
            }
        }
        self.model = yangson.DataModel(json.dumps(library), (str(folder),))

    def validate(self, config: dict[str, Any]) -> None:
        """Raises what yangson raises."""
        root = ElementTree.Element("config")
        for table, name in self.of_table.items():
            if table in config:
                module = self._in(root, name, name)
                self._table(self._in(module, name, table), name, table, config[table])
        self.model.from_xml(root).validate(ctype=yangson.enumerations.ContentType.config)

    def _in(self, parent: ElementTree.Element, module: str, tag: str, text: str | None = None) -> ElementTree.Element:
        element = ElementTree.SubElement(parent, f"{{{self.namespaces[module]}}}{tag}")
        element.text = text
        return element

    def _table(self, parent: ElementTree.Element, module: str, table: str, entries: dict[str, Any]) -> None:
        path = f"/{module}:{module}/{table}"
        rows = self.model.get_schema_node(f"{path}/{table}_LIST")
        for key, entry in entries.items():
            element = self._in(parent, module, f"{table}_LIST" if rows else key)
            if rows:
                for (leaf, _ns), part in zip(rows.keys, key.split("|")):
                    self._in(element, module, leaf, part)
            pairs = self.model.get_schema_node(f"{path}/{table}_LIST/{table}")
            for field, value in entry.items():
                if pairs:  # a map: its fields are an inner list's keys and values
                    (inner, _ns), *_rest = pairs.keys
                    [other] = [each.name for each in pairs.children if each.name != inner]
                    pair = self._in(element, module, table)
                    self._in(pair, module, inner, field)
                    self._in(pair, module, other, value)
                else:
                    for each in value if isinstance(value, list) else [value]:
                        self._in(element, module, field, each)


@pytest.fixture(scope="module")
def models():
    return Models(Path(FOLDER))


def merged(wanted: Switch) -> dict:
    """What is rendered, in an image's configuration without QoS: a port needs lanes, a profile its pool."""
    config = default_config()
    for table in OF_PORTS:
        if table != "PORT":
            config.pop(table, None)
    for table, entries in json.loads(sonic.render(wanted)).items():
        for key, entry in entries.items():
            config.setdefault(table, {}).setdefault(key, {}).update(entry)
    return config


def patched(config: dict[str, Any], wanted: Switch) -> dict[str, Any]:
    text = sonic.remediation(json.dumps(config), wanted)
    for each in text.split("\n\n") if text else []:
        config = jsonpatch.apply_patch(config, json.loads(each))
    return config


def test_the_images_own_default_is_valid(models):
    models.validate(default_config())


@given(policy=policies())
@settings(deadline=None, max_examples=20)
def test_what_is_rendered_is_valid(models, policy):
    models.validate(merged(switch("sonic", ["Ethernet0", "Ethernet4"], policy)))


@given(before=policies(), after=policies())
@settings(deadline=None, max_examples=10)
def test_what_a_patch_makes_is_valid(models, before, after):
    config = default_config()
    config["PFC_WD"]["GLOBAL"]["POLL_INTERVAL"] = "400"
    for policy in (before, after):
        wanted = switch("sonic", list(PORTS), policy)
        config = patched(config, wanted)
        models.validate(config)


def test_a_quick_watchdog_is_valid_after_a_patch(models):
    config = default_config()
    config["PFC_WD"]["GLOBAL"]["POLL_INTERVAL"] = "1000"
    wanted = switch("sonic", list(PORTS), watchdog=Watchdog(100, 60000, "forward"))
    models.validate(patched(config, wanted))


BREAKS = [
    ("PORT_QOS_MAP", "Ethernet0", "dscp_to_tc_map", "nobody"),
    ("PORT_QOS_MAP", "Ethernet0", "tc_to_queue_map", "nobody"),
    ("PORT_QOS_MAP", "Ethernet0", "tc_to_pg_map", "nobody"),
    ("PORT_QOS_MAP", "Ethernet0", "pfc_to_queue_map", "nobody"),
    ("PORT_QOS_MAP", "Ethernet0", "pfc_enable", "8"),
    ("PORT_QOS_MAP", "Ethernet0", "pfcwd_sw_enable", "3 4"),
    ("QUEUE", "Ethernet0|3", "scheduler", "nobody"),
    ("QUEUE", "Ethernet0|3", "wred_profile", "nobody"),
    ("QUEUE", "Ethernet0|3", "wred", "nobody"),
    ("BUFFER_PG", "Ethernet0|3", "profile", "nobody"),
    ("BUFFER_QUEUE", "Ethernet0|3", "profile", "nobody"),
    ("PFC_WD", "Ethernet0", "action", "panic"),
    ("PFC_WD", "Ethernet0", "detection_time", "99"),
    ("PORT", "Ethernet0", "mtu", "9217"),
    ("SWITCH_HASH", "GLOBAL", "ecmp_hash", ["SOURCE_IP"]),
    ("SCHEDULER", "SAILLOFT_STRICT", "type", "PRIORITY"),
    ("SCHEDULER", "SAILLOFT_DWRR_50", "weight", "0"),
    ("WRED_PROFILE", "SAILLOFT_", "green_min_threshold", "1500001"),
    ("WRED_PROFILE", "SAILLOFT_", "ecn", "on"),
    ("WRED_PROFILE", "SAILLOFT_", "red_drop_probability", "101"),
    ("BUFFER_PROFILE", "SAILLOFT_", "pool", "nobody"),
    ("BUFFER_PROFILE", "SAILLOFT_", "dynamic_th", "8"),
    ("BUFFER_PROFILE", "SAILLOFT_", "xon_offset", "-1"),
    ("DSCP_TO_TC_MAP", "SAILLOFT_", "64", "0"),
    ("DSCP_TO_TC_MAP", "SAILLOFT_", "26", "16"),
    ("MAP_PFC_PRIORITY_TO_QUEUE", "SAILLOFT_", "3", "8"),
]


@pytest.mark.parametrize(("table", "key", "field", "value"), BREAKS, ids=[f"{each[0]}-{each[2]}" for each in BREAKS])
def test_what_is_broken_is_refused(models, table, key, field, value):
    """So that the tests above can fail."""
    config = merged(switch("sonic", list(PORTS)))
    models.validate(config)
    broken = copy.deepcopy(config)
    entries = broken[table]
    entries[next(each for each in entries if each.startswith(key))][field] = value
    with pytest.raises(yangson.exceptions.YangsonException):
        models.validate(broken)


def test_a_name_of_33_characters_is_refused(models):
    config = default_config()
    config["WRED_PROFILE"]["A" * 33] = config["WRED_PROFILE"]["AZURE_LOSSLESS"]
    with pytest.raises(yangson.exceptions.YangsonException):
        models.validate(config)
