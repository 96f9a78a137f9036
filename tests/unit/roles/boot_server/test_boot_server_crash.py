# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Crash dumps that nodes send: through nginx to their keeper, which bounds them."""

from __future__ import annotations

import base64
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import health_keeper
import pytest
from boot_http import NGINX, keeping, serving
from first_stage import shell

from ansible_collections.sailloft.fleet.plugins.module_utils.crash import dumps

keeper = health_keeper.load()
NODE, STRANGER = "127.0.0.1", "127.0.0.9"
CRASHED, LATER, LAST = "20261129T120000Z", "20261129T130000Z", "20261129T140000Z"
MIB = 1 << 20
# A part as a node sends it.
PART = base64.b64encode(b"x\0y")


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator:
    """Run a boot server that takes dumps of the node bm01, 64 MiB of them or what a test says."""
    most_bytes = getattr(request, "param", 64 * MIB)
    if not NGINX:
        pytest.skip("no nginx on this machine (bindep.txt)")
    (tmp_path / "dumps").mkdir()
    nodes = [{"name": "bm01", "mac": "52:54:00:aa:bb:01", "address": NODE}]
    with (
        serving(tmp_path, nodes=nodes, crash_dumps_gib=1) as ask,
        keeping(tmp_path, tmp_path / "copies", crashes=(tmp_path / "dumps", most_bytes)),
    ):
        yield ask


@pytest.fixture
def kept(tmp_path: Path):
    """The keeper itself, with 100 MiB for dumps."""
    return keeper.Dumps(tmp_path, 100 * MIB)


@pytest.mark.skipif(not shutil.which("busybox"), reason="no busybox on this machine (bindep.txt)")
def test_the_first_stage_sends_a_dump_whole_and_encrypted(server, tmp_path: Path):
    """With a program in the place of age that only turns the bytes round: what arrives is what it wrote."""
    memory = os.urandom(6 * MIB + 7) + bytes(1000)
    (tmp_path / "memory").write_bytes(memory)
    (tmp_path / "lines").write_text("[    1.5] Kernel panic - not syncing: test\n")
    script = f"""
        age() {{ busybox tr '\\000-\\377' '\\001-\\377\\000'; }}
        set -o pipefail
        crashed={CRASHED} servers={server.url} crash_key=age1x
        cp {tmp_path}/lines $folder/panic
        find_dump_server && cat {tmp_path}/memory | send vmcore && post vmcore/end /dev/null
        echo "status $?"
    """
    assert shell(tmp_path, script).endswith("status 0\n")
    folder = tmp_path / "dumps/bm01" / CRASHED
    assert sorted(path.name for path in folder.iterdir()) == ["panic", "vmcore"]
    assert bytes((byte + 1) % 256 for byte in memory) == (folder / "vmcore").read_bytes()
    [dump] = dumps.read(str(tmp_path / "dumps"))
    assert (dump["node"], dump["lines"], dump["missing"]) == (
        "bm01",
        ["Kernel panic - not syncing: test"],
        ["dmesg"],
    )


@pytest.mark.skipif(not shutil.which("busybox"), reason="no busybox on this machine (bindep.txt)")
def test_what_makedumpfile_did_not_end_is_not_whole(server, tmp_path: Path):
    script = f"""
        age() {{ cat; }}
        set -o pipefail
        crashed={CRASHED} server={server.url}
        {{ echo begun; false; }} | send vmcore && post vmcore/end /dev/null || echo failed
    """
    assert "failed" in shell(tmp_path, script)
    assert "vmcore" in dumps.read(str(tmp_path / "dumps"))[0]["missing"]


def crashed(tmp_path: Path, servers: str) -> tuple[str, dict]:
    """Run the first stage of a node whose kernel crashed; return its output and its dump, {} if there is none.

    There is no crashed kernel here, so makedumpfile is a function that writes, and a reboot one that ends the shell.
    """
    (tmp_path / "old").write_bytes(bytes(3 * MIB))
    script = f"""
        vmcore={tmp_path}/old servers='{servers}' crash_key=age1x
        age() {{ cat; }}
        makedumpfile() {{
            if [ "$1" = --dump-dmesg ]; then echo "[ 1.5] Kernel panic - not syncing: x" >"$3"; else cat "$7"; fi
        }}
        bring_up_network() {{ echo network; }}
        reboot() {{ trap - EXIT; echo REBOOTED; exit 0; }}
        sleep() {{ [ "$1" != "$crash_limit_s" ] || exit 0; }}
        dump_crash
        echo "the node stays down"
    """
    output = shell(tmp_path, script)
    return output, next(iter(dumps.read(str(tmp_path / "dumps"))), {})


@pytest.mark.skipif(not shutil.which("busybox"), reason="no busybox on this machine (bindep.txt)")
def test_a_crashed_node_sends_all_files_and_reboots(server, tmp_path: Path):
    output, dump = crashed(tmp_path, server.url)
    assert output.endswith("REBOOTED\n")
    assert (dump["node"], dump["missing"], dump["lines"]) == ("bm01", [], ["Kernel panic - not syncing: x"])
    assert Path(dump["path"], "vmcore").read_bytes() == bytes(3 * MIB)


@pytest.mark.skipif(not shutil.which("busybox"), reason="no busybox on this machine (bindep.txt)")
@pytest.mark.parametrize("server", [10 * MIB], indirect=True)
def test_a_crashed_node_reboots_if_the_server_has_no_room_for_its_memory(server, tmp_path: Path):
    output, dump = crashed(tmp_path, server.url)
    assert output.endswith("REBOOTED\n")
    assert "413" in output
    assert dump["missing"] == ["vmcore"]


@pytest.mark.skipif(not shutil.which("busybox"), reason="no busybox on this machine (bindep.txt)")
def test_a_crashed_node_reboots_if_no_server_answers_or_all_refuse(server, tmp_path: Path):
    output, dump = crashed(tmp_path, "http://127.0.0.1:9")
    assert (output.endswith("REBOOTED\n"), dump) == (True, {})
    output, dump = crashed(tmp_path, f"{server.url}/none")
    assert (output.endswith("REBOOTED\n"), "404" in output, dump) == (True, True, {})


def test_only_a_node_sends_its_own_dump_and_nobody_reads_one(server, tmp_path: Path):
    def post(path: str, source: str = NODE, method: str = "POST", **headers: str) -> int:
        return server(path, method, PART if method == "POST" else None, source=source, **headers).status

    assert post(f"/crash/{CRASHED}/vmcore/0") == 204
    assert post(f"/crash/{CRASHED}/vmcore/0") == 204  # its answer was lost
    assert post(f"/crash/{CRASHED}/vmcore/7") == 409
    assert post(f"/crash/{CRASHED}/vmcore/3") == 204
    assert post(f"/crash/{CRASHED}/vmcore/end") == 204
    assert post(f"/crash/{CRASHED}/vmcore/6") == 409
    for source, headers in ((STRANGER, {}), (STRANGER, {"X-Node": "bm01"})):
        assert post(f"/crash/{LATER}/vmcore/0", source, **headers) == 403
    for path in ("/crash/", "/crash/../nodes/x", f"/crash/{CRASHED}/shadow/0", f"/crash/{CRASHED}/vmcore/-1"):
        assert post(path) in (403, 404), path
    for method in ("GET", "PUT", "DELETE"):
        assert post(f"/crash/{CRASHED}/vmcore", method=method) in (403, 405)
    assert server(f"/crash/{LATER}/panic/0", "POST", b"\xff").status == 400
    assert server(f"/crash/{LATER}/panic/0", "POST", b"A" * (5 * MIB)).status == 413
    assert [path.read_bytes() for path in (tmp_path / "dumps").rglob("vmcore*")] == [b"x\0yx\0y"]


def sent(kept, node: str, crashed: str, name: str, *parts: int) -> list[int]:
    """Send parts of so many bytes until one is refused; return the statuses."""
    statuses, offset = [], 0
    for size in parts:
        statuses.append(kept.take(node, crashed, name, str(offset), bytes(size)))
        offset += size
        if statuses[-1] != 204:
            return statuses
    return [*statuses, kept.take(node, crashed, name, "end", b"")]


def days_old(kept, node: str, crashed: str, days: float) -> None:
    then_s = time.time() - days * 86400
    os.utime(kept.folder / node / crashed, (then_s, then_s))


def names(kept) -> set[str]:
    return {str(path.relative_to(kept.folder)) for path in kept.dumps()}


def test_a_node_keeps_its_last_two_dumps(kept):
    for days, crashed in ((3, CRASHED), (2, LATER), (1, LAST)):
        assert sent(kept, "n1", crashed, "vmcore", MIB) == [204, 204]
        days_old(kept, "n1", crashed, days)
    assert names(kept) == {f"n1/{LATER}", f"n1/{LAST}"}
    assert kept.used_bytes == 2 * MIB


def test_dumps_never_have_more_than_the_limit_and_the_oldest_make_room(kept):
    for number in range(1, 6):
        assert sent(kept, f"n{number}", CRASHED, "vmcore", 18 * MIB) == [204, 204]
    # All are of the last hour: none makes room, but messages still have some.
    assert sent(kept, "n6", CRASHED, "vmcore", 2 * MIB, 18 * MIB) == [507]
    assert sent(kept, "n6", CRASHED, "dmesg", MIB) == [204, 204]
    days_old(kept, "n3", CRASHED, 2)
    days_old(kept, "n4", CRASHED, 1)
    assert sent(kept, "n6", CRASHED, "vmcore", 8 * MIB) == [204, 204]
    assert {f"n3/{CRASHED}", f"n4/{CRASHED}"} - names(kept) == {f"n3/{CRASHED}"}
    assert sum(kept.dumps().values()) == kept.used_bytes <= 100 * MIB


def test_one_dump_has_at_most_a_quarter_and_leaves_nothing_if_it_is_larger(kept):
    assert sent(kept, "n1", CRASHED, "panic", 10) == [204, 204]
    assert sent(kept, "n1", CRASHED, "vmcore", 20 * MIB, 10 * MIB) == [204, 413]
    assert (names(kept), kept.used_bytes) == ({f"n1/{CRASHED}"}, 10)


def test_the_rest_of_the_disk_stays_free(kept, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keeper, "FREE_SHARE", 1)
    assert sent(kept, "n1", CRASHED, "panic", 10) == [507]


def test_dumps_that_a_person_removed_give_room(kept):
    assert sent(kept, "n1", CRASHED, "vmcore", 20 * MIB) == [204, 204]
    shutil.rmtree(kept.folder / "n1")
    assert sent(kept, "n2", CRASHED, "vmcore", MIB) == [204, 204]
    assert kept.used_bytes == MIB
