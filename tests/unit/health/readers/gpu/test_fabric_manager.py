# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Fabric Manager's new lines are reported once; a non-fatal error is none that is fatal."""

from __future__ import annotations

import os
import time

import pytest
from gpu_readings import expected, node, write
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import HYPERVISOR, ExpectedDevice
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.gpu import fabric_manager
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.gpu.fabric_manager import LOG, parse, read
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES

HGX = expected(needs_fabric_manager=True)
NON_FATAL = "detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 port 61"
FATAL = NON_FATAL.replace("non-fatal error 12028", "fatal error 20034")
NOTHING = "request to query NVSwitch device information failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]"
BOOT_S = time.mktime((2025, 2, 27, 12, 0, 0, 0, 0, -1))


def line(text, level="ERROR", at="Feb 27 2025 15:10:02"):
    return f"[{at}] [{level}] [tid 12727] {text}\n"


@pytest.mark.parametrize(
    ("text", "wanted", "action"),
    [
        (line(NON_FATAL), ("fabric_manager_non_fatal", "nvswitch 0000:86:00.0"), "note"),
        (line(FATAL), ("fabric_manager_fatal", "nvswitch 0000:86:00.0"), "reboot"),
        (
            line("failed to find the GPU handle 54 in the multicast team request setup 61."),
            ("fabric_manager_gpu_left", "node"),
            "reboot",
        ),
        (
            "detected number of NVSwitches don't match with any supported system topology, aborting fabric manager",
            ("fabric_manager_topology", "node"),
            "person",
        ),
        (NOTHING, ("fabric_manager_no_switches", "node"), "reboot"),
        (line("something new"), ("fabric_manager_error", "node"), "note"),
    ],
)
def test_a_line_is_named_with_what_it_asks_for(text, wanted, action):
    event = parse(text, HGX)
    assert (event.check, str(event.place)) == wanted
    assert RULES[event.check].action == action


@pytest.mark.parametrize(
    "text", [line("multicast group 1 is allocated.", "INFO"), "Message payload details:Flags:0\n", ""]
)
def test_other_lines_report_nothing(text):
    assert parse(text, HGX) is None


def test_a_hypervisor_whose_guests_have_the_gpus_has_no_log(tmp_path):
    devices = (ExpectedDevice("0000:86:00.0", "nvswitch", "NVSwitch 0"),)
    assert read(node(tmp_path, {}, expected(devices=devices, machine=HYPERVISOR))).events == ()


def test_without_switches_nothing_to_do_is_no_error():
    assert parse(NOTHING, expected()) is None
    assert parse(NOTHING, expected(devices=(ExpectedDevice("0000:05:00.0", "nvswitch", "NVSwitch 0"),)))


def setup_node(tmp_path, text, kept=None):
    write(tmp_path, "/proc/sys/kernel/random/boot_id", "boot-1\n")
    write(tmp_path, "/proc/stat", f"cpu 1 2 3\nbtime {int(BOOT_S)}\n")
    if text is not None:
        with open(tmp_path / LOG.lstrip("/"), "a", encoding="utf-8") as stream:
            stream.write(text)
    return read(node(tmp_path, {}, HGX, kept=kept or {}))


def test_lines_are_read_once_from_the_boot_on_and_over_a_rotation(tmp_path):
    (tmp_path / "var/log").mkdir(parents=True)
    old = line(FATAL, at="Feb 26 2025 10:00:00") + NOTHING + "\n"
    first = setup_node(tmp_path, old + line(NON_FATAL))
    assert [event.check for event in first.events] == ["fabric_manager_non_fatal"]
    second = setup_node(tmp_path, line(FATAL) + "[Feb 27 2025 15:1", first.kept)
    assert [event.check for event in second.events] == ["fabric_manager_fatal"]
    # The rest of a line that was not whole, then a new file.
    third = setup_node(tmp_path, "1:02] [ERROR] [tid 1] something\n", second.kept)
    assert [event.check for event in third.events] == ["fabric_manager_error"]
    setup_node(tmp_path, line(FATAL), {"inode": "0", "offset": "0"})
    path = tmp_path / LOG.lstrip("/")
    os.rename(path, f"{path}.1")
    fourth = setup_node(tmp_path, line(NON_FATAL), third.kept)
    assert [event.check for event in fourth.events] == ["fabric_manager_fatal", "fabric_manager_non_fatal"]
    assert len({event.identity for event in (*first.events, *second.events, *third.events, *fourth.events)}) == 5
    assert setup_node(tmp_path, None, fourth.kept).events == ()


def test_an_emptied_file_is_read_from_its_beginning(tmp_path):
    (tmp_path / "var/log").mkdir(parents=True)
    first = setup_node(tmp_path, line("one", "INFO") * 50)
    (tmp_path / LOG.lstrip("/")).write_text("")
    assert [event.check for event in setup_node(tmp_path, line(FATAL), first.kept).events] == ["fabric_manager_fatal"]


@pytest.mark.parametrize("noise", ["\0" * 4096, "\0\ufffd\n", "\udcff\udcfe\n"])
def test_bytes_that_are_no_text_are_not_measured_and_hide_no_line_after_them(tmp_path, noise):
    (tmp_path / "var/log").mkdir(parents=True)
    (tmp_path / LOG.lstrip("/")).write_bytes(noise.encode(errors="surrogateescape"))
    reading = setup_node(tmp_path, line(FATAL))
    assert [event.check for event in reading.events] == ["fabric_manager_fatal"]
    assert [each.value for each in reading.measurements] == [None]
    later = setup_node(tmp_path, line(NON_FATAL), reading.kept)
    assert ([event.check for event in later.events], later.measurements) == (["fabric_manager_non_fatal"], ())


def test_a_line_without_end_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(fabric_manager, "LIMIT_BYTES", 400)
    (tmp_path / "var/log").mkdir(parents=True)
    reading = setup_node(tmp_path, "x" * 500 + "\n" + line(FATAL))
    assert reading.events == ()
    again = setup_node(tmp_path, None, reading.kept)
    assert [event.check for event in again.events] == ["fabric_manager_fatal"]


@pytest.mark.parametrize(
    "kept", [{"inode": "\u00b2", "offset": "1"}, {"inode": "1", "offset": "9" * 30}, {"inode": "1"}]
)
def test_a_place_that_makes_no_sense_is_the_beginning(tmp_path, kept):
    (tmp_path / "var/log").mkdir(parents=True)
    assert [event.check for event in setup_node(tmp_path, line(FATAL), kept).events] == ["fabric_manager_fatal"]


def test_an_absent_log_is_an_error_only_where_one_is_needed(tmp_path):
    write(tmp_path, "/proc/sys/kernel/random/boot_id", "boot-1\n")
    with pytest.raises(FileNotFoundError):
        read(node(tmp_path, {}, HGX))
    assert read(node(tmp_path, {})).events == ()


@given(st.text(max_size=200))
def test_any_line_is_read_without_a_crash(text):
    for each in (text, line(text), f"[{text}] [ERROR] x"):
        event = parse(each, HGX)
        assert event is None or event.check in RULES
