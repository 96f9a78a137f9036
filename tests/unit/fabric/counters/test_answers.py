# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The answers in the results of Ansible's modules."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.answers import OF_ALL_PORTS, answers


@pytest.mark.parametrize(
    ("result", "output"),
    [
        ({"rc": 0, "stdout": "[]", "stderr": "a warning"}, "[]"),
        ({"stdout": [{"a": 1}], "stdout_lines": [{"a": 1}]}, {"a": 1}),
        ({"stdout": "<a/>", "xml": "<b/>"}, "<a/>"),
        ({"xml": "<a/>", "output": {}}, "<a/>"),
        ({"status": 200, "json": {}, "msg": "OK"}, {}),
    ],
)
def test_the_output_of_each_module_is_read(result, output):
    assert answers([{"item": "show", **result}]) == ({"show": output}, {})


@pytest.mark.parametrize(
    ("result", "fact"),
    [
        ({"rc": 2, "stdout": '{"a": 1}', "stderr": "", "msg": "No such file"}, "No such file"),
        ({"rc": 2, "stdout": "{}"}, "2"),
        ({"failed": True, "stdout": ["{}"], "msg": "timeout"}, "timeout"),
        ({"failed_when_result": False, "msg": "Invalid input"}, "Invalid input"),
        ({"status": 404, "json": {"title": "Not Found"}, "msg": "Status code was 404"}, "404"),
        ({"status": -1, "msg": "Connection refused"}, "refused"),
        ({"rc": 0, "stdout": ""}, "no answer"),
        ({"stdout": []}, "no answer"),
        ({}, "no answer"),
    ],
)
def test_a_command_that_failed_has_a_reason_and_no_output(result, fact):
    read = answers([{"item": "show", **result}])
    assert read.shown == {}
    assert fact in read.failures["show"]


def test_a_port_that_does_not_answer_is_named_and_the_others_are_read():
    read = answers(
        [
            {"item": "interface/swp1/counters/qos", "status": 200, "json": {"a": 1}},
            {"item": "interface/swp2/counters/qos", "status": 500, "msg": "broken"},
        ]
    )
    assert read.shown == {OF_ALL_PORTS: {"swp1": {"a": 1}}}
    assert "swp2" in read.failures[OF_ALL_PORTS]
