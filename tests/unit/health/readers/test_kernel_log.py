# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each record of the kernel's log is reported once, and lost ones are said to be lost."""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pytest
from gpu_readings import expected, node, write
from hypothesis import given
from hypothesis import strategies as st
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers import kernel_log
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.kernel_log import events, read, records
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError

XID = "NVRM: Xid (PCI:0000:9b:00): 119, pid=1, name=nvidia-smi, Timeout"
LOG, BOOT = "/dev/kmsg", "/proc/sys/kernel/random/boot_id"


def record(sequence, text="usb 1-1: new device", more=""):
    """Return one record of /dev/kmsg, a second after the one before."""
    return f"4,{sequence},{sequence * 1_000_000},-;{text}\n{more}"


def kernel(tmp_path, *lines, boot_id="boot-1"):
    """Let the node's kernel have these records."""
    write(tmp_path, LOG, "".join(lines))
    write(tmp_path, BOOT, f"{boot_id}\n")


def rounds(tmp_path, *logs, boot_id="boot-1"):
    """Read one log after the other, and return the readings."""
    readings, kept = [], {}
    for lines in logs:
        kernel(tmp_path, *lines, boot_id=boot_id)
        readings.append(read(node(tmp_path, {}, kept=kept)))
        kept = readings[-1].kept
    return readings


def checks(reading):
    return [event.check for event in reading.events]


def is_complete(reading):
    return [measurement.value for measurement in reading.measurements] == ["complete"]


def test_a_record_is_reported_once(tmp_path):
    first, second, third = rounds(
        tmp_path,
        [record(0), record(1, XID)],
        [record(0), record(1, XID), record(2)],
        [record(1, XID), record(2), record(3, XID)],
    )
    assert (checks(first), checks(second), checks(third)) == (["xid_119"], [], ["xid_119"])
    assert first.events[0].identity != third.events[0].identity
    assert (first.events[0].boot_id, first.events[0].sequence, first.events[0].seconds) == ("boot-1", 1, 1.0)
    assert all(is_complete(each) for each in (first, second, third))


def test_after_a_reboot_the_numbers_begin_anew(tmp_path):
    first = rounds(tmp_path, [record(number) for number in range(50)])[0]
    kernel(tmp_path, record(0), record(1, XID), boot_id="boot-2")
    second = read(node(tmp_path, {}, kept=first.kept))
    assert checks(second) == ["xid_119"]
    assert is_complete(second)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([0, 1, 2], [10, 11]),  # all between the rounds were overwritten
        ([0, 1, 2], [3, 4, 9]),  # some, while the log was read
    ],
)
def test_overwritten_records_are_lost_and_not_passed(before, after, tmp_path):
    first, second = rounds(tmp_path, [record(each) for each in before], [record(each) for each in after])
    assert is_complete(first)
    assert checks(second) == ["kernel_log_lines_lost"]
    assert [measurement.value for measurement in second.measurements] == [None]
    assert "overwritten" in second.measurements[0].reason
    assert is_complete(rounds(tmp_path, [record(each) for each in before], [record(each) for each in before])[1])


def test_records_lost_before_the_first_round_of_a_boot_are_only_not_measured(tmp_path):
    reading = rounds(tmp_path, [record(4000), record(4001, XID)])[0]
    assert checks(reading) == ["xid_119"]
    assert not is_complete(reading)
    kernel(tmp_path, record(5), boot_id="boot-2")
    later = read(node(tmp_path, {}, kept=reading.kept))
    assert checks(later) == []
    assert not is_complete(later)
    kernel(tmp_path, record(9), boot_id="boot-2")
    assert checks(read(node(tmp_path, {}, kept=later.kept))) == ["kernel_log_lines_lost"]


# The kernel's log is never empty.
@given(st.lists(st.integers(0, 5), max_size=6).map(lambda news: [1, *news]), st.integers(3, 12))
def test_every_xid_is_reported_once_or_among_the_lost(tmp_path_factory, news, ring):
    root = tmp_path_factory.mktemp("node")
    kept, seen, lost, written = {"boot_id": "boot-1", "next": "0"}, [], 0, []
    for count in news:
        written += [record(len(written) + number, XID) for number in range(count)]
        kernel(root, *written[-ring:])
        reading = read(node(root, {}, kept=kept))
        kept = reading.kept
        for event in reading.events:
            if event.check == "xid_119":
                extra = event.text.rpartition("(and ")[2].split(" ")[0] if "(and " in event.text else "0"
                seen += range(event.sequence, event.sequence + 1 + int(extra))
            else:
                lost += int(event.text.split()[0])
    assert len(seen) == len(set(seen))
    assert len(seen) + lost == len(written)


class Device:
    """/dev/kmsg that gives one record a call, and errors in between, as the kernel does."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def read(self, fd, size):
        answer = self.answers.pop(0) if self.answers else OSError(errno.EAGAIN, "again")
        if isinstance(answer, int):
            answer = OSError(answer, os.strerror(answer))
        if isinstance(answer, OSError):
            raise answer
        return answer.encode()


def test_reading_goes_on_behind_an_overwritten_record_and_never_waits(tmp_path, monkeypatch):
    kernel(tmp_path)
    device = Device(record(0), errno.EPIPE, record(5, XID), errno.EINVAL, record(7))
    opened = []
    real = os.open
    monkeypatch.setattr(kernel_log.os, "open", lambda path, flags: opened.append(flags) or real(path, flags))
    monkeypatch.setattr(kernel_log.os, "read", device.read)
    reading = read(node(tmp_path, {}, kept={"boot_id": "boot-1", "next": "0"}))
    assert checks(reading) == ["xid_119", "kernel_log_lines_lost"]
    assert reading.events[1].text.split()[0] == "5"
    assert reading.kept == {"boot_id": "boot-1", "next": "8"}
    assert opened[0] & os.O_NONBLOCK


def test_a_log_that_may_not_be_read_is_an_error(tmp_path, monkeypatch):
    kernel(tmp_path)
    monkeypatch.setattr(kernel_log.os, "read", Device(errno.EPERM).read)
    with pytest.raises(PermissionError):
        read(node(tmp_path, {}))


@pytest.mark.parametrize("text", ["", "\n", "Fehler\n" * 60, "\0" * 100, f"[ 1.5] {XID}\n"])
def test_a_file_that_is_no_log_of_the_kernel_measures_nothing(text, tmp_path):
    kernel(tmp_path, text)
    with raises(NotMeasuredError, LOG):
        read(node(tmp_path, {}))


@pytest.mark.parametrize(
    "kept",
    [
        {"next": "7"},
        {"boot_id": "boot-1", "next": "x"},
        {"boot_id": "boot-1", "next": "9" * 40},
        {"boot_id": "boot-1", "next": "2"},  # behind the end of the log
    ],
)
def test_a_place_that_makes_no_sense_is_the_beginning(kept, tmp_path):
    kernel(tmp_path, record(0, XID))
    assert checks(read(node(tmp_path, {}, kept=kept))) == ["xid_119"]


def test_lines_of_one_message_belong_together():
    text = record(0, r"NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: has\x0aNVRM: fallen off the bus and is")
    assert [event.check for event in events(records(text), expected(), "b")] == ["xid_79"]


def test_a_records_dictionary_names_its_device():
    more = " SUBSYSTEM=pci\n DEVICE=+pci:0000:5c:00.0\n"
    text = record(0, "Port module event[error]: module 0, Cable error, High Temperature", more)
    assert [str(event.place) for event in events(records(text), expected(), "b")] == ["nic 0000:5c:00.0"]


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[1843.308145] ",
        "[ 130.456250] [ T1946] ",
        "[Sun Feb 23 16:24:18 2025] ",
        "[Sun Dec  1 14:54:40 2024] node-a01 kernel: ",
        "Sep 19 16:18:02 node-a01 kernel: [68183.637897] ",
        "2025-01-21T04:41:44+00:00 node-a01 kernel: ",
        "kern  :warn  : 2025-01-21T04:41:44,283302+00:00 ",
        "kern  :warn  : [Sun Feb 23 16:24:18 2025] ",
        "kernel: ",
        "<4>",
    ],
)
def test_lines_of_dmesg_and_journals_are_read_too(prefix):
    assert [event.check for event in events(records(f"{prefix}{XID}\n"), expected(), "b")] == ["xid_119"]


def test_lines_of_one_event_are_one_with_their_number():
    found = [*events(records("".join(record(number, XID) for number in range(3))), expected(), "b")]
    assert [(event.check, event.sequence) for event in found] == [("xid_119", 0)]
    assert "2 more" in found[0].text


def contained(*seconds):
    """Return the Xids of a contained error, at these times."""
    codes = (48, 63, 94)
    return "".join(
        f"4,{number},{int(second * 1e6)},-;NVRM: Xid (PCI:0000:52:00): {code}, words\n"
        for number, (code, second) in enumerate(zip(codes, seconds))
    )


def test_the_xids_of_a_contained_error_are_one_fault():
    assert [event.check for event in events(records(contained(10, 10.02, 10.03)), expected(), "b")] == [
        "xid_48_contained"
    ]
    apart = [event.check for event in events(records(contained(10, 10, 100)), expected(), "b")]
    assert apart == ["xid_48", "xid_63", "xid_94"]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5))
def test_bytes_between_the_lines_hide_no_xid(noise):
    lines = [each.replace(b"\n", b"").decode(errors="replace") for each in noise]
    text = "".join(f"{line}\n{record(number, XID)}" for number, line in enumerate(lines))
    assert [event.check for event in events(records(text), expected(), "b")] == ["xid_119"]


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_a_crash(data):
    text = data.decode(errors="replace")
    for each in (text, record(0) + text, f"4,1,1,-;NVRM: Xid (PCI:{text}"):
        for event in events(records(each), replace(expected()), "b"):
            assert event.check


def test_the_boots_number_can_be_read_from_this_machines_kernel():
    assert len(Node(expected()).boot_id) == 36
