# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The configuration of ConMan, the real conmand with it, and the last lines of a log."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time

import pytest
from sockets import free_port

from ansible_collections.sailloft.fleet.plugins.module_utils.consoles import server
from ansible_collections.sailloft.fleet.plugins.module_utils.consoles.conman import Console, ConsoleError, config
from ansible_collections.sailloft.fleet.plugins.module_utils.consoles.tail import tail
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.modules import node_console_info, node_consoles

SECRET = "s3cr3t-of-bm01"
BOOT = (
    b"\x1b[2J\x1b[01;01HiPXE 1.21\r\nfetching image ... \x1b[31mfailed\x1b[0m\r\n\r\nkey=" + SECRET.encode() + b"\r\n"
)


@pytest.mark.skipif(not shutil.which("conmand"), reason="needs conmand")
def test_conmand_keeps_a_console_and_its_last_lines_are_read(tmp_path):
    console = socket.socket(socket.AF_UNIX)
    console.bind(str(tmp_path / "bm01.sock"))
    console.listen(1)
    accepted = []

    def serve():
        accepted.append(console.accept()[0])
        accepted[0].sendall(BOOT)

    threading.Thread(target=serve, daemon=True).start()
    port = free_port()
    # A password with the characters that end a string or an option of ConMan.
    consoles = [Console("bm01", f"unix:{tmp_path}/bm01.sock"), Console("bm02", "ipmi:127.0.0.9", "root", 'a,b"c%N')]
    (tmp_path / "conman.conf").write_text(config(consoles, f"{tmp_path}/log", port))
    (tmp_path / "log").mkdir()
    with (tmp_path / "out").open("w") as out:
        daemon = subprocess.Popen(
            ["/usr/sbin/conmand", "-F", "-c", str(tmp_path / "conman.conf")], stdout=out, stderr=out
        )
    try:
        server.check(System(), {"bm01", "bm02"}, port)
        with pytest.raises(ConsoleError, match="bm03"):
            server.check(System(), {"bm03"}, port)
        log = tmp_path / "log/bm01.log"
        for _attempt in range(100):
            if log.exists() and SECRET in log.read_text():
                break
            time.sleep(0.1)
    finally:
        daemon.terminate()
        daemon.wait(30)
    lines = [line for line in tail(str(log), 9) if "<ConMan>" not in line]
    assert [line.split(" ", 2)[2] for line in lines] == ["iPXE 1.21", "fetching image ... failed", f"key={SECRET}"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(server, "START_S", 1.0)


def test_an_old_log_is_silence_and_a_missing_one_is_named(tmp_path):
    log = tmp_path / "bm01.log"
    log.write_text("old\n")
    os.utime(log, (time.time() - 100,) * 2)
    nodes = [{"name": "bm01", "since_s": 50.0}, {"name": "bm02", "since_s": None}]
    found = node_console_info.run({"nodes": nodes, "log_dir": str(tmp_path), "lines": 5})["nodes"]
    assert [row["lines"] for row in found.values()] == [[], []]
    assert "bm02.log" in found["bm02"]["msg"]
    assert tail(str(log), 5, 200.0) == ["old"]


@pytest.mark.parametrize(
    "console",
    [
        Console("bm01", 'unix:/x"y'),
        Console("bm01", "unix:/%N"),
        Console("bm01", ""),
        Console('b"m', "unix:/x"),
        Console("bm01", "ipmi:10.0.0.1", "", "x"),
        Console("bm01", "ipmi:10.0.0.1", "u,P:x", "x"),
        Console("bm01", "ipmi:10.0.0.1", "u" * 17, "x"),
        Console("bm01", "ipmi:10.0.0.1", "root", ""),
        Console("bm01", "ipmi:10.0.0.1", "root", "x" * 21),
    ],
)
def test_a_console_that_conman_would_misread_is_refused(console):
    with pytest.raises(ConsoleError) as error:
        config([console], "/var/log/x", 7891)
    assert console.password in ("", "x") or console.password not in str(error.value)


def test_a_name_is_there_once():
    with pytest.raises(ConsoleError, match="bm01"):
        config([Console("bm01", "unix:/a"), Console("bm01", "unix:/b")], "/var/log/x", 7891)


def test_a_diff_has_no_passwords():
    text = config([Console("bm01", "ipmi:10.0.0.1", "root", "pw")], "/var/log/x", 7891)
    assert "7077" in text
    shown = node_consoles.without_secrets(text)
    assert "7077" not in shown
    assert 'dev="ipmi:10.0.0.1"' in shown
