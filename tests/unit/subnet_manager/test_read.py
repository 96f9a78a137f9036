# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fabric is read with infiniband-diags that are scripts; tests/infiniband reads with the real ones."""

from __future__ import annotations

import os
import time

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import ManagerReadings
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import AGGREGATION_NODE
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager import read
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.diags import Diags

FOUND = f"""CA    14  1 0x000000000010000f 4x SDR - SW     6  2 0x0000000000200003 ( 'node-4 mlx5_1' - 'leaf-2-2' )
SW     6  2 0x0000000000200003 4x SDR - CA    14  1 0x000000000010000f ( 'leaf-2-2' - 'node-4 mlx5_1' )
CA    15  1 0x0000000000100011 4x SDR - SW     6  1 0x0000000000200003 ( 'node-3 mlx5_1' - 'leaf-2-2' )
CA    16  1 0x0000000000300001 4x SDR - SW     6 41 0x0000000000200003 ( '{AGGREGATION_NODE}' - 'x' )
"""
RECORDS = (
    "SMInfoRecord dump:\n\t\tLID...................14\n\t\tGUID..................0x1\n\t\tSMState...............3\n"
)
LFTS = "Unicast lids [0-9] of switch Lid 6 guid 0x0000000000200003 ('leaf-2-2'):\n0x000e 002 # Channel Adapter\n"
ROUTED = "Nov 28 05:02:06 911472 [20F6D740] 0x02 -> osm_ucast_mgr_process: ftree tables configured on all switches\n"
# The dumps are written in the second in which the log names the engine, or later.
WRITTEN_S = time.mktime(time.strptime("2026 Nov 28 05:02:07", "%Y %b %d %H:%M:%S"))


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Return a function that installs a shell script as a tool, in a directory that is first in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    def install(name, script):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return install


def read_fabric(folder, told=None, limit_s=600):
    return read.read_fabric(Diags("mlx5_0"), folder, (told if told is not None else []).append, limit_s)


@pytest.fixture(autouse=True)
def tools(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(read, "PAUSE_S", 0)
    tool("ibnetdiscover", f"echo $* > {tmp_path}/asked\ncat <<'END'\n{FOUND}END")
    tool("saquery", f"cat <<'END'\n{RECORDS}END")
    tool(
        "sminfo",
        'for last; do :; done; echo "sminfo: sm lid $last sm guid 0x1, activity count 1 priority 15 state 3 M"',
    )
    # The HCA with the LID 15 does not answer.
    tool(
        "smpquery",
        "for last; do :; done; [ $last = 15 ] && { echo timeout >&2; exit 1; }\n"
        'echo "   0: 0x8001 0x0000"; echo "   8: 0x0000 0x0000"; echo "64 pkeys capacity for this port"',
    )


@pytest.fixture
def etc(tmp_path):
    folder = tmp_path / "opensm"
    folder.mkdir()
    (folder / "opensm.conf").write_text(f"dump_files_dir {tmp_path}/dumps\nlog_file {tmp_path}/dumps/opensm.log\n")
    (folder / "node_names").write_text('0x200003 "leaf-2-2"\n')
    (folder / "notes").write_text("no file of a subnet manager")
    return folder


@pytest.fixture
def dumps(tmp_path):
    folder = tmp_path / "dumps"
    folder.mkdir()
    (folder / "opensm-subnet.lst").write_text("links\n")
    (folder / "opensm-lfts.dump").write_text(LFTS)
    (folder / "opensm.log").write_text(f"start\n{ROUTED}SUBNET UP\n")
    for file in folder.iterdir():
        os.utime(file, (WRITTEN_S, WRITTEN_S))
    return folder


def test_all_readings_of_a_fabric_are_made(etc, dumps, tmp_path):
    told = []
    assert read_fabric(etc, told) == (
        ManagerReadings(
            subnet=True,
            files={name: (etc / name).read_text() for name in ("opensm.conf", "node_names")},
            found=FOUND,
            links="links\n",
            # Without its comments.
            forwarding=LFTS.replace("# Channel Adapter", ""),
            log=ROUTED,
            pkeys={"node-4 mlx5_1": "   0: 0x8001 0x0000\n64 pkeys capacity for this port\n"},
            managers=RECORDS + "sminfo: sm lid 14 sm guid 0x1, activity count 1 priority 15 state 3 M\n",
        ),
        [Mentions("node-3 mlx5_1", "smpquery -C mlx5_0 pkeys 15", "timeout")],
    )
    assert (tmp_path / "asked").read_text() == f"-C mlx5_0 -p --node-name-map {etc}/node_names\n"
    assert told[-1] == Mentions("2 of 2 HCAs")


def test_what_is_missing_is_named(etc, tool):
    tool("saquery", "echo no SA >&2; exit 1")
    result, unread = read_fabric(etc)
    assert (result.links, result.log, result.managers) == ("", "", "")
    for fact in ("opensm-subnet.lst", "opensm-lfts.dump", "opensm.log", "no SA"):
        assert any(fact in line for line in unread), fact


@pytest.mark.parametrize(("late_s", "read_again"), [(-3600, True), (0, True), (2, False), (3 * 86400, False)])
def test_dumps_of_an_earlier_sweep_are_not_read(etc, dumps, late_s, read_again):
    """An opensm that was restarted without log_flags 0x43 leaves the dumps of its last run."""
    written = (dumps / "opensm-lfts.dump").stat().st_mtime
    routed = time.strftime("%b %d %H:%M:%S", time.localtime(written + late_s))
    (dumps / "opensm.log").write_text(ROUTED.replace("Nov 28 05:02:06", routed))
    result, unread = read_fabric(etc)
    assert [bool(result.links), bool(result.forwarding)] == [read_again] * 2
    assert (Mentions("opensm-lfts.dump", "routed again", "0x43") in unread) is not read_again


def test_dumps_are_read_when_two_readings_are_equal(etc, dumps, monkeypatch):
    texts = iter(["half", "half and"])

    def write(_seconds):
        (dumps / "opensm-subnet.lst").write_text(next(texts, "all"))

    monkeypatch.setattr(read.time, "sleep", write)
    assert read_fabric(etc)[0].links == "all"
    monkeypatch.setattr(read.time, "sleep", lambda _seconds: (dumps / "opensm-subnet.lst").open("a").write("more"))
    with raises(InfinibandError, "dumps", "still change"):
        read_fabric(etc, limit_s=0)


def test_a_standby_gives_its_files_only(etc):
    assert set(read.manager_files(etc)) == {"opensm.conf", "node_names"}


def test_a_host_without_infiniband_is_named(etc, tool):
    tool("ibnetdiscover", "echo 'ibpanic: cannot open UMAD port' >&2; exit 1")
    result, unread = read_fabric(etc)
    assert (result.found, result.pkeys) == ("", {})
    assert Mentions("ibnetdiscover", "UMAD", "active port") in unread
