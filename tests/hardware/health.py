#!/usr/bin/env python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run the recorder and the health check on this machine, which has NVIDIA GPUs, and keep what its tools say.

    sudo tests/hardware/health.py DIRECTORY

Needs only Python. DIRECTORY gets the recording, what the node must have by it, the state after two light rounds and the
deep checks, the verdict, and the outputs of the tools (with serial numbers: read them before you pass them on). Prints
the processor time of a light round beside that of nvidia-smi alone. Takes at most 8 minutes, and changes nothing on the
machine. For that DCGM runs its level 2 (NVIDIA: a few minutes) instead of 3 (up to 30), whose longer tests then are not
measured, and each deep check ends after CHECK_S seconds. Exit status: 0 if GPUs and rounds were measured, 1 if a reader
failed, 2 if there is nothing to measure.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIGHT_S, TOOL_S = 60, 60
DEEP_S, CHECK_S = 300, 130  # of all deep checks, of one
QUERY = ("nvidia-smi", "-q", "-x")
# The deep round of the checker with these limits; a reader ends what it started before its own deadline.
DEEP = f"""
import sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.sailloft.fleet.plugins.module_utils.health import main
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.gpu import accepted, dcgm
dcgm.LEVEL, dcgm.DEEP_TIMEOUT_S, accepted.TIMEOUT_S = 2, {CHECK_S}, {CHECK_S}
sys.exit(main.main(sys.argv[2:]))
"""
TOOLS = {
    "nvidia-smi.xml": QUERY,
    "nvidia-smi-topo.txt": ("nvidia-smi", "topo", "-m"),
    "nvidia-smi-nvlink.txt": ("nvidia-smi", "nvlink", "-s"),
    "dmesg.txt": ("dmesg",),
    "lspci.txt": ("lspci", "-vvv"),
}


def main(directory: Path) -> int:
    """Return the exit status."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        collection = Path(temporary, "ansible_collections", "sailloft")
        collection.mkdir(parents=True)
        (collection / "fleet").symlink_to(ROOT)
        sys.path.insert(0, temporary)
        return measure(directory, Path(temporary))


def measure(directory: Path, temporary: Path) -> int:
    """Record the machine, make rounds, and write all results."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.health import main as command
    from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect import expected, stored
    from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import BARE_METAL
    from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES
    from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import archive
    from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import write_recording
    from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.sysfs import read_host

    host = read_host()
    (directory / "recording.json").write_text(write_recording(host))
    for name, argv in TOOLS.items():
        text, _seconds, _status = run(argv, TOOL_S)
        (directory / name).write_text(text)
    code, state = temporary / "health.pyz", directory / "state"
    code.write_bytes(archive.build(command.__name__, with_bytecode=True))
    wanted = expected.make(os.uname().nodename, BARE_METAL, host, {}, RULES)
    (directory / "expected.json").write_text(stored.text(wanted))
    gpus = [device for device in wanted.devices if device.kind == "gpu"]
    print(f"{len(gpus)} GPUs: {', '.join(device.address for device in gpus) or 'none'}")
    if not gpus or shutil.which(QUERY[0]) is None:
        print("there is no NVIDIA GPU with its driver: nothing was measured")
        return 2

    health = [sys.executable, str(code), "--state", str(state), "--run", str(temporary / "run")]
    rounds = ["round", "--expected", str(directory / "expected.json")]
    _text, alone_s, _status = run(QUERY, TOOL_S)
    for number in (1, 2):
        text, used_s, status = run([*health, *rounds], LIGHT_S)
        print(f"light round {number}: {used_s:.3f} s of processor time, {used_s / alone_s:.2f} of nvidia-smi; {text}")
        if status:
            return 1
    _text, verdict_s, _status = run(health, TOOL_S)
    print(f"verdict: {verdict_s:.3f} s of processor time, {verdict_s / alone_s:.2f} of nvidia-smi alone")
    run([*health, "drain", "--reason", "tests/hardware"], TOOL_S)
    text, used_s, status = run([sys.executable, "-c", DEEP, str(code), *health[2:], *rounds, "--deep"], DEEP_S)
    print(f"deep round: rc {status}, {used_s:.3f} s of processor time {text}")
    text, _seconds, _status = run([*health, "--checks"], TOOL_S)
    (directory / "verdict.txt").write_text(text)
    print(text)
    verdict: dict[str, Any] = json.loads(run([*health, "--format", "json"], TOOL_S)[0])
    return 1 if verdict["round"]["errors"] or status else 0


def run(argv: list[str] | tuple[str, ...], limit_s: float) -> tuple[str, float, int]:
    """Return a program's output, its processor time in seconds, and its exit status; -1 for none, or none in time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", timeout=limit_s, check=False
        )
        text, status = done.stdout, done.returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        text, status = f"{argv[0]}: {error}\n", -1
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return text, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, status


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} DIRECTORY")
    sys.exit(main(Path(sys.argv[1]).resolve()))
