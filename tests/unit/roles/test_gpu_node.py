# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The role gpu_node with real apt and dpkg, a signed archive of placeholders, and a root like an image's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from placeholder_archive import UNIT, Archive

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts an overlay"),
    pytest.mark.skipif(not Path("/usr/bin/apt-get").exists(), reason="the root is this machine's, which has no apt"),
]
ROOT = Path(__file__).parents[3]
INSIDE = ROOT / "tests/support/gpu_node/inside.py"
KERNEL = "6.1.0-99-amd64"
# An overlay on this machine's root, in a mount namespace; other archives are hidden.
MOUNT = r"""
first=
[ -e "$1/upper/etc/apt" ] || first=yes
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
if [ "$first" ]; then
    rm -rf "$1/root/etc/apt/sources.list" "$1/root/etc/apt/sources.list.d"
    mkdir "$1/root/etc/apt/sources.list.d"
fi
folder=$1
shift
exec "$@"
"""
# The format of modinfo --field version; the machine may have no kmod, and the module is a placeholder.
MODINFO = '#!/bin/sh\ncat "/lib/modules/$2/updates/dkms/nvidia.version" 2>/dev/null\n'


def packages(driver: str):
    """Yield (name, version, files) of the packages of NVIDIA's archive for Debian."""
    module = {f"/lib/modules/{KERNEL}/updates/dkms/nvidia.version": driver + "\n"}
    unit = "/usr/lib/systemd/system/{}.service"
    yield "nvidia-kernel-open-dkms", f"{driver}-1", module
    yield "nvidia-driver-cuda", f"{driver}-1", {}
    yield "nvidia-persistenced", f"{driver}-1", {unit.format("nvidia-persistenced"): UNIT}
    yield "nvidia-fabricmanager", f"{driver}-1", {unit.format("nvidia-fabricmanager"): UNIT}
    yield "libnvidia-nscq", f"{driver}-1", {}


@pytest.fixture
def node():
    work = Path(tempfile.mkdtemp(prefix="sailloft-gpu-node-", dir="/dev/shm"))
    for name in ("upper", "work", "root", "build"):
        (work / name).mkdir()
    work.chmod(0o755)
    archive = Archive(work / "upper/srv/archive", work / "build")
    for driver in ("595.91.07", "595.71.05"):
        for name, version, files in packages(driver):
            archive.add(name, version, files)
    dcgm = {"/usr/lib/systemd/system/nvidia-dcgm.service": UNIT}
    for version in ("4.6.0", "4.5.2"):
        archive.add("datacenter-gpu-manager-4-core", f"1:{version}-1", dcgm)
        archive.add("datacenter-gpu-manager-4-cuda13", f"1:{version}-1", {})
    for name in (f"linux-headers-{KERNEL}", "rdma-core", "ibverbs-providers", "ibverbs-utils", "ethtool"):
        archive.add(name, "99-1", {})
    archive.publish()
    # /lib is a link to /usr/lib on all current systems.
    (work / f"upper/usr/lib/modules/{KERNEL}/kernel").mkdir(parents=True)
    modinfo = work / "upper/usr/sbin/modinfo"
    modinfo.parent.mkdir(parents=True, exist_ok=True)
    modinfo.write_text(MODINFO)
    modinfo.chmod(0o755)
    yield Node(work, archive)
    archive.close()
    shutil.rmtree(work)


class Node:
    """The node's root; ``upper`` has the files that were written to it."""

    def __init__(self, work: Path, archive: Archive) -> None:
        self.work, self.archive = work, archive
        self.repository = {
            "name": "placeholders",
            "url": "file:/srv/archive",
            "key": archive.key,
            "fingerprints": [archive.fingerprint],
        }

    def play(self, **variables) -> tuple[int, str]:
        """Apply the role; return (exit status, output)."""
        given = {"gpu_node_repositories": [self.repository], "gpu_node_fabric": "nvswitch", **variables}
        done = subprocess.run(
            [
                "unshare",
                "--mount",
                "sh",
                "-eu",
                "-c",
                MOUNT,
                "sh",
                self.work,
                sys.executable,
                INSIDE,
                self.work / "root",
            ],
            input=json.dumps(given),
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / ".collections"),
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def read(self, path: str) -> str | None:
        there = self.work / "upper" / path.lstrip("/")
        return there.read_text() if there.is_file() else None

    def versions(self) -> dict[str, str]:
        status = self.read("/var/lib/dpkg/status") or ""
        found = re.findall(
            r"^Package: (\S+)\nStatus: install ok installed\n(?:.+\n)*?Version: (\S+)", status, re.MULTILINE
        )
        return {name: version for name, version in found if re.search("nvidia|datacenter", name)}


def changed(output: str) -> int:
    return int(re.search(r"changed=(\d+)", output)[1])


def test_the_software_of_a_layer_is_installed(node):
    status, output = node.play()
    assert status == 0, output
    assert {"595.91.07-1", "1:4.6.0-1"} <= set(node.versions().values())


@pytest.mark.long
def test_the_software_of_a_layer_is_installed_changed_and_removed(node):
    """The software is predicted, installed, unchanged, moved to another release, refused, and removed."""
    status, output = node.play(check=True)
    assert status == 0, output
    assert "nvidia-kernel-open-dkms=595.91.07*" in output
    assert changed(output) > 0
    assert node.versions() == {}
    assert list((node.work / "upper/etc").rglob("*sailloft*")) == []

    status, output = node.play()
    assert status == 0, output
    versions = node.versions()
    assert versions["nvidia-kernel-open-dkms"] == versions["nvidia-fabricmanager"] == "595.91.07-1"
    assert versions["datacenter-gpu-manager-4-core"] == "1:4.6.0-1"
    for service in (
        "nvidia-persistenced",
        "nvidia-fabricmanager",
        "nvidia-dcgm",
        "sailloft-gpu-node",
        "sailloft-gpu-host",
    ):
        link = node.work / f"upper/etc/systemd/system/multi-user.target.wants/{service}.service"
        assert link.is_symlink(), service

    status, output = node.play()
    assert status == 0, output
    assert changed(output) == 0, output

    # A downgrade to an older release in the archive.
    status, output = node.play(gpu_node_driver="595.71.05")
    assert status == 0, output
    assert set(node.versions().values()) == {"595.71.05-1", "1:4.5.2-1"}

    status, output = node.play(gpu_node_driver="580.173.02")
    assert status != 0
    assert "580.173.02" in output
    assert set(node.versions().values()) == {"595.71.05-1", "1:4.5.2-1"}

    status, output = node.play(gpu_node_state="absent")
    assert status == 0, output
    assert node.versions() == {}
    assert node.read("/etc/apt/sources.list.d/sailloft-placeholders.list") is None
    assert node.read("/etc/sailloft/gpu_node.json") is None


@pytest.mark.long
def test_an_archive_signed_by_another_key_is_refused(node):
    """The role checks the fingerprint; apt refuses an archive that the inventory's key did not sign."""
    status, output = node.play(gpu_node_repositories=[{**node.repository, "fingerprints": ["A" * 40]}])
    assert status != 0
    assert f"the key has the fingerprint {node.archive.fingerprint}" in output
    assert node.read("/etc/apt/sources.list.d/sailloft-placeholders.list") is None

    other = Archive(node.work / "other", node.work / "build/other")
    other.close()
    stranger = {**node.repository, "key": other.key, "fingerprints": [other.fingerprint]}
    status, output = node.play(gpu_node_repositories=[stranger])
    assert status != 0
    assert node.versions() == {}
