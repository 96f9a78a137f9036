"""SONiC's YANG models accept a rendered and a patched configuration, according to yanglint (libyang2-tools).

SAILLOFT_SONIC_YANG names the directory that holds the models: a copy of a switch's /usr/local/yang-models, or
src/sonic-yang-models of a checkout of sonic-buildimage, whose templates are rendered as its setup.py renders them.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jinja2
import pytest
from hypothesis import given, settings
from sonic_configs import PORTS, default_config
from switches import policies, switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Switch, Watchdog
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import sonic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.sonic_patch import OF_PORTS, SHARED

FOLDER = os.environ.get("SAILLOFT_SONIC_YANG")
if not FOLDER:
    pytest.skip("SAILLOFT_SONIC_YANG names no directory of SONiC's models", allow_module_level=True)
jsonpatch = pytest.importorskip("jsonpatch")

TABLES = (*SHARED, *OF_PORTS, "BUFFER_POOL")
YIN = "{urn:ietf:params:xml:ns:yang:yin:1}"


class InvalidConfigError(Exception):
    """A configuration that the models refuse, with the message of yanglint."""


def gathered(folder: Path, into: Path) -> Path:
    """Return a directory of all models: ``folder`` itself, or ``into`` with a checkout's models and templates."""
    if not (folder / "yang-models").is_dir():
        return folder
    for model in (folder / "yang-models").glob("*.yang"):
        shutil.copy(model, into)
    for template in (folder / "yang-templates").glob("*.yang.j2"):
        text = jinja2.Template(template.read_text(), trim_blocks=True).render(yang_model_type="py")
        (into / template.stem).write_text(text)
    return into


class Models:
    """SONiC's models of TABLES."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder, self.scratch = folder, scratch
        self.containers: dict[str, ElementTree.Element] = {}
        self.module_of: dict[str, str] = {}
        self.namespaces: dict[str, str] = {}
        wanted = re.compile(rf"container\s+({'|'.join(TABLES)})\s*\{{")
        for path in sorted(folder.glob("*.yang")):
            if wanted.search(path.read_text()):
                self._add(path)
        self.implemented = self._imported(set(self.module_of.values()))
        missing = set(TABLES) - set(self.containers)
        assert not missing, f"{folder} has no model of {missing}"

    def _add(self, path: Path) -> None:
        module = ElementTree.fromstring(self._yanglint("-f", "yin", str(path)))
        for container in module.iter(f"{YIN}container"):
            table = container.get("name")
            inner = container.find(f"{YIN}list[@name='{table}_LIST']")
            if table in TABLES and (inner is not None or container.find(f"{YIN}container[@name='GLOBAL']") is not None):
                self.containers[table] = container
                self.module_of[table] = path.stem.split("@")[0]
                self.namespaces[table] = module.find(f"{YIN}namespace").get("uri")

    def _imported(self, names: set[str]) -> list[str]:
        """Return the files of the models and of all that they import, which their conditions may refer to."""
        texts: dict[str, str] = {}
        pending = sorted(names)
        while pending:
            name = pending.pop()
            path = self.folder / f"{name}.yang"
            if name not in texts and path.exists():  # libyang contains those of the IETF
                texts[name] = str(path)
                pending += re.findall(r"import\s+([\w-]+)", path.read_text())
        return sorted(texts.values())

    def _yanglint(self, *arguments: str) -> str:
        process = subprocess.run(
            ["yanglint", "-p", str(self.folder), *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        if process.returncode:
            raise InvalidConfigError("\n".join(line for line in process.stderr.splitlines() if "err" in line.lower()))
        return process.stdout

    def validate(self, config: dict[str, Any]) -> None:
        """Raise InvalidConfigError if the models refuse ``config``."""
        documents: dict[str, ElementTree.Element] = {}
        for table in self.containers:
            if table in config:
                space = self.namespaces[table]
                name = self.module_of[table]
                root = documents.setdefault(name, ElementTree.Element(f"{{{space}}}{name}"))
                self._table(space, self._in(root, space, table), table, config[table])
        text = "\n".join(ElementTree.tostring(root, encoding="unicode") for root in documents.values())
        data = self.scratch / "config.xml"
        data.write_text(text)
        self._yanglint("-t", "config", *self.implemented, str(data))

    @staticmethod
    def _in(parent: ElementTree.Element, space: str, tag: str, text: str | None = None) -> ElementTree.Element:
        element = ElementTree.SubElement(parent, f"{{{space}}}{tag}")
        element.text = text
        return element

    def _table(self, space: str, parent: ElementTree.Element, table: str, entries: dict[str, Any]) -> None:
        rows = self.containers[table].findall(f"{YIN}list")
        for key, entry in entries.items():
            fixed = self.containers[table].find(f"{YIN}container[@name='{key}']")
            if fixed is not None:
                row, element = None, self._in(parent, space, key)
            else:
                parts = key.split("|")
                row = next(each for each in rows if len(each.find(f"{YIN}key").get("value").split()) == len(parts))
                element = self._in(parent, space, row.get("name"))
                for leaf, part in zip(row.find(f"{YIN}key").get("value").split(), parts):
                    self._in(element, space, leaf, part)
            pairs = None if row is None else row.find(f"{YIN}list[@name='{table}']")
            for field, value in entry.items():
                if pairs is not None:  # a map: its fields are an inner list's keys and values
                    inner = pairs.find(f"{YIN}key").get("value")
                    [value_name] = [
                        leaf.get("name") for leaf in pairs.findall(f"{YIN}leaf") if leaf.get("name") != inner
                    ]
                    pair = self._in(element, space, table)
                    self._in(pair, space, inner, field)
                    self._in(pair, space, value_name, value)
                else:
                    for each in value if isinstance(value, list) else [value]:
                        self._in(element, space, field, each)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return Models(gathered(Path(FOLDER), tmp_path_factory.mktemp("yang")), tmp_path_factory.mktemp("config"))


def merged(wanted: Switch) -> dict:
    """Return the rendered tables in an image's configuration without QoS: ports need lanes, profiles need pools."""
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


def test_the_default_configuration_of_the_image_is_valid(models):
    models.validate(default_config())


@given(policy=policies())
def test_any_rendered_policy_is_valid(models, policy):
    models.validate(merged(switch("sonic", ["Ethernet0", "Ethernet4"], policy)))


@given(before=policies(), after=policies())
@settings(max_examples=10)
def test_any_patched_configuration_is_valid(models, first, second):
    config = default_config()
    config["PFC_WD"]["GLOBAL"]["POLL_INTERVAL"] = "400"
    for policy in (first, second):
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
def test_broken_configurations_are_refused(models, table, key, field, value):
    """The models refuse broken configurations, so the tests above can fail."""
    config = merged(switch("sonic", list(PORTS)))
    models.validate(config)
    broken = copy.deepcopy(config)
    entries = broken[table]
    entries[next(each for each in entries if each.startswith(key))][field] = value
    with pytest.raises(InvalidConfigError):
        models.validate(broken)


def test_a_name_of_33_characters_is_refused(models):
    config = default_config()
    config["WRED_PROFILE"]["A" * 33] = config["WRED_PROFILE"]["AZURE_LOSSLESS"]
    with pytest.raises(InvalidConfigError):
        models.validate(config)
