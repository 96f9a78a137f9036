# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Answers and logs of nginx with the role's configuration."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from boot_http import CONTENT, NGINX, keeping, serving
from first_stage import shell
from rounds import EXPECTED, GPU, TABLE, at, measured

from ansible_collections.sailloft.fleet.plugins.module_utils.health import round
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Measurement, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.process import Reader
from ansible_collections.sailloft.fleet.plugins.module_utils.health.round import CheckerPaths

# What the first stage has found before it writes its report.
REPORT = "begin one; begin ''; sequence=7 rollback= nics= image_name=i writable_mib=2 layer_server= layers_json=;"


@pytest.fixture
def server(tmp_path: Path):
    """Start nginx with a store in the test's directory; yield a function that sends a request."""
    if not NGINX:
        pytest.skip("no nginx on this machine (bindep.txt)")
    with serving(tmp_path) as ask:
        yield ask


def host_key(folder: Path, node: str) -> Path:
    """Make the host key of a node, and publish it to the boot server; return its file."""
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    signer = f'{node} namespaces="sailloft-health" {key.with_suffix(".pub").read_text()}'
    (folder / f"store/identity/.{node}.signer").write_text(signer)
    return key


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


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen on this machine (bindep.txt)")
def test_copies_of_the_health_pass_through_to_their_keeper(server, tmp_path):
    assert server("/health/bm01").status == 502
    key, copies = host_key(tmp_path, "bm01"), tmp_path / "copies"
    copy = b"sailloft-health-copy/1 bm01 1\n{}\n"
    copy += subprocess.run(
        ["ssh-keygen", "-Y", "sign", "-q", "-f", key, "-n", "sailloft-health"],
        input=copy,
        capture_output=True,
        check=True,
    ).stdout
    with keeping(tmp_path, copies):
        assert server("/health/bm01").status == 204
        assert server("/health/bm02", "PUT", copy.replace(b"bm01", b"bm02")).status == 403
        assert server("/health/bm01", "PUT", copy).status == 204
        answer = server("/health/bm01")
        assert (answer.status, answer.content) == (200, copy)
        assert (copies / "bm01").read_bytes() == copy
        assert server("/health/bm01", "PUT", b"x" * ((1 << 20) + 1)).status == 413
        for path, method in (("/health/", "GET"), ("/health/../identity/file", "PUT"), ("/health/bm01", "DELETE")):
            assert server(path, method).status in (403, 404), (path, method)
        assert server("/identity/.bm01.signer").status == 404


@pytest.mark.skipif(not (shutil.which("ssh-keygen") and shutil.which("busybox")), reason="bindep.txt is not installed")
def test_a_node_without_a_disk_learns_its_faults_of_before_its_boot(server, tmp_path):
    """From the first stage's shell over the signed copy, nginx and the keeper to the first round of the next boot."""
    key = host_key(tmp_path, "n1")
    paths = CheckerPaths(*(str(tmp_path / name) for name in ("state", "checker", "expected.json", "root")))
    Path(paths.expected).write_text(stored.text(EXPECTED))

    def faults_of_boot(number: int, *measurements: Measurement) -> list[str]:
        for folder in (paths.state, paths.run, paths.root):
            shutil.rmtree(folder, ignore_errors=True)
        report = shell(tmp_path, f"{REPORT} servers={server.url}; write_report")
        for name, text in (("run/sailloft/boot.json", report), ("etc/ssh/ssh_host_ed25519_key", key.read_text())):
            file = Path(paths.root, name)
            file.parent.mkdir(parents=True)
            file.touch(0o600)
            file.write_text(text)
        reader = Reader("reader", lambda _node: Reading("reader", measurements), 20)
        saved = round.make(paths, [reader], TABLE, now=lambda: at(60, f"boot-{number}", 1_800_000_000 + 1000 * number))
        return [fault.name for fault in saved.condition.faults]

    with keeping(tmp_path, tmp_path / "copies"):
        fault = f"width@gpu:{GPU.name}"
        assert faults_of_boot(1, measured("width", 8)) == [fault]
        assert faults_of_boot(2) == [fault]
    # Without the keeper, what was before the boot is not known.
    assert faults_of_boot(3) == ["state_before_boot@node"]
