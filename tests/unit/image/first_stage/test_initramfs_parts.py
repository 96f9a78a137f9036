# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The compression of the first stage."""

from __future__ import annotations

import subprocess

import pytest
from image_samples import refused
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.image.first_stage import initramfs


@pytest.mark.parametrize("place", ["boot/config-1", "lib/modules/1/config", "usr/lib/modules/1/config"])
def test_the_first_stage_is_compressed_as_the_kernel_can_unpack_it(tmp_path, monkeypatch, place):
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_text("CONFIG_RD_ZSTD=y\n")
    calls = []

    def run(argv, input, stdout, check):
        calls.append((argv, input, check))
        return subprocess.CompletedProcess(argv, 0, b"compressed")

    monkeypatch.setattr(initramfs.subprocess, "run", run)
    assert initramfs.compressed(b"data", tmp_path, "1") == b"compressed"
    assert calls == [(initramfs.ZSTD, b"data", True)]
    path.write_text("# CONFIG_RD_ZSTD=y\n")
    assert initramfs.compressed(b"data", tmp_path, "1")[:2] == b"\x1f\x8b"


def test_a_missing_zstd_is_refused(tmp_path, monkeypatch):
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/config-1").write_text("CONFIG_RD_ZSTD=y\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused(initramfs.compressed, b"", tmp_path, "1") == Mentions("zstd")
