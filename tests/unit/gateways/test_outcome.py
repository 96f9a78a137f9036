# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Outcomes of hosts from events in the form of ansible-runner 2.4."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.gateways.outcome import Events, HostOutcome, of_hosts

START = {"event": "playbook_on_play_start", "event_data": {}}
STOP = {"event": "playbook_on_no_hosts_remaining", "event_data": {}}


def ok(host):
    return {"event": "runner_on_ok", "event_data": {"host": host}}


def failed(host, message="no link", kind="runner_on_failed", **data):
    return {"event": kind, "event_data": {"host": host, "task": "Check", "res": {"msg": message}, **data}}


def stats(failures=(), dark=()):
    return {
        "event": "playbook_on_stats",
        "event_data": {"failures": dict.fromkeys(failures, 1), "dark": dict.fromkeys(dark, 1)},
    }


def states(hosts, *given, successful=False):
    events = Events()
    for event in given:
        events.add(event)
    return {host: each.state for host, each in of_hosts(hosts, events, successful).items()}


def test_hosts_without_failures_are_ok_only_if_the_run_continued_after_a_failure():
    one = [START, ok("a"), failed("b")]
    assert states("ab", *one, ok("a"), stats("b")) == {"a": "ok", "b": "failed"}
    assert states("ab", *one, stats("b")) == {"a": "ok", "b": "failed"}
    assert states("ab", *one, STOP, stats("b")) == {"a": "unknown", "b": "failed"}
    assert states("ab", *one) == {"a": "unknown", "b": "unknown"}
    assert states("ab", START, ok("a"), stats(), successful=True) == {"a": "ok", "b": "ok"}


def test_other_hosts_are_unknown_after_a_failed_batch_ended_the_run():
    # The play has serial: 1, and no event says that no other batch follows.
    assert states("abc", START, ok("a"), START, failed("b"), stats("b")) == {
        "a": "unknown",
        "b": "failed",
        "c": "unknown",
    }
    # A play without hosts follows.
    assert states("ab", START, ok("a"), failed("b"), START, stats("b")) == {"a": "ok", "b": "failed"}


def test_ignored_and_rescued_failures_do_not_count():
    ignored = failed("a", ignore_errors=True)
    assert states("a", START, ignored, failed("a"), ok("a"), stats(), successful=True) == {"a": "ok"}


def test_an_ignored_failure_in_an_always_section_is_not_reported_for_the_host():
    events = Events()
    for event in (START, failed("a", "no link"), failed("a", "ignored", ignore_errors=True), stats("a")):
        events.add(event)
    assert of_hosts("a", events, False)["a"].message == "no link"


@pytest.mark.parametrize(("kind", "state"), [("runner_on_failed", "failed"), ("runner_on_unreachable", "unreachable")])
def test_a_failure_has_its_task_and_its_message_without_the_hosts_own_name(kind, state):
    events = Events()
    events.add(failed("gpu-1", "gpu-1 (192.0.2.1):\n no link", kind, remote_addr="192.0.2.1"))
    events.add(stats(["gpu-1"]) if state == "failed" else stats(dark=["gpu-1"]))
    assert of_hosts(["gpu-1"], events, False) == {"gpu-1": HostOutcome(state, "Check", "HOST (HOST): no link")}


def test_an_error_of_ansible_itself_is_kept():
    events = Events()
    events.add({"event": "verbose", "stdout": "\x1b[0;31m[ERROR]: the playbook: x.yml\nwas not found\x1b[0m"})
    assert events.error == "[ERROR]: the playbook: x.yml was not found"


def test_any_is_true_after_the_first_event_of_ansible():
    events = Events()
    assert events.any is False
    events.add({"event": "verbose", "stdout": ""})
    assert events.any is True


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"msg": "no link", "stderr": "x"}, "no link"),
        ({"msg": "", "stderr": "no route"}, "no route"),
        ({}, None),
        (None, None),
    ],
)
@pytest.mark.parametrize(("kind", "state"), [("runner_on_failed", "failed"), ("runner_on_unreachable", "unreachable")])
def test_a_failure_without_a_message_has_the_state_as_its_message(kind, state, result, message):
    events = Events()
    events.add({"event": kind, "event_data": {"host": "gpu-1", "res": result}})
    assert events.failures == {"gpu-1": HostOutcome(state, "", message or state)}


def test_only_the_first_error_of_ansible_is_kept():
    events = Events()
    for kind, text in (
        ("runner_on_ok", "ERROR 0"),
        ("verbose", "a warning"),
        ("error", "ERROR 1"),
        ("verbose", "ERROR 2"),
    ):
        events.add({"event": kind, "stdout": text})
    assert events.error == "ERROR 1"


def test_a_failed_host_without_an_event_has_only_its_state():
    events = Events()
    events.add(stats("a", "b"))
    assert of_hosts("ab", events, False) == {"a": HostOutcome("failed"), "b": HostOutcome("unreachable")}
