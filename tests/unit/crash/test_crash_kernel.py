# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The crash kernel in an image, and how a node loads it."""

from __future__ import annotations

import json
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
from ansible_collections.sailloft.fleet.plugins.module_utils.crash.errors import CrashError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import boot_report

KEY = "age1" + "q" * 58
MAC = "52:54:00:aa:bb:01"
REPORT = {
    "format": boot_report.FORMAT,
    "node": "bm01",
    "image": "a" * 64,
    "name": "node",
    "kernel": VERSION,
    "arguments": "initrd=first-stage console=ttyS0 crashkernel=512M hugepages=900 iommu=pt isolcpus=2-9 "
    "sailloft.node=bm01 sailloft.servers=http://10.9.0.9 BOOTIF=01-52-54-00-aa-bb-01",
    "layers": [{"name": "base", "sha256": "b" * 64, "root_sha256": "", "verity": True}],
    "server": "http://10.9.0.1",
    "writable_bytes": 1,
    "phases": [],
    "warnings": [],
    "mac": MAC,
    "report_url": "http://10.9.0.1/report",
    "servers": ["http://10.9.0.1", "http://10.9.0.2"],
}
NIC = "/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
needs_busybox = pytest.mark.skipif(not shutil.which("busybox"), reason="no busybox on this machine (bindep.txt)")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The tree of a node that was booted from an image, with 512 MiB for its crash kernel."""
    for path, text in {
        "run/sailloft/boot.json": json.dumps(REPORT),
        "sys/kernel/kexec_crash_size": str(512 << 20),
        "sys/kernel/kexec_crash_loaded": "0",
        f"sys{NIC}/virtio0/net/eth0/address": f"{MAC}\n",
        "sys/devices/virtual/net/br0/address": f"{MAC}\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / f"sys{NIC}/virtio0/net/eth0/device").symlink_to("../..")
    nets = tmp_path / "sys/class/net"
    nets.mkdir(parents=True)
    (nets / "eth0").symlink_to(f"../..{NIC}/virtio0/net/eth0")
    (nets / "br0").symlink_to("../../devices/virtual/net/br0")
    return tmp_path


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
    (tmp_path / install.WANTS.lstrip("/")).symlink_to(install.SERVICE_FILE)
    return tmp_path


def ensured(root: Path, check: bool = False, key: str = KEY, in_image: bool = True):
    return install.ensure(System(str(root)), key, "#!/bin/sh\n", [], in_image, check)


def test_the_nic_that_booted_is_the_only_device_of_the_crash_kernel(node: Path):
    assert load.device(MAC, str(node)) == NIC
    assert load.device("52:54:00:00:00:00", str(node)) == ""


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_command_line_is_the_nodes_without_what_takes_memory_or_boots(node: Path, machine: str):
    report = boot_report.load(json.dumps(REPORT), "bm01")
    words = load.command_line(report, NIC, KEY, machine).split()
    assert words[:2] == ["console=ttyS0", "iommu=pt"]
    assert not [word for word in words if word.startswith(("crashkernel", "hugepages", "isolcpus", "initrd"))]
    given = dict(word.split("=", 1) for word in words if word.startswith(("sailloft.", "BOOTIF")))
    assert given == {
        "sailloft.crash": KEY,
        "sailloft.device": NIC,
        "sailloft.node": "bm01",
        "sailloft.image": "a" * 64,
        "sailloft.servers": "http://10.9.0.1,http://10.9.0.2",
        "sailloft.report": "http://10.9.0.1/report",
        "BOOTIF": "01-52-54-00-aa-bb-01",
    }
    assert {"nr_cpus=1", "panic=10"} <= set(words)


def test_a_command_line_that_the_kernel_would_cut_is_refused(node: Path):
    report = boot_report.load(json.dumps({**REPORT, "arguments": "x=y " * 500}), "bm01")
    with pytest.raises(CrashError):
        load.command_line(report, NIC, KEY, "x86_64")


@pytest.mark.parametrize(
    ("path", "text", "named"),
    [("sys/kernel/kexec_crash_size", "0", "crashkernel="), ("run/sailloft/boot.json", None, "boot.json")],
)
def test_a_node_that_cannot_dump_says_why(node: Path, path: str, text: str | None, named: str):
    (node / path).unlink() if text is None else (node / path).write_text(text)
    with pytest.raises(CrashError) as error:
        load.load(KEY, str(node))
    assert named in str(error.value)


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
    assert f"lib/modules/{VERSION}/kernel/net/virtio_net.ko" in names
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
