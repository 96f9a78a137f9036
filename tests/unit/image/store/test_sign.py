# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Invalid public keys of images are refused, and a killed process leaves no message and no signature."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.setting import BuildEnvironment
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import unnamed_files
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign


def test_a_public_key_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "image.pub").write_bytes(b"\xff\xfe\x00")
    with raises(ImageError, f"{tmp_path}/image.pub", "minisign public key"):
        sign.read_public_key(tmp_path / "image.pub")


def test_signatures_are_in_no_file_system_when_the_process_is_killed(tmp_path):
    """minisign itself signs until the process is killed; then another one signs with the same key."""
    public, secret = tmp_path / "image.pub", tmp_path / "image.key"
    subprocess.run(["minisign", "-G", "-W", "-p", public, "-s", secret], check=True, capture_output=True)
    word, comments = f"secret {os.urandom(16).hex()}", ("trusted", "untrusted")
    script = (
        "import json, sys; sys.path[:0] = json.loads(sys.argv[1])\n"
        "from pathlib import Path\n"
        "from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import signatures\n"
        "messages = [f'{sys.argv[2]} {number}'.encode() for number in range(5_000)]\n"
        "signatures(messages, Path(sys.argv[3]), '', None, ('trusted', 'untrusted'))\n"
    )
    memory = tmp_path / "memory"
    memory.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", script, json.dumps(sys.path), word, secret],
        env={**os.environ, "TMPDIR": str(memory)},
    )
    try:
        until = time.monotonic() + 60
        # Until minisign runs.
        while not Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert list(memory.iterdir()) == []
    for path in Path("/dev/shm").rglob("*"):
        assert not (path.is_file() and os.access(path, os.R_OK) and word.encode() in path.read_bytes()), path
    (made,) = sign.signatures([word.encode()], secret, sign.read_public_key(public), None, comments)
    assert sign.verifies(word.encode(), made, sign.read_public_key(public))


@pytest.fixture
def keys(tmp_path) -> Path:
    """A key pair without a password."""
    command = ["minisign", "-G", "-W", "-p", tmp_path / "image.pub", "-s", tmp_path / "image.key"]
    subprocess.run(command, check=True, capture_output=True)
    return tmp_path


def setting(keys: Path, *command: str) -> BuildEnvironment:
    key = None if command else keys / "image.key"
    return BuildEnvironment(keys, keys, key, keys / "image.pub", None, "", False, print, command)


def test_another_process_opens_the_key(keys, monkeypatch):
    public = sign.read_public_key(keys / "image.pub")
    opened = []
    monkeypatch.setattr(sign, "unnamed_files", lambda *given: opened.append(given) or unnamed_files(*given))
    signature = setting(keys).sign(b"manifest", public)
    assert opened == []
    assert sign.verifies(b"manifest", signature, public)
    (keys / "image.key").unlink()
    with raises(ImageError, f"{keys}/image.key", "No such file"):
        setting(keys).sign(b"manifest", public)


def test_a_command_of_the_site_signs_what_it_reads(keys):
    """The command stands for one that reaches a vault or a security module."""
    public = sign.read_public_key(keys / "image.pub")
    script = f"cat > {keys}/m; minisign -S -s {keys}/image.key -m {keys}/m -x {keys}/x >&2; cat {keys}/x"
    signature = setting(keys, "sh", "-c", script).sign(b"manifest", public)
    assert sign.verifies(b"manifest", signature, public)


@pytest.mark.parametrize(
    ("command", "facts"),
    [
        (("sh", "-c", "echo no token >&2; exit 3"), ("sh", "status 3", "no token")),
        (("sh", "-c", "echo signed"), ("sh", "minisign -S")),
        (("/nowhere/sign",), ("/nowhere/sign", "No such file")),
    ],
)
def test_a_command_that_does_not_sign_is_named_with_its_reason(keys, command, facts):
    with raises(ImageError, *facts):
        setting(keys, *command).sign(b"manifest", sign.read_public_key(keys / "image.pub"))


def test_a_command_that_does_not_answer_is_ended(keys, monkeypatch):
    monkeypatch.setattr(sign, "COMMAND_S", 0.1)
    with raises(ImageError, "sleep", "0.1 s"):
        setting(keys, "sleep", "20").sign(b"manifest", "")
