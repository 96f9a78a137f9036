# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""In Slurm only what the health check drained is undrained, and nobody's reason is replaced.

The lines have the form of ``scontrol show node --oneliner`` of Slurm 22.05.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from messages import raises
from rounds import Node, at, happened, measured

from ansible_collections.sailloft.fleet.plugins.module_utils.health import slurm
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import Round, State
from ansible_collections.sailloft.fleet.plugins.module_utils.health.verdict import verdict


def made(*found, seconds=61):
    node = Node()
    node.round(at(60), *found)
    return verdict(State("gpu01", Round(1, at(60), 1.0, 60.0), node.condition), at(seconds))


SICK, FIT, UNKNOWN = made(happened("xid_person")), made(measured("width", 16)), made(seconds=9999)


def ours(verdict):
    """Return a verdict whose state knows that the node was drained in Slurm."""
    condition = replace(verdict.state.condition, slurm_drain=at(0))
    return replace(verdict, state=replace(verdict.state, condition=condition))


REASON = "Reason=sailloft: sick: GPU 4: xid_person is wrong"
BY = "[root@2026-11-28T05:00:00]"


def node(state, reason=""):
    return f"NodeName=gpu01 Arch=x86_64 CoresPerSocket=48 State={state} ThreadsPerCore=2 Partitions=all{reason}"


@pytest.mark.parametrize(
    ("shown", "verdict", "wanted"),
    [
        (node("IDLE"), SICK, ["State=DRAIN", REASON]),
        (node("ALLOCATED+CLOUD"), SICK, ["State=DRAIN", REASON]),
        (node("IDLE", f" Reason=sailloft: old {BY}"), SICK, ["State=DRAIN", REASON]),
        (node("IDLE+DRAIN", f" {REASON} {BY}"), SICK, []),
        (node("IDLE+DRAIN", f" Reason=sailloft: sick: other {BY}"), SICK, [REASON]),
        (node("IDLE+DRAIN", f" Reason=ticket 7 {BY}"), SICK, []),
        (node("MIXED+DRAIN", f" Reason=not sailloft: but ada {BY}"), SICK, []),
        (node("IDLE"), FIT, []),
        (node("IDLE+DRAIN", f" {REASON} {BY} Comment=x"), FIT, ["State=UNDRAIN"]),
        (node("DOWN*+DRAIN", f" {REASON} {BY}"), FIT, ["State=UNDRAIN"]),
        (node("IDLE+DRAIN", f" Reason=ticket 7 {BY}"), FIT, []),
        (node("IDLE+DRAIN"), FIT, []),
        (node("DOWN", f" {REASON} {BY}"), FIT, []),
        (node("IDLE"), UNKNOWN, []),
        (node("IDLE+DRAIN", f" {REASON} {BY}"), UNKNOWN, []),
        ("Node gpu01 not found", SICK, []),
        ("", SICK, []),
    ],
)
def test_what_is_changed(shown, verdict, wanted):
    assert slurm.wanted(shown, ours(verdict)) == wanted


def test_a_drain_that_this_state_does_not_know_stays():
    """A node that starts without a disk, or is installed anew, has lost its faults and the words of persons."""
    assert slurm.wanted(node("IDLE+DRAIN", f" {REASON} {BY}"), FIT) == []


def test_a_drain_is_noted_and_its_end_too(scontrol):
    noted = []
    scontrol(node("IDLE"))
    slurm.act(SICK, noted.append)
    scontrol(node("IDLE+DRAIN", f" {REASON} {BY}"))
    slurm.act(ours(FIT), noted.append)
    assert noted == [True, False]


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
    """Put a scontrol into the path that logs its arguments and prints a node."""

    def install(text, status=0):
        path = tmp_path / "scontrol"
        log = tmp_path / "log"
        path.write_text(f'#!/bin/sh\necho "$@" >> {log}\necho "{text}"\nexit {status}\n')
        path.chmod(0o755)
        return log

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURMD_NODENAME", "gpu-1")
    return install


def test_a_sick_node_is_drained(scontrol):
    log = scontrol(node("IDLE"))
    assert "State=DRAIN" in slurm.act(SICK, bool)
    assert log.read_text().splitlines() == ["show node gpu-1 --oneliner", f"update NodeName=gpu-1 State=DRAIN {REASON}"]


def test_scontrol_reads_the_files_that_slurmd_names(scontrol, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", "/run/here/slurm.conf")
    log = scontrol(node("IDLE") + "$(env > $0.environment)")
    slurm.act(FIT, bool)
    assert "SLURM_CONF=/run/here/slurm.conf" in log.with_name("scontrol.environment").read_text().splitlines()


def test_a_healthy_node_is_left_alone(scontrol):
    log = scontrol(node("IDLE"))
    assert slurm.act(FIT, bool) == ""
    assert log.read_text().splitlines() == ["show node gpu-1 --oneliner"]


def test_a_scontrol_that_fails_is_an_error(scontrol):
    scontrol("slurm_load_node error: Unable to contact slurm controller", 1)
    with raises(NotMeasuredError, "gpu-1", "Unable to contact"):
        slurm.act(SICK, bool)
