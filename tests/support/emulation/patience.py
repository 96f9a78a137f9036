# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Time limits of tests with emulated machines, which a busy host makes slower and not wrong."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def scaled_s(limit_s: float) -> float:
    """Return a limit for this host: as many times ``limit_s`` as the load exceeds the processors, at least once."""
    return limit_s * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def run_to_its_end(command: list[str], console: Path, limit_s: float) -> str:
    """Run a machine until it powers off. Return its console; it stands in the error, too."""
    limit_s = scaled_s(limit_s)
    try:
        subprocess.run(command, check=True, timeout=limit_s, capture_output=True, text=True)
    except subprocess.TimeoutExpired as error:
        said = console.read_text(errors="replace")[-6000:]
        raise AssertionError(f"the machine did not end in {limit_s:.0f} s\n{said}") from error
    return console.read_text(errors="replace").replace("\r", "")
