# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The files of earlier versions in tests/formats are read for ever, also after a later version has added keys."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.discovery import report
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet import kept
from ansible_collections.sailloft.fleet.plugins.module_utils.gateways import record
from ansible_collections.sailloft.fleet.plugins.module_utils.health import copied, state
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import canonical_json
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identity
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import boot_report
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import (
    channels,
    holds,
    manifest,
    node_files,
    statement,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import measured
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health import counters
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.repair import cases
from ansible_collections.sailloft.fleet.plugins.module_utils.repair import log as repair_log
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight import place

ROOT = Path(__file__).parents[3]
FILES = ROOT / "tests/formats"
SHA256 = "0" * 64


def gateway_run(text):
    fresh = record.begun("sailloft.fleet.gpu_hosts", ["--check"], {"gpu-1": "gw1", "gpu-2": "gw1"})
    return record.resumed(text, "run.json", fresh)


# file -> what reads its text, and what a caller gets from it
READERS = {
    "topology-1.json": (
        lambda text: read_saved(json.loads(text)),
        lambda host: len([function for function in host.functions if function.kind == "gpu"]) == 8,
    ),
    "proof-1.json": (
        lambda text: Proof.from_dict(json.loads(text)),
        lambda proof: [claim.holds for claim in proof.claims] == [False, True, None],
    ),
    "image-1.json": (
        lambda text: manifest.load(canonical_json(json.loads(text)), "image"),
        lambda image: [layer.name for layer in image.layers] == ["base", "gpu"],
    ),
    "boot-1.json": (
        lambda text: boot_report.load(text, "node"),
        lambda report: report.phases == (boot_report.Phase("network", 1, 2.5),),
    ),
    "pcrs-1.json": (
        lambda text: measured.load(text, "1" * 64),
        lambda prediction: len(prediction.pcrs["11"]) == 3,
    ),
    "statement-1.json": (
        lambda text: statement.load(text.encode(), "statement"),
        lambda read: (read.sequence, read.nodes["52:54:00:aa:bb:01"].name) == (7, "bm01"),
    ),
    "hold-1.json": (
        lambda text: holds.parse(text.encode(), "hold-0123abcd"),
        lambda hold: hold.scope == holds.Scope(("bm01", "bm02"), "stable"),
    ),
    "health-1.json": (
        lambda text: state.load(text.encode()),
        lambda saved: [fault.check for fault in saved.condition.faults] == ["xid_79", "pcie_width"],
    ),
    "health_expected-1.json": (
        stored.load,
        lambda expected: [device.name for device in expected.devices] == ["GPU 4", "GPU 5"],
    ),
    "infiniband_counters-1.json": (
        lambda text: counters.from_stored(text, "counters.json"),
        lambda reading: (reading.values["leaf 1", 3], reading.unread) == ({"link_downed": 2}, {("leaf 2", 4)}),
    ),
    "fleet/fleet-1.json": (
        lambda text: kept.read_kept(text, "fleet.json"),
        lambda state: (
            (state.readings["gpu-1"].drain, state.shown["gpu-1"]["health"]) == ("riser (ada)", "ok: no fault")
        ),
    ),
    "fleet/vm_place-1.json": (
        lambda text: place.check("train-01", "gpu5", text, "train-01.json"),
        lambda refusal: refusal is None,
    ),
    "discovery/inspection-1.json": (
        lambda text: report.load(text.encode(), "52:54:00:00:00:01"),
        lambda machine: (machine.serial, machine.nics[0].ports) == ("S-1", ("Ethernet0",)),
    ),
    "gateway_run-1.json": (gateway_run, lambda resumed: resumed[1] == ["gpu-2"]),
}


# Objects whose keys are data.
OPEN = (
    *("causes", "hosts", "nodes", "inputs", "distances", "interfaces"),
    *("checks", "values", "kept", "errors", "seconds_of"),
    *("pcrs", "policies"),
    *("device_counts", "versions", "gpu_settings", "accepted", "settings"),
    *("readings", "shown"),
)


def with_new_keys(data):
    """Return plain data with a key that no version knows in each object that has fixed keys."""
    if isinstance(data, list):
        return [with_new_keys(item) for item in data]
    if not isinstance(data, dict):
        return data
    grown = {key: value if key in OPEN else with_new_keys(value) for key, value in data.items()}
    return {**grown, "colour of a later version": {"red": [1]}}


@pytest.mark.parametrize("name", READERS)
def test_a_stored_file_is_read_for_ever(name):
    read, is_right = READERS[name]
    text = (FILES / name).read_text()
    assert is_right(read(text))
    assert read(json.dumps(with_new_keys(json.loads(text)))) == read(text)


def test_a_channel_is_read_for_ever():
    # Without its first line, which ansible-test takes for the shebang of a program.
    data = b"#!ipxe\n" + (FILES / "channel-1.ipxe").read_bytes()
    channel = channels.parse(data, "channel stable")
    assert (channel.name, channel.history) == ("stable", (SHA256,))
    grown = data.replace(b'{"channel"', b'{"colour": "red", "channel"')
    assert grown != data
    assert channels.parse(grown, "channel stable") == channel


@pytest.mark.parametrize(("name", "bound"), [("identity-2", False), ("identity-3", True)])
def test_a_bundle_of_secrets_is_read_for_ever(name, bound):
    bundle, _lines, _signature = identity.parse((FILES / name).read_bytes(), "node bm01")
    assert (bundle.node, bundle.ek, bundle.secrets, bundle.bound) == ("bm01", SHA256, b"secrets", bound)


def test_the_files_of_a_node_are_read_for_ever():
    text = (FILES / "node/node_files-1").read_text()
    shown = {row["after_header"]: row["after"] for row in node_files.diffs({}, {"bm01": text})}
    assert shown == {
        "bm01: /etc/hosts": "0644 root root\n10.9.0.1 boot01\n",
        "bm01: /etc/site/empty": "0600 site 990\n",
    }


def test_a_copy_of_a_nodes_health_is_read_for_ever():
    copy = copied.parse((FILES / "health_copy-1").read_bytes(), "bm01")
    assert (copy.number, [fault.check for fault in copy.state.condition.faults]) == (7, ["xid_79", "pcie_width"])
    assert copy.signature == b"signature\n"


def test_a_log_of_repairs_is_read_for_ever():
    text = (FILES / "fleet/repair-log-1").read_bytes()
    case = cases.cases_of(repair_log.parse(text, "log"), 0)["gpu-1"]
    assert (case.is_open, case.before, case.tried) == (True, "sailloft: sick: GPU 4", 1)
    grown = text.replace(b'{"format"', b'{"colour of a later version": [1], "format"')
    assert repair_log.parse(grown, "log") == repair_log.parse(text, "log")


def test_every_stored_format_has_a_file():
    assert {str(path.relative_to(FILES)) for path in FILES.rglob("*") if path.is_file()} == {
        *READERS,
        "channel-1.ipxe",
        "health_copy-1",
        "identity-2",
        "identity-3",
        "node/node_files-1",
        "fleet/repair-log-1",
    }


# Formats of which no file of an earlier version is read, with the reason.
NOT_STORED = {
    "health-verdict-1": "printed with --format json, for other programs",
    "health-answer-1": "a node's answer to the controller within one run",
    "health-copies-1": "written in each boot to the node's memory; without it a round asks its servers again",
    "fleet-log-1": "a log for people and other programs, which is only appended to",
    "repair-bundle-1": "what is known of a node, for a person",
    "infiniband-1": "a reading of the fabric, which the proof of the same run reads",
    "identity-report-1": "written by each boot to the node's memory",
}
FORMAT = re.compile(r"\bsailloft-([a-z-]+)/(\d+)")


def test_every_format_of_the_sources_has_a_file_or_is_never_read_later():
    sources = [*(ROOT / "plugins").rglob("*.py"), *(ROOT / "roles").glob("*/files/**/*")]
    texts = [path.read_text(encoding="utf-8") for path in sources if path.is_file() and path.suffix != ".pyc"]
    formats = {"-".join(names) for text in texts for names in FORMAT.findall(text)}
    files = {path.stem.replace("_", "-") for path in FILES.rglob("*") if path.is_file()}
    assert len(formats) > len(NOT_STORED)
    assert formats - files == set(NOT_STORED)
