# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""probe-kvm with a QEMU that is made up: KVM counts as usable only if a kernel booted."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[3] / "roles/lab/files/probe-kvm"
QEMU = """#!/bin/sh
for argument; do case $argument in file:*) log=${argument#file:};; esac; done
echo "$@" > "$ARGUMENTS"
echo "$SAYS" > "$log"
exit 1
"""


def probe(tmp_path, says, device="kvm"):
    """Return what probe-kvm prints, and the arguments of its QEMU, whose kernel prints ``says``."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/qemu-system-x86_64").write_text(QEMU)
    (tmp_path / "bin/qemu-system-x86_64").chmod(0o755)
    (tmp_path / "kvm").touch()
    arguments = tmp_path / "arguments"
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "SAYS": says, "ARGUMENTS": str(arguments)}
    command = [str(PROGRAM), "vmlinuz", str(tmp_path / device)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout, arguments.read_text() if arguments.exists() else ""


def test_kvm_is_used_if_a_kernel_boots_to_its_root_file_system(tmp_path):
    output, arguments = probe(
        tmp_path, "Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)"
    )
    assert output == "kvm\n"
    assert "accel=kvm" in arguments
    assert "-kernel vmlinuz" in arguments


@pytest.mark.parametrize("says", ["", "Probing EDD (edd=off to disable)... ok"])
def test_qemu_is_used_if_the_kernel_hangs_or_qemu_fails(tmp_path, says):
    assert probe(tmp_path, says)[0] == "qemu\n"


def test_qemu_is_used_without_a_probe_if_there_is_no_kvm(tmp_path):
    assert probe(tmp_path, "Unable to mount root fs", "absent") == ("qemu\n", "")
