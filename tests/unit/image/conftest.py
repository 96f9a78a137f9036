# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.first_stage import initramfs


@pytest.fixture(autouse=True)
def fast_zstd(monkeypatch):
    """Compress first stages at level 1: level 19, which molecule/run node_image has, takes 6 s of CPU time each."""
    assert "-19" in initramfs.ZSTD
    monkeypatch.setattr(initramfs, "ZSTD", tuple("-1" if word == "-19" else word for word in initramfs.ZSTD))
