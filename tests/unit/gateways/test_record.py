# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The record of a run on gateways."""

from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.gateways.errors import GatewayError
from ansible_collections.sailloft.fleet.plugins.module_utils.gateways.outcome import HostOutcome
from ansible_collections.sailloft.fleet.plugins.module_utils.gateways.record import begun, resumed, slice_ended

GATEWAYS = {"gpu-1": "gw1", "gpu-2": "gw1", "gpu-3": "gw2", "gpu-4": "gw3"}
FIRST = {"gpu-1": HostOutcome("ok"), "gpu-2": HostOutcome("failed", "Check", "no link")}
LOST = {"gpu-3": HostOutcome("unknown")}


def run():
    fresh = begun("site.fleet.play", ["--check"], GATEWAYS)
    return fresh.with_slice("gw1", FIRST, "").with_slice("gw2", LOST, "not reached; look")


def test_the_report_has_each_gateway_and_each_cause():
    assert run().report() == [
        "gw1: 2 hosts: 1 failed, 1 ok",
        "gw2: 1 host: 1 unknown",
        "gw3: 1 host: 1 unknown",
        "1 host: Check: failed: no link: gpu-2",
        "1 host: gw2: not reached; look: gpu-3",
        "1 host: gw3: the run ended before it finished there: gpu-4",
    ]
    assert run().counts() == {"failed": 1, "ok": 1, "unknown": 2}


def test_a_resumed_run_repeats_hosts_that_are_not_ok():
    fresh = begun("site.fleet.play", ["--check"], {**GATEWAYS, "gpu-2": "gw9", "gpu-5": "gw3"})
    record, left = resumed(run().to_json(), "record.json", fresh)
    assert left == ["gpu-2", "gpu-3", "gpu-4", "gpu-5"]
    assert record.gateways["gpu-2"] == "gw9"
    assert record.hosts["gpu-1"] == HostOutcome("ok")
    assert {record.hosts[host].state for host in left} == {"unknown"}


def test_hosts_that_are_not_in_the_resumed_run_keep_their_outcome():
    record, left = resumed(run().to_json(), "record.json", begun("site.fleet.play", ["--check"], {"gpu-3": "gw2"}))
    assert left == ["gpu-3"]
    assert (record.hosts["gpu-1"].state, record.hosts["gpu-2"].message) == ("ok", "no link")


@pytest.mark.parametrize(("playbook", "arguments"), [("site.fleet.play", []), ("site.fleet.other", ["--check"])])
def test_the_record_of_another_run_is_refused(playbook, arguments):
    with raises(GatewayError, "record.json", "site.fleet.play"):
        resumed(run().to_json(), "record.json", begun(playbook, arguments, GATEWAYS))


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"hosts": {"a": {}}}', '{"hosts": {}, "playbook": null, "arguments": []}'],
)
def test_an_invalid_record_is_refused(text):
    with raises(GatewayError, "record.json", "gateways_resume"):
        resumed(text, "record.json", begun("p", [], GATEWAYS))


def test_the_summary_of_a_slice_names_hosts_that_are_not_ok():
    assert slice_ended("gw1", FIRST, "") == "gw1: 1 of 2 hosts ok, not ok: gpu-2"
    assert slice_ended("gw2", LOST, "cause") == "gw2: 0 of 1 hosts ok, not ok: gpu-3: cause"
    assert slice_ended("gw2", {}, "") == "gw2: 0 of 0 hosts ok"


def test_the_file_has_one_space_of_indentation_and_sorted_hosts():
    record = begun("p", ["-v"], {"b": "gw1", "a": "gw2"}).with_slice("gw1", {"b": HostOutcome("failed", "T", "m")}, "c")
    assert (
        record.to_json()
        == """{
 "playbook": "p",
 "arguments": [
  "-v"
 ],
 "hosts": {
  "a": {
   "gateway": "gw2",
   "state": "unknown",
   "task": "",
   "message": ""
  },
  "b": {
   "gateway": "gw1",
   "state": "failed",
   "task": "T",
   "message": "m"
  }
 },
 "causes": {
  "gw1": "c"
 }
}
"""
    )
