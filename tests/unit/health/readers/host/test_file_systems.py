# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Mounts that are missing, read-only, full or silent are faults; a silent one stops nobody."""

from __future__ import annotations

import threading

import pytest
from health_nodes import failed, node, results, unmeasured, values, write
from hypothesis import given
from hypothesis import strategies as st
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import PASS, Expected
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.file_systems import (
    STAT,
    parse_mounts,
    parse_space,
    read,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError, Ran
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES

EXPECTED = Expected("gpu01", mounts=("/scratch", "/home"))
ROOT = "22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw"
SCRATCH = "30 22 0:60 / /scratch rw,relatime shared:2 - lustre 10.0.0.1@o2ib:/scratch rw,flock"
HOME = "31 22 0:61 / /home rw,relatime shared:3 - nfs4 nas:/home rw,vers=4.2"
OTHERS = (
    "23 22 0:20 / /sys rw - sysfs sysfs rw",
    "24 22 7:1 / /snap/core/1 ro - squashfs /dev/loop1 ro",
    "25 22 259:2 /var/lib /mnt/bound rw - ext4 /dev/nvme0n1p2 rw",
    "26 22 0:30 / /var/lib/containers/overlay/1 rw - overlay overlay ro",
    "27 22 259:9 / /data\\040disk rw - xfs /dev/nvme1n1 rw",
)
FREE = "1000 500 450 1000 900"


def reading(root, mounts=(ROOT, SCRATCH, HOME, *OTHERS), answers=None, fstab="", kept=None):
    """Return a reading of a node with these mounts; ``answers``: of stat, by path."""
    write(root, {"/proc/1/mountinfo": "\n".join(mounts), "/etc/fstab": fstab})
    all_answers = {"/scratch": FREE, "/home": FREE, "/data disk": FREE, "/": FREE, **(answers or {})}
    programs = {f"{' '.join(STAT)} {path}": answer for path, answer in all_answers.items()}
    # A command counts by its beginning: the longest path first.
    programs = dict(sorted(programs.items(), reverse=True))
    return read(node(root, EXPECTED, programs, kept))


def changed(old, new, mounts=(ROOT, SCRATCH, HOME)):
    """Return mounts with another text in them."""
    return tuple(mount.replace(old, new) for mount in mounts)


def test_healthy_mounts_pass(tmp_path):
    judged = results(reading(tmp_path), expected=EXPECTED)
    assert {result.verdict for result in judged} == {PASS}
    # One of each file system, and none that is only an image or a part of another one.
    assert {result.place.name for result in judged} == {"/", "/scratch", "/home", "/data disk"}


@pytest.mark.parametrize(
    ("mounts", "answers", "expected"),
    [
        ((ROOT, HOME), {}, {"mount_missing": ["/scratch"]}),
        (changed("nvme0n1p2 rw", "nvme0n1p2 ro"), {}, {"mount_read_only": ["/"]}),
        (changed("nvme0n1p2 rw", "nvme0n1p2 rw,emergency_ro"), {}, {"mount_read_only": ["/"]}),
        (
            changed("/scratch rw,relatime shared:2 - lustre", "/scratch ro - lustre"),
            {},
            {"mount_read_only": ["/scratch"]},
        ),
        (changed("x", "x"), {"/": "1000 40 10 1000 900"}, {"mount_space_used": ["/"]}),
        (changed("x", "x"), {"/home": "1000 500 450 1000 10"}, {"mount_inodes_used": ["/home"]}),
        (changed("x", "x"), {"/home": NotMeasuredError("stat gave no answer in 5 s")}, {"mount_hangs": ["/home"]}),
        (changed("x", "x"), {"/home": Ran(1, "", "stat: /home: Stale file handle")}, {"mount_hangs": ["/home"]}),
    ],
)
def test_each_cause_is_one_fault_at_its_mount(tmp_path, mounts, answers, expected):
    assert failed(reading(tmp_path, mounts, answers), expected=EXPECTED) == expected


def test_an_unplanned_network_file_system_that_hangs_is_only_watched(tmp_path):
    pod = "40 22 0:77 / /var/lib/kubelet/pods/u1/nfs rw - nfs4 srv:/x rw"
    silent = NotMeasuredError("stat gave no answer in 5 s")
    once = reading(tmp_path, (ROOT, SCRATCH, HOME, pod), {"/var/lib/kubelet/pods/u1/nfs": silent})
    assert failed(once, expected=EXPECTED) == {"network_mount_hangs": ["/var/lib/kubelet/pods/u1/nfs"]}
    assert RULES["network_mount_hangs"].action == "watch"


@pytest.mark.parametrize(
    "answer", [NotMeasuredError("stat gave no answer in 5 s"), Ran(1, "", "stat: /u/mnt: Permission denied")]
)
def test_a_users_own_mount_is_not_judged_unless_it_is_planned(tmp_path, answer):
    mount = "40 22 0:78 / /u/mnt rw - fuse.sshfs u@laptop: rw"
    once = reading(tmp_path, (ROOT, SCRATCH, HOME, mount), {"/u/mnt": answer})
    assert "/u/mnt" not in {each.place.name for each in once.measurements}


def test_a_planned_mount_that_root_may_not_read_answers(tmp_path):
    denied = Ran(1, "", "stat: cannot read file system information for '/home': Permission denied")
    once = reading(tmp_path, (ROOT, SCRATCH, HOME), {"/home": denied})
    assert (failed(once, expected=EXPECTED), unmeasured(once, expected=EXPECTED)) == ({}, {})


def test_a_mount_that_a_person_made_read_only_is_a_fault_only_if_it_is_planned_and_not_in_fstab(tmp_path):
    unplanned = changed("/data\\040disk rw", "/data\\040disk ro", (ROOT, SCRATCH, HOME, *OTHERS))
    assert failed(reading(tmp_path, unplanned), expected=EXPECTED) == {}
    planned = changed("/scratch rw", "/scratch ro")
    wanted = "10.0.0.1@o2ib:/scratch /scratch lustre flock,ro 0 0"
    assert failed(reading(tmp_path, planned, fstab=wanted), expected=EXPECTED) == {}


def test_a_mount_that_goes_away_ends_its_faults_unless_it_is_planned(tmp_path):
    mounts = (ROOT, SCRATCH, HOME, "40 22 0:90 / /mnt rw - nfs nas:/ rw")
    hanging = {path: NotMeasuredError("stat gave no answer in 5 s") for path in ("/mnt", "/home")}
    first = reading(tmp_path, mounts, hanging)
    second = reading(tmp_path, (ROOT, SCRATCH), kept=first.kept)
    passed = {(each.check, each.place.name) for each in results(second, expected=EXPECTED) if each.verdict == PASS}
    assert ("mount_hangs", "/mnt") in passed
    assert ("mount_hangs", "/home") not in passed
    third = reading(tmp_path, (ROOT, SCRATCH), kept=second.kept)
    assert "/mnt" not in {each.place.name for each in third.measurements}
    unplanned = read(node(tmp_path, Expected("gpu01"), {" ".join(STAT): FREE}, third.kept))
    assert ("mount_hangs", "/home") in values(unplanned)


def test_file_systems_without_a_size_or_a_number_of_inodes(tmp_path):
    once = reading(tmp_path, (ROOT, SCRATCH, HOME), {"/": "1000 500 450 0 0", "/home": "0 0 0 0 0"})
    assert failed(once, expected=EXPECTED) == {}
    assert unmeasured(once, expected=EXPECTED) == {"mount_space_used": ["/home"]}
    assert ("mount_inodes_used", "/") not in values(once)


@pytest.mark.parametrize("answer", ["", "voll", "1 2 3", Ran(1, "", "stat: Keine Berechtigung"), "\x00"])
def test_other_answers_are_not_measured(tmp_path, answer):
    once = reading(tmp_path, (ROOT, SCRATCH, HOME), {"/home": answer})
    assert (failed(once, expected=EXPECTED), unmeasured(once, expected=EXPECTED)) == ({}, {"mount_hangs": ["/home"]})


def test_silent_mounts_are_waited_for_at_the_same_time(tmp_path):
    silent = [f"/mnt{number}" for number in range(20)]
    mounts = [f"4{number} 22 0:9{number} / {path} rw - nfs nas:/ rw" for number, path in enumerate(silent)]
    write(tmp_path, {"/proc/1/mountinfo": "\n".join((ROOT, SCRATCH, HOME, *mounts))})
    all_wait = threading.Barrier(len(silent))

    def run(argv, timeout_s):
        if argv[-1] in silent:
            # Breaks, and with it the test, if they are asked one after the other.
            all_wait.wait(60)
            raise NotMeasuredError("stat gave no answer in 5 s")
        return Ran(0, FREE, "")

    assert failed(read(Node(EXPECTED, str(tmp_path), {}, run)), expected=EXPECTED) == {
        "network_mount_hangs": sorted(silent)
    }


@pytest.mark.parametrize("text", ["", "Unsinn\n" * 5, "\x00\xff", "1 2 - 3"])
def test_mounts_without_a_root_are_an_error(tmp_path, text):
    write(tmp_path, {"/proc/1/mountinfo": text})
    with raises(NotMeasuredError, "mountinfo"):
        read(node(tmp_path, EXPECTED))


@given(st.text() | st.from_regex(r"([0-9]+ ){3}/ / rw - (ext4|nfs) [a-z/]* rw,?[a-z]*"))
def test_no_text_is_an_error(text):
    parse_mounts(text)
    parse_space(text)


def test_a_fault_of_a_network_mount_ends_when_another_check_judges_it(tmp_path):
    """The plan decides whether a mount that hangs takes the node out, so that it decides by which check too."""
    hanging = NotMeasuredError("stat gave no answer in 5 s")
    write(tmp_path, {"/proc/1/mountinfo": "\n".join((ROOT, HOME))})
    programs = {f"{' '.join(STAT)} /home": hanging, " ".join(STAT): FREE}
    plans = {True: Expected("gpu01", mounts=("/home",)), False: Expected("gpu01")}
    kept, seen = {}, []
    for is_planned in (True, False, False, True):
        once = read(node(tmp_path, plans[is_planned], programs, kept))
        kept = once.kept
        at_home = [each for each in once.measurements if each.place.name == "/home" and each.check.endswith("hangs")]
        seen.append({each.check: each.value for each in at_home})
    assert seen == [
        {"mount_hangs": True, "network_mount_hangs": False},
        {"mount_hangs": False, "network_mount_hangs": True},
        {"network_mount_hangs": True},
        {"mount_hangs": True, "network_mount_hangs": False},
    ]
