# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build images with the real tools from Debian's archive: as root, with namespaces, loop devices and overlayfs."""

from __future__ import annotations

import copy
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from build_host import BASE, BuildHost, make_keys

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import squashfs
from ansible_collections.sailloft.fleet.plugins.module_utils.image.first_stage import initramfs

GPU = {
    "parent": "base",
    "packages": ["openssh-server", "python3-apt"],
    "users": [{"name": "ops", "groups": ["adm"], "authorized_keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 ops"]}],
    "files": [{"path": "/etc/motd", "content": "GPU node\n"}],
    "services": {"enabled": ["ssh"], "masked": ["apt-daily.timer"]},
}
LAYERS = {"base": BASE, "gpu": GPU, "site": {"parent": "gpu", "packages": ["less"]}}


@pytest.fixture(scope="session", autouse=True)
def quick_compression():
    """Compress at level 1: the levels of real builds, which molecule/run node_image has, take half of the time."""
    with pytest.MonkeyPatch.context() as session:
        for module, name, level, quick in ((squashfs, "OPTIONS", "9", "1"), (initramfs, "ZSTD", "-19", "-1")):
            words = getattr(module, name)
            assert words.count(level) == 1
            session.setattr(module, name, tuple(quick if word == level else word for word in words))
        yield


@pytest.fixture
def requested() -> dict:
    """A copy of the layers that a test may change."""
    return copy.deepcopy(LAYERS)


@pytest.fixture(scope="session")
def keys(tmp_path_factory) -> Path:
    """A key pair without a password."""
    return make_keys(tmp_path_factory.mktemp("keys") / "pair")


@pytest.fixture(scope="session")
def site(keys, tmp_path_factory) -> BuildHost:
    """A build host that has built LAYERS, on the file system of pytest's temporary directories."""
    made = BuildHost(tmp_path_factory.mktemp("site"), keys)
    made.outcomes, made.lines, made.seconds = made.build(copy.deepcopy(LAYERS))
    return made


@pytest.fixture
def other(keys):
    """Another host with an empty cache on another file system, whose directories list files in another order."""
    folder = Path(tempfile.mkdtemp(prefix="sailloft-image-", dir="/dev/shm"))
    yield BuildHost(folder, keys)
    shutil.rmtree(folder)


def pytest_configure() -> None:
    """Fail the run without root: these tests must not pass by being skipped."""
    if os.geteuid() != 0:
        sys.exit("tests/image: run as root (make image)")
