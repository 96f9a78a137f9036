# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Time limits of tests with emulated machines: a busy host makes them slower, but not wrong."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def scaled_s(limit_s: float) -> float:
    """Return ``limit_s`` times the load per processor of this host, but at least ``limit_s``."""
    return limit_s * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def run_to_its_end(command: list[str], console: Path, limit_s: float) -> str:
    """Run a machine until it powers off; return its console, which an error also contains."""
    limit_s = scaled_s(limit_s)
    try:
        subprocess.run(command, check=True, timeout=limit_s, capture_output=True, text=True)
    except subprocess.TimeoutExpired as error:
        tail = console.read_text(errors="replace")[-6000:]
        raise AssertionError(f"the machine did not end in {limit_s:.0f} s\n{tail}") from error
    return console.read_text(errors="replace").replace("\r", "")
