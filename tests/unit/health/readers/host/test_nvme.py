# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Disks are judged by their own health log, in the forms of nvme-cli and smartctl, and never without one."""

from __future__ import annotations

import json

import pytest
from health_nodes import failed, node, results, unmeasured, write
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import PASS, Place, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.nvme import (
    parse_nvme,
    parse_smartctl,
    read,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError, Ran

DISK = Place("nvme", "nvme0")
HEALTHY = {"critical_warning": 0, "avail_spare": 100, "spare_thresh": 5, "percent_used": 30, "media_errors": "7"}


def nvme_cli(**changed):
    """Return the JSON of `nvme smart-log`."""
    return json.dumps({"temperature": 324, "num_err_log_entries": 212, **HEALTHY, **changed})


def smartctl(passed=True, status=0, **changed):
    """Return the JSON of `smartctl -a` of an NVMe disk."""
    log = {
        "critical_warning": 0,
        "available_spare": 100,
        "available_spare_threshold": 5,
        "percentage_used": 30,
        "media_errors": 7,
        **changed,
    }
    answer = {
        "smartctl": {"exit_status": status},
        "smart_status": {"passed": passed},
        "nvme_smart_health_information_log": log,
    }
    return json.dumps(answer)


def sata(passed=True, errors=0):
    """Return the JSON of `smartctl -a` of a SATA disk."""
    log = {"summary": {"count": errors}}
    return json.dumps({"smartctl": {}, "smart_status": {"passed": passed}, "ata_smart_error_log": log})


def machine(root, programs, sata_disks=()):
    """Return a node with the controller nvme0, one over a network, and SATA disks."""
    write(root, {"/sys/class/nvme/nvme0/transport": "pcie", "/sys/class/nvme/nvme1/transport": "rdma"})
    for name in sata_disks:
        write(root, {f"/sys/block/{name}/device/vendor": "ATA     ", f"/sys/block/{name}/removable": "0"})
    write(root, {"/sys/block/sdy/device/vendor": "DELL", "/sys/block/nvme0n1/size": "1", "/sys/block/loop0/size": "1"})
    return node(root, programs=programs)


@pytest.mark.parametrize("program", [{"nvme smart-log /dev/nvme0": nvme_cli()}, {"smartctl": smartctl()}])
def test_a_healthy_disk_passes_with_either_program(tmp_path, program):
    once = read(machine(tmp_path, program))
    judged = results(once, once)
    assert {result.verdict for result in judged} == {PASS}
    assert {result.place.name for result in judged} == {"nvme0"}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"critical_warning": 1}, {"disk_spare_low"}),
        ({"critical_warning": 2}, {"disk_hot"}),
        ({"critical_warning": 4}, {"disk_failed"}),
        ({"critical_warning": 8}, {"disk_failed"}),
        ({"critical_warning": 16}, {"disk_failed"}),
        ({"critical_warning": 32}, {"disk_failed"}),
        ({"critical_warning": {"value": 4, "reliability_degraded": 1}}, {"disk_failed"}),
        ({"avail_spare": 4}, {"disk_spare_low"}),
        ({"avail_spare": 5}, set()),
        # Emulated disks: not supported.
        ({"avail_spare": 0, "spare_thresh": 0}, set()),
        ({"percent_used": 104}, {"disk_used"}),
        ({"media_errors": "8"}, {"disk_media_errors"}),
    ],
)
def test_each_cause_is_named(tmp_path, changed, expected):
    before = read(machine(tmp_path, {"nvme smart-log": nvme_cli()}))
    after = read(machine(tmp_path, {"nvme smart-log": nvme_cli(**changed)}))
    assert set(failed(before, after)) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (smartctl(False, 8, critical_warning=16), {"disk_failed"}),
        (smartctl(False, 8), {"disk_failed"}),
        (smartctl(available_spare=1), {"disk_spare_low"}),
        # A disk that is too hot has not failed, whatever smartctl concludes from it.
        (smartctl(False, 8, critical_warning=2), {"disk_hot"}),
        (smartctl(passed=False, critical_warning=None), {"disk_failed"}),
    ],
)
def test_smartctl_names_the_same_causes(tmp_path, answer, expected):
    assert set(failed(read(machine(tmp_path, {"smartctl": answer})))) == expected


def test_a_sata_disk_that_failed_and_one_that_logged_errors(tmp_path):
    answers = {
        "nvme": nvme_cli(),
        "smartctl -j -a --nocheck=standby /dev/sda": sata(passed=False),
        "smartctl -j -a --nocheck=standby /dev/sdb": Ran(64, sata(errors=1), ""),
        "smartctl -j -a --nocheck=standby /dev/sdc": sata(),
    }
    reading = read(machine(tmp_path, answers, ("sda", "sdb", "sdc")))
    assert failed(reading) == {"disk_failed": ["sda"], "disk_error_log": ["sdb"]}


@pytest.mark.parametrize(
    "program",
    [
        {},
        {"nvme": Ran(1, "", "No such device")},
        {"nvme": "{"},
        {"nvme": "[]"},
        {"nvme": ""},
        {"nvme": NotMeasuredError("no answer in 10 s"), "smartctl": NotMeasuredError("no answer in 10 s")},
        {"smartctl": json.dumps({"smartctl": {"exit_status": 2, "messages": [{"string": "No such device"}]}})},
        {"smartctl": json.dumps({"smartctl": {"messages": [1]}, "smart_status": "passed"})},
        {"nvme": "[" * 100000},
    ],
)
def test_a_disk_that_gives_no_log_is_not_measured(tmp_path, program):
    once = read(machine(tmp_path, program))
    assert (failed(once, once), unmeasured(once, once)) == ({}, {"disk_failed": ["nvme0"]})


def test_values_of_other_types_are_not_measured(tmp_path):
    log = json.dumps({"critical_warning": "viel", "avail_spare": None, "percent_used": -1, "media_errors": True})
    once = read(machine(tmp_path, {"nvme": log}))
    assert failed(once, once) == {}
    assert set(unmeasured(once, once)) == {"disk_failed", "disk_used", "disk_media_errors"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*HEALTHY, "value", "passed"]), inner),
)


@given(st.text() | JSON.map(json.dumps) | st.dictionaries(st.sampled_from([*HEALTHY]), JSON).map(json.dumps))
def test_other_answers_are_an_error_or_no_pass(text):
    for parse in (lambda: parse_nvme(text, DISK, "nvme"), lambda: parse_smartctl(text, DISK)):
        try:
            measured = tuple(parse())
        except NotMeasuredError:
            continue
        passed = {each.check for each in results(Reading("nvme", measured)) if each.verdict == PASS}
        warning = json.loads(text).get("critical_warning")
        assert "disk_failed" not in passed or isinstance(warning, (int, dict, str))
