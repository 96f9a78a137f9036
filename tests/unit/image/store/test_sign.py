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

from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
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
