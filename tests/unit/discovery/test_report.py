# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reports of unknown machines: what a stranger may send, and what is made of it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_reports import MAC, machine

from ansible_collections.sailloft.fleet.plugins.module_utils.discovery import pending, report
from ansible_collections.sailloft.fleet.plugins.module_utils.discovery.errors import DiscoveryError
from ansible_collections.sailloft.fleet.plugins.module_utils.discovery.report import MachineReport, ReportedNic
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import read_recording

RECORDING = Path(__file__).parents[2] / "recordings/nvidia-dgx2.json"
NAME = MAC.replace(":", "-")


def sent(**fields: object) -> bytes:
    """Return a report with these fields, as a stranger may write it."""
    return json.dumps({**json.loads(report.dump(machine())), **fields}).encode()


def test_a_report_is_read_as_it_was_written():
    found = machine(
        topology=read_recording(str(RECORDING)).to_dict(), memory_mib=1 << 21, problems=("BMC: no ipmitool",)
    )
    assert report.load(report.dump(found), MAC) == found


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x00\xff\xfe" * 100, id="binary"),
        pytest.param(b"[" * 400_000, id="deep"),
        pytest.param(b'{"a":' * 50_000 + b"1" + b"}" * 50_000, id="deep objects"),
        pytest.param(b" " * (report.LIMIT_BYTES + 1), id="huge"),
        pytest.param(sent()[:-1] + b', "cpus": ' + b"9" * 500_000 + b"}", id="long number"),
        pytest.param(sent()[:-1] + b', "cpus": NaN}', id="NaN"),
        pytest.param(b"[]", id="list"),
        pytest.param(sent(format="sailloft-inspection/2"), id="format"),
        pytest.param(sent(mac="52:54:00:00:00:99"), id="another machine"),
        pytest.param(sent(mac="../../nodes/x"), id="path"),
        pytest.param(sent(serial="{{ lookup('pipe', 'id') }}"), id="template"),
        pytest.param(sent(serial="S1\nnode_boot_mac: x"), id="line"),
        pytest.param(sent(product="\u202egpj.exe"), id="direction"),
        pytest.param(sent(vendor="\x1b[2J"), id="terminal"),
        pytest.param(sent(vendor="x" * 129), id="long"),
        pytest.param(sent(bmc_address="10.9.0.1; reboot"), id="BMC"),
        pytest.param(sent(bmc_mac="x"), id="BMC's MAC"),
        pytest.param(sent(cpus=-1), id="negative"),
        pytest.param(sent(cpus=True), id="flag"),
        pytest.param(sent(nics=[{"name": "eth0", "mac": MAC}] * 1000), id="many NICs"),
        pytest.param(sent(nics=[{"name": "eth0", "mac": MAC, "ports": ["${mac}"]}]), id="port"),
        pytest.param(sent(nics=[{"name": "eth0", "mac": MAC, "ports": ["p"] * 1000}]), id="many ports"),
        pytest.param(sent(nics={"name": "eth0"}), id="no list"),
        pytest.param(sent(device_counts={"gpu{%": 8}), id="kind"),
        pytest.param(sent(device_counts={"gpu": 10**30}), id="count"),
    ],
)
def test_what_no_stage_writes_is_refused_soon_with_one_error(content):
    began = time.monotonic()
    with pytest.raises(DiscoveryError) as caught:
        report.load(content, MAC)
    assert time.monotonic() - began < 10
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists))
def test_no_value_of_a_field_raises_another_error(value):
    for name in ("mac", "serial", "nics", "device_counts", "problems", "topology", "memory_mib"):
        try:
            found = report.load(sent(**{name: value}), MAC)
        except DiscoveryError:
            continue
        assert isinstance(found, MachineReport)


@given(st.text())
def test_all_texts_of_a_machine_can_be_reported(text):
    found = machine(serial=report.harmless(text), nics=(ReportedNic("eth0", MAC, neighbour=report.harmless(text)),))
    assert report.load(report.dump(found), MAC) == found


def test_a_topology_that_is_too_large_is_left_out_and_named():
    found = report.load(report.dump(machine(topology={"x": "y" * report.LIMIT_BYTES})), MAC)
    assert found.topology is None
    assert "topology" in found.problems[0]


def test_all_reports_of_a_server_are_read_and_those_that_are_none_are_named(tmp_path):
    (tmp_path / NAME).write_bytes(report.dump(machine(topology=read_recording(str(RECORDING)).to_dict())))
    os.utime(tmp_path / NAME, (1000, 1000))
    (tmp_path / "52-54-00-00-00-02").write_bytes(b"\xff" * 10)
    (tmp_path / "elsewhere").write_bytes(report.dump(machine("52:54:00:00:00:03")))
    (tmp_path / "52-54-00-00-00-03").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "52-54-00-00-00-04").mkdir()
    (tmp_path / ".52-54-00-00-00-05.new").write_bytes(b"half")
    found = pending.read(str(tmp_path), 1060)
    assert [(row["mac"], row["age_s"], "topology" in row) for row in found["machines"]] == [(MAC, 60, False)]
    assert [row["mac"] for row in found["refused"]] == [f"52:54:00:00:00:0{number}" for number in (2, 3, 4)]
    assert all(row["cause"] for row in found["refused"])
    found = pending.read(str(tmp_path), 1060, [MAC])
    assert found["machines"][0]["topology"] == read_recording(str(RECORDING)).to_dict()
    (tmp_path / NAME).write_bytes(report.dump(machine(topology={"format": "sailloft-topology/1"})))
    assert MAC in [row["mac"] for row in pending.read(str(tmp_path), 1060, [MAC])["refused"]]


def test_a_server_without_discovery_says_what_to_do(tmp_path):
    with pytest.raises(DiscoveryError) as caught:
        pending.read(str(tmp_path / "absent"), 0)
    assert "boot_server_discovery" in caught.value.remedy
