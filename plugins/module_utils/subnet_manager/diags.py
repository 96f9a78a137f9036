# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run the programs of infiniband-diags on this host."""

from __future__ import annotations

import os
import subprocess

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError

# The subnet of one RDMA device is read in minutes, even if many of its nodes do not answer.
LIMIT_S = 1800
SYSTEM_PATHS = "/usr/sbin:/sbin"
# It ends with 1 if it has found errors, and names the ports that did not answer on standard error.
COUNTERS = "ibqueryerrors"


class Diags:
    """The programs on the subnet of an RDMA device; of the first one with a link if it is ""."""

    def __init__(self, device: str = "") -> None:
        self.options = ["-C", device] if device else []
        self.environment: dict[str, str] = {}

    def run(self, program: str, *arguments: str) -> str:
        """Return what a program prints, of ibqueryerrors both streams. Raises InfinibandError."""
        path = f"{os.environ.get('PATH', '')}:{SYSTEM_PATHS}"
        command = [program, *self.options, *arguments]
        try:
            process = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=LIMIT_S,
                env={**os.environ, "LC_ALL": "C", "PATH": path, **self.environment},
            )
        except FileNotFoundError:
            raise InfinibandError("the host does not have it", "install infiniband-diags", subject=program) from None
        except subprocess.TimeoutExpired:
            raise InfinibandError(
                f"it has not ended in {LIMIT_S} s", "look at the links of the host's port", subject=" ".join(command)
            ) from None
        if process.returncode and not (program == COUNTERS and process.returncode == 1):
            message = (process.stderr or process.stdout).strip()[:400]
            remedy = "run it as root on a host with an active port of the fabric"
            raise InfinibandError(f"it failed: {message}", remedy, subject=" ".join(command))
        return process.stdout + (process.stderr if program == COUNTERS else "")
