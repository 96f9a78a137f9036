# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The first stage writes the node's own files, of which the signed statement has the digest, and no others."""

from __future__ import annotations

import os
import shutil
import subprocess
import time

import pytest
from first_stage import Behaviour, shell

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import issue
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import node_files
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

pytestmark = [
    pytest.mark.skipif(
        not shutil.which("busybox") or not shutil.which("minisign"), reason="no busybox or minisign here (bindep.txt)"
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its root"),
]
MAC = "52:54:00:aa:bb:01"
FILES = {
    "/etc/hosts": {"content": "127.0.0.1 localhost\n10.9.0.1 boot01 # 'a' $HOME \\n\n"},
    "/etc/site/empty": {"content": "", "mode": "0600", "owner": "site", "group": "1234"},
    "/etc/site/link/motd": {"content": "é\n" * 4000},
    "/etc/resolv.conf": {"content": "nameserver 10.9.0.1\n"},
}


@pytest.fixture
def root(tmp_path):
    """The root of an image with BusyBox, a user, and links that lead out of the root."""
    (tmp_path / "outside").mkdir()
    root = tmp_path / "root"
    for folder in ("bin", "etc/site", "srv"):
        (root / folder).mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), root / "bin/busybox")
    for name in ("sh", "mkdir", "rm", "cat", "chown", "chmod"):
        (root / "bin" / name).symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\nsite:x:990:990::/:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "etc/hosts").write_text("of the image\n")
    (root / "etc/site/link").symlink_to("/srv")
    (root / "etc/resolv.conf").symlink_to(tmp_path / "outside" / "resolv.conf")
    return root


def booted(tmp_path, serve, text, sent=None, key_of_site=True):
    """Return the output of a boot by a statement with the digest of ``text``, from a server that sends ``sent``."""
    keys = [Signer(str(tmp_path / f"{name}.sec"), str(tmp_path / f"{name}.pub")) for name in ("site", "other")]
    for key in keys:
        command = ["minisign", "-G", "-f", "-W", "-s", key.secret_key, "-p", key.public_key]
        subprocess.run(command, check=True, capture_output=True)
    behaviour = Behaviour("missing")
    url = serve(behaviour)
    node = {"name": "n1", "mac": MAC, "digest": "a" * 64, "servers": [url]}
    request = issue.StatementRequest([node], files={"n1": text} if text else {})
    key, terms = keys[0 if key_of_site else 1], issue.Terms(90, int(time.time()))
    change = issue.ensure(Store(str(tmp_path / f"store-{time.monotonic_ns()}")), request, [], key, terms, False)
    behaviour.turns = [change.after, text.encode() if sent is None else sent]
    script = f"""
        public_key={keys[0].public_key} tpm=/nonexistent new_root={tmp_path}/root deadline_s=0
        restart() {{ echo "rebooting: $1"; exit; }}
        servers={url}
        fetch_statement
        fetch_files
        write_files
        echo "BOOTS with '$files'"
    """
    return shell(tmp_path, script, "BOOTIF=01-" + MAC.replace(":", "-")), behaviour.asked


def test_the_files_are_written_below_the_image_with_their_modes_and_owners(tmp_path, serve, root):
    text = node_files.text_of("n1", FILES)
    output, _asked = booted(tmp_path, serve, text)
    assert f"BOOTS with '{node_files.digest_of(text)}'" in output
    places = {**{path: root / path[1:] for path in FILES}, "/etc/site/link/motd": root / "srv/motd"}
    for path, place in places.items():
        assert not place.is_symlink()
        assert place.read_text() == FILES[path]["content"]
        assert place.stat().st_mode & 0o7777 == int(FILES[path].get("mode", "0644"), 8)
    empty = (root / "etc/site/empty").stat()
    assert (empty.st_uid, empty.st_gid) == (990, 1234)
    assert list((tmp_path / "outside").iterdir()) == []


def test_new_directories_can_be_entered_by_all(tmp_path, serve, root):
    text = node_files.text_of("n1", {"/opt/a/b/c": {"content": "c", "mode": "0600"}})
    booted(tmp_path, serve, text)
    assert [(root / name).stat().st_mode & 0o777 for name in ("opt/a", "opt/a/b", "opt/a/b/c")] == [0o755, 0o755, 0o600]


@pytest.mark.parametrize("sent", [b"0644 root root /etc/hosts aGFja2Vk\n", b"x" * (node_files.MOST_BYTES + 1)])
def test_other_files_than_the_signed_ones_are_never_written(tmp_path, serve, root, sent):
    output, _asked = booted(tmp_path, serve, node_files.text_of("n1", FILES), sent)
    assert "BOOTS" not in output
    assert "rebooting: no image after" in output
    assert (root / "etc/hosts").read_text() == "of the image\n"
    if len(sent) < 1000:
        assert f"REFUSED: node n1: nodes/{node_files.digest_of(node_files.text_of('n1', FILES))}.files from " in output


def test_files_of_a_statement_of_another_key_are_never_asked_for(tmp_path, serve, root):
    output, asked = booted(tmp_path, serve, node_files.text_of("n1", FILES), key_of_site=False)
    assert "BOOTS" not in output
    assert [path for path, _offset in asked] == ["/nodes/statement"]


@pytest.mark.parametrize(
    ("path", "settings"),
    [("/etc/hosts", {"owner": "nobody-here"}), ("/etc/site", {}), ("/etc/passwd/a", {})],
)
def test_a_file_that_cannot_be_written_fails_the_boot(tmp_path, serve, root, path, settings):
    output, _asked = booted(tmp_path, serve, node_files.text_of("n1", {path: {"content": "a", **settings}}))
    assert "BOOTS" not in output
    (line,) = [line for line in output.splitlines() if "FAILED" in line]
    assert f"node n1: cannot write {path} of node_boot_files" in line


def test_a_node_without_files_asks_for_none(tmp_path, serve, root):
    output, asked = booted(tmp_path, serve, "")
    assert "BOOTS with ''" in output
    assert [path for path, _offset in asked] == ["/nodes/statement"]
