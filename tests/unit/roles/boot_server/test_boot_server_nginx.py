# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Answers and logs of nginx with the role's configuration."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from boot_server_role import nginx_configuration

CONTENT = b"layer" * 1000
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin")


@pytest.fixture
def server(tmp_path: Path):
    """Start nginx with a store in the test's directory; yield a function that sends a request."""
    if not NGINX:
        pytest.skip("no nginx on this machine (bindep.txt)")
    for folder in ("blobs", "images/x", "channels", "nodes", "identity", "current"):
        (tmp_path / "store" / folder).mkdir(parents=True)
        (tmp_path / "store" / folder / "file").write_bytes(CONTENT)
    (tmp_path / "store" / "blobs" / ".file.new").write_bytes(CONTENT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = tmp_path / "nginx.conf"
    (tmp_path / "tftp").mkdir()
    for name in ("ipxe.efi", ".hidden"):
        (tmp_path / "tftp" / name).write_bytes(b"iPXE")
    file.write_text(nginx_configuration(tmp_path, tmp_path / "store", port, tmp_path / "tftp"))
    command = [NGINX, "-e", tmp_path / "error.log", "-c", file]
    subprocess.run([*command, "-t", "-q"], check=True)
    process = subprocess.Popen([*command, "-g", "daemon off;"], stderr=subprocess.DEVNULL)

    def ask(path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        answer.content = answer.read()
        connection.close()
        return answer

    deadline = time.monotonic() + 60
    while True:
        try:
            ask("/")
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    yield ask
    process.terminate()
    process.wait(10)


def test_only_the_store_and_boot_files_are_served_and_none_is_writable(server):
    for path in ("/blobs/file", "/images/x/file", "/channels/file", "/nodes/file", "/identity/file"):
        answer = server(path)
        assert (answer.status, answer.content) == (200, CONTENT), path
        assert (answer.headers["Cache-Control"] == "no-store") == (
            path.split("/")[1] in ("channels", "nodes", "identity")
        )
    answer = server("/boot/ipxe.efi")
    assert (answer.status, answer.content, answer.headers["Content-Type"]) == (200, b"iPXE", "application/efi")
    # EDK2 requests the length first.
    answer = server("/boot/ipxe.efi", "HEAD")
    assert (answer.status, answer.headers["Content-Length"]) == (200, "4")
    for path in (
        "/",
        "/boot/",
        "/boot/../store/nodes/file",
        "/boot/.hidden",
        "/blobs/",
        "/blobs/absent",
        "/blobs/.file.new",
        "/current/file",
        "/nodes/../../nginx.conf",
    ):
        assert server(path).status in (400, 403, 404), path
    for path in ("/blobs/file", "/nodes/file", "/boot/ipxe.efi", "/report"):
        for method in ("POST", "PUT", "DELETE"):
            assert server(path, method).status in (403, 405), (path, method)


def test_an_interrupted_transfer_can_be_resumed(server):
    answer = server("/blobs/file", Range="bytes=4990-")
    assert (answer.status, answer.content) == (206, CONTENT[4990:])


def test_the_fields_of_reports_are_logged(server, tmp_path):
    answer = server(
        '/report?event=refused&node=bm01&image=abc&file=blobs/x&wanted=1&seen=2&server=http://a&reason=a%20%22b"'
    )
    assert (answer.status, answer.content) == (204, b"")
    log = tmp_path / "sailloft-report.log"
    # nginx writes the log after it has sent the answer.
    deadline = time.monotonic() + 60
    while not log.read_text().endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    entry = json.loads(log.read_text())
    wanted = {"event": "refused", "node": "bm01", "image": "abc", "file": "blobs/x", "wanted": "1", "seen": "2"}
    wanted |= {"server": "http://a", "reason": 'a%20%22b"'}
    assert {name: entry[name] for name in wanted} == wanted
    assert entry["address"] == "127.0.0.1"
