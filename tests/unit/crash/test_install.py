# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The crash kernel in an image: what is installed, once, and images that lack a part."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from kernel_trees import VERSION, kernel

from ansible_collections.sailloft.fleet.plugins.module_utils.crash import install, load
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

KEY = "age1" + "q" * 58
needs_busybox = pytest.mark.skipif(not shutil.which("busybox"), reason="no busybox on this machine (bindep.txt)")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The tree of an image with a kernel; its programs are busybox, which has no libraries."""
    kernel(tmp_path)
    (tmp_path / f"boot/vmlinuz-{VERSION}").write_bytes(b"kernel")
    for place in ("bin", "usr/lib/systemd", "etc/systemd/system/multi-user.target.wants"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "usr/lib/systemd/systemd").touch()
    for name in ("busybox", "makedumpfile", "age"):
        shutil.copy(shutil.which("busybox"), tmp_path / "bin" / name)
    (tmp_path / f"etc/systemd/system/multi-user.target.wants/{install.SERVICE}").symlink_to(install.SERVICE_FILE)
    return tmp_path


def ensured(root: Path, check: bool = False, key: str = KEY, in_image: bool = True):
    return install.ensure(System(str(root)), key, "#!/bin/sh\n", [], in_image, check)


@needs_busybox
def test_the_image_gets_kernel_initramfs_code_and_service_once(image: Path):
    predicted = ensured(image, check=True)
    assert predicted.changed
    assert not (image / load.KERNEL.lstrip("/")).exists()
    outcome = ensured(image)
    assert set(outcome.after) == set(predicted.after)
    assert not ensured(image).changed
    assert (image / load.KERNEL.lstrip("/")).read_bytes() == b"kernel"
    archive = subprocess.run(["gzip", "-dc", image / load.INITRAMFS.lstrip("/")], capture_output=True, check=True)
    listed = subprocess.run(["busybox", "cpio", "-t"], input=archive.stdout, capture_output=True, check=True)
    names = listed.stdout.decode().split()
    assert {"init", "bin/busybox", "bin/age", "bin/makedumpfile", "bin/sh", "dev/console"} <= set(names)
    modules = ("net/virtio_net.ko", "drivers/watchdog/iTCO_wdt.ko", "drivers/mfd/lpc_ich.ko")
    assert {f"lib/modules/{VERSION}/kernel/{path}" for path in modules} <= set(names)
    service = (image / install.SERVICE_FILE.lstrip("/")).read_text()
    assert f"{install.CODE} {KEY}" in service
    assert ensured(image, key="age1" + "p" * 58).after.keys() == {install.SERVICE_FILE}


@needs_busybox
def test_the_code_runs_without_the_collection_and_fails_on_a_machine_that_is_no_node(image: Path):
    ensured(image)
    code = image / install.CODE.lstrip("/")
    assert "__main__.py" in zipfile.ZipFile(BytesIO(code.read_bytes())).namelist()
    if os.path.exists("/run/sailloft/boot.json"):
        pytest.skip("this machine is a node")
    done = subprocess.run([sys.executable, "-I", code, KEY], capture_output=True, text=True, check=False)
    assert (done.returncode, "boot.json" in done.stderr, "Traceback" in done.stderr) == (1, True, False)


@needs_busybox
@pytest.mark.parametrize(
    ("break_it", "named"),
    [
        (lambda root: (root / "bin/age").unlink(), "age"),
        (lambda root: (root / f"boot/vmlinuz-{VERSION}").unlink(), "kernel"),
        (lambda root: (root / f"lib/modules/{VERSION}/modules.dep").unlink(), "kernel"),
    ],
)
def test_an_image_that_lacks_a_part_is_refused(image: Path, break_it, named: str):
    break_it(image)
    with pytest.raises(HostError, match=named):
        ensured(image)
    assert not (image / load.KERNEL.lstrip("/")).exists()


@needs_busybox
def test_a_host_that_runs_and_a_wrong_key_are_refused(image: Path):
    with pytest.raises(HostError):
        ensured(image, in_image=False)
    for key in ("", "AGE-SECRET-KEY-1" + "Q" * 58, "ssh-ed25519 AAAA", KEY + "q"):
        with pytest.raises(RequestError):
            ensured(image, key=key)
