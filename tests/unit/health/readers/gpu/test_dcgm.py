# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""DCGM's faults are named by kind; what it skipped, or has no result of, is not measured."""

from __future__ import annotations

import json

import pytest
from gpu_readings import FIRST, SECOND, Verdicts, expected, gpu, node, report, write
from hypothesis import given
from hypothesis import strategies as st
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.gpu.dcgm import (
    REQUIRED,
    entities,
    parse_diagnostic,
    parse_health,
    read,
    read_diagnostic,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError

TWO = expected(FIRST, SECOND)
ADDRESSES = {0: FIRST, 1: SECOND}
DISCOVERY = """2 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 0      | Name: NVIDIA H100 80GB HBM3                                          |
|        | PCI Bus ID: 00000000:1A:00.0                                         |
|        | Device UUID: GPU-01000100-0000-0000-0000-000000000000                |
+--------+----------------------------------------------------------------------+
| 1      | Name: NVIDIA H100 80GB HBM3                                          |
|        | PCI Bus ID: 00000000:1B:00.0                                         |
|        | Device UUID: GPU-01000100-0000-0000-0000-000000000001                |
+--------+----------------------------------------------------------------------+
"""


def warning(severity, text="broken"):
    return {"warning": text, "error_id": 4, "error_category": 10, "error_severity": severity}


def entity(number, status, *warnings, **more):
    """Return a result of DCGM 4."""
    result = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": number, "status": status, **more}
    return {**result, "warnings": list(warnings)} if warnings else result


def four(**tests):
    """Return the output of DCGM 4 with these results by test."""
    items = [{"name": name, "results": results} if results else {"name": name} for name, results in tests.items()]
    categories = [{"category": "Hardware", "tests": items}]
    return json.dumps({"DCGM Diagnostic": {"test_categories": categories}, "metadata": {"version": "4.6.0"}})


def both(status):
    return [entity(0, status), entity(1, status)]


def diagnosed(text):
    return Verdicts(Reading("dcgm_diag", parse_diagnostic(text, ADDRESSES)), TWO)


def test_what_passed_passes_and_what_has_no_result_is_not_measured():
    result = diagnosed(four(software=both("Pass"), memory=both("Pass"), pcie=[]))
    assert result.faults() == set()
    assert result.passed() == {
        "dcgm_diag_software",
        "dcgm_diag_memory",
        "dcgm_diag_configuration",
        "dcgm_diag_reset",
        "dcgm_diag_monitor",
    }
    assert result.unmeasured() == {f"dcgm_diag_{test}" for test in REQUIRED} - result.passed()


@pytest.mark.parametrize(
    ("severity", "check"),
    [
        (1, "dcgm_diag_monitor"),
        (2, "dcgm_diag_memory"),
        (3, "dcgm_diag_memory"),
        (4, "dcgm_diag_memory"),
        (5, "dcgm_diag_configuration"),
        (6, "dcgm_diag_reset"),
    ],
)
def test_a_failure_is_of_its_severity(severity, check):
    result = diagnosed(four(software=both("Pass"), memory=[entity(0, "Pass"), entity(1, "Fail", warning(severity))]))
    assert result.faults() == {(check, f"gpu {SECOND}")}
    assert "dcgm_diag_memory" not in result.passed(SECOND)
    assert "dcgm_diag_memory" in result.passed(FIRST)


@pytest.mark.parametrize("status", ["Skip", "Not Run", "", "Übersprungen", None])
def test_what_did_not_run_is_not_measured(status):
    result = diagnosed(four(software=both("Pass"), memory=both(status)))
    assert result.faults() == set()
    assert "dcgm_diag_memory" in result.unmeasured()


def test_a_repeated_test_passes_only_if_each_time_did():
    report = json.loads(four(memory=both("Pass")))
    again = json.loads(four(memory=[entity(0, "Pass"), entity(1, "Skip")]))
    report["DCGM Diagnostic"]["iterations"] = [again["DCGM Diagnostic"]]
    result = diagnosed(json.dumps(report))
    assert "dcgm_diag_memory" in result.passed(FIRST)
    assert "dcgm_diag_memory" in result.unmeasured(SECOND)


def test_a_value_that_dcgm_could_not_read_is_said():
    summary = {"status": "Fail", "info": ["SRAM Threshold Count for GPU 0. Value = 9223372036854775794."]}
    test = {"name": "software", "results": [entity(0, "Fail", warning(5))], "test_summary": summary}
    text = json.dumps({"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [test]}]}})
    reasons = {each.check: each.reason for each in parse_diagnostic(text, {0: FIRST})}
    assert "SRAM" in reasons["dcgm_diag_software"]


def three(*tests, category="Deployment"):
    """Return the output of DCGM 3 with these tests, behind a line of text."""
    categories = [{"category": category, "tests": list(tests)}]
    return "Successfully ran diagnostic for group.\n" + json.dumps(
        {"DCGM GPU Diagnostic": {"test_categories": categories, "version": "3.3.9"}}
    )


def test_dcgm_3_has_other_names_and_forms():
    text = three(
        {"name": "GPU Memory", "results": [{"gpu_id": "0", "status": "Pass"}, {"gpu_id": 1, "status": "Fail"}]},
        None,
        {"name": "PCIe", "results": [{"gpu_ids": "0,1", "status": "PASS"}]},
        category="Hardware",
    )
    result = diagnosed(text)
    assert result.faults() == {("dcgm_diag_memory", f"gpu {SECOND}")}
    assert "dcgm_diag_pcie" in result.passed(SECOND)


@pytest.mark.parametrize("status", ["Fail", "Warn"])
def test_configuration_that_names_no_gpu_is_the_nodes(status):
    result = diagnosed(three({"name": "Persistence Mode", "results": [{"status": status}]}))
    assert result.faults() == {("dcgm_diag_configuration", "node")}
    assert result.passed(FIRST) == set()


def health(overall, **systems):
    """Return the output of ``dcgmi health`` with these systems of GPU 1."""
    body = {"Overall Health": {"value": overall}}
    if systems:
        errors = {f"{name} system": {"value": value, "overflow": ["some", "words"]} for name, value in systems.items()}
        body["GPU"] = {"children": {"1": {"children": {"Errors": {"children": errors}}, "value": overall}}}
    return json.dumps({"body": body, "header": ["Health Monitor Report"]})


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        (health("Healthy"), set()),
        (health("Failure", Memory="Failure"), {("dcgm_health", f"gpu {SECOND}")}),
        (health("Warning", PCIe="Warning"), {("dcgm_health_warning", f"gpu {SECOND}")}),
        (health("Failure", PCIe="Broken"), {("dcgm_health", f"gpu {SECOND}")}),
        (health("Failure"), {("dcgm_health", "node")}),
    ],
)
def test_watches_name_the_gpu(text, faults):
    result = Verdicts(Reading("dcgm", parse_health(text, ADDRESSES)), TWO)
    assert result.faults() == faults
    assert "dcgm_health" in result.passed(FIRST)


@pytest.mark.parametrize(
    "text",
    [
        "Error: unable to establish a connection to the specified host: localhost",
        "",
        "{}",
        '{"body": []}',
        '{"body": {"Overall Health": {"value": 7}}}',
        '{"body": {"Overall Health"',
        "[" * 100000,
    ],
    ids=range(7),
)
def test_without_an_answer_nothing_is_measured(text):
    with raises(NotMeasuredError):
        parse_health(text, ADDRESSES)
    with raises(NotMeasuredError):
        parse_diagnostic(text, ADDRESSES)


def test_watches_that_nobody_enabled_are_noted_and_no_fault():
    (noted,) = parse_health("Error: Health watches not enabled. Please enable watches. \n", ADDRESSES)
    assert (noted.value, noted.is_occasional) == (None, True)
    assert "dcgmi health -g 0 -s a" in noted.reason


def test_a_diagnostic_that_did_not_run_is_not_measured():
    with raises(NotMeasuredError, "paused"):
        parse_diagnostic('{"DCGM Diagnostic": {"runtime_error": "Error: DCGM is paused."}}', ADDRESSES)


def test_numbers_of_dcgm_become_addresses(tmp_path):
    assert entities(DISCOVERY) == ADDRESSES
    with raises(NotMeasuredError):
        entities("0 GPUs found.\n")
    write(tmp_path, "/usr/bin/dcgmi", "")
    answers = {
        "dcgmi discovery -l": DISCOVERY,
        "dcgmi health -g 0 -c -j": health("Failure", Memory="Failure"),
        "dcgmi diag -r 3 -j": four(memory=[entity(1, "Fail", warning(2))]),
        "nvidia-smi -q -x": report(gpu(FIRST), gpu(SECOND)),
    }
    assert Verdicts(read(node(tmp_path, answers, TWO)), TWO).faults() == {("dcgm_health", f"gpu {SECOND}")}
    deep = Verdicts(read_diagnostic(node(tmp_path, answers, TWO)), TWO)
    assert deep.faults() == {("dcgm_diag_memory", f"gpu {SECOND}")}


def test_a_node_without_dcgm_is_not_asked(tmp_path):
    assert read(node(tmp_path, {}, TWO)).measurements == ()
    assert read_diagnostic(node(tmp_path, {}, TWO)).measurements == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["Pass", "Fail", "GPU"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "results", "status", "entity_id", "gpu_ids", "warnings"]), inner)
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_read_without_a_crash(value):
    for text in (
        json.dumps(
            {"DCGM Diagnostic": {"test_categories": [{"tests": [value, {"name": "memory", "results": value}]}]}}
        ),
        json.dumps({"body": {"Overall Health": {"value": "Healthy"}, "GPU": {"children": {"0": value}}}}),
    ):
        for parse in (parse_diagnostic, parse_health):
            try:
                measurements = parse(text, ADDRESSES)
            except NotMeasuredError:
                continue
            assert all(each.value is None or isinstance(each.value, str) for each in measurements)
