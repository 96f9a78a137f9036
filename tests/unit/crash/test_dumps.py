# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The list of crash dumps on a boot server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.crash import dumps
from ansible_collections.sailloft.fleet.plugins.module_utils.crash.errors import CrashError

DAY_S = 86400
FIRST, SECOND = "20261129T125500Z", "20261130T010203Z"


def dump(folder: Path, node: str, crashed: str, received_s: float, **files: bytes) -> None:
    place = folder / node / crashed
    place.mkdir(parents=True)
    for name, content in files.items():
        (place / name.replace("_", ".")).write_bytes(content)
    os.utime(place, (received_s, received_s))


def test_dumps_are_listed_by_the_servers_clock_with_what_they_lack(tmp_path):
    dump(tmp_path, "n1", FIRST, 2 * DAY_S, panic=b"<0>[ 7.1] Kernel panic: a\n", dmesg=b"x", vmcore=b"x" * 4096)
    # Its clock is wrong, and its memory not whole.
    dump(tmp_path, "n2", SECOND, DAY_S, panic=b"", dmesg=b"x", vmcore_part=b"x")
    (tmp_path / "n2" / "lost+found").mkdir()
    found = dumps.read(str(tmp_path))
    assert [(row["node"], row["missing"], row["lines"]) for row in found] == [
        ("n1", [], ["Kernel panic: a"]),
        ("n2", ["vmcore"], []),
    ]
    first, second = dumps.report(found)
    assert [text for text in ("n1", "2026-11-29 12:55:00", "Kernel panic: a") if text not in first] == []
    assert "vmcore" in second


def test_a_line_has_nothing_that_a_terminal_or_a_template_interprets(tmp_path):
    dump(tmp_path, "n1", FIRST, DAY_S, panic=b"a \x1b[2J{{ lookup('pipe', 'id') }}\xff\n" + b"x" * 10000)
    [row] = dumps.read(str(tmp_path))
    assert not set("".join(row["lines"])) & set("\x1b{}")
    assert sum(map(len, row["lines"])) <= dumps.LINES_LIMIT_BYTES


def test_many_dumps_are_counted(tmp_path):
    for number in range(30):
        dump(tmp_path, f"n{number}", FIRST, number, panic=b"a\n")
    lines = dumps.report(dumps.read(str(tmp_path)))
    assert (len(lines), "n29" in lines[0], "10 older" in lines[-1]) == (21, True, True)


def test_a_server_without_dumps_says_what_to_do(tmp_path):
    with pytest.raises(CrashError) as error:
        dumps.read(str(tmp_path / "missing"))
    assert "boot_server_crash_dumps_gib" in error.value.remedy
    assert dumps.read(str(tmp_path)) == []
