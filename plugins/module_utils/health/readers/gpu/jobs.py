# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs that compute on GPUs, from nvidia-smi: deep checks need the GPUs for themselves."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import clean
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.gpu.nvidia_smi import ARGV, TIMEOUT_S, log
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError, Ran

COMPUTES = "C"  # a process's type: "C", "C+G", or "M+C" of a client of MPS; "G" only draws


def alone(node: Node, argv: Sequence[str], timeout_s: float) -> Ran:
    """Run a program that needs the GPUs for itself. Raises NotMeasuredError if a job used one before or after it."""
    refuse(node)
    ran = node.run(argv, timeout_s)
    refuse(node)
    return ran


def refuse(node: Node) -> None:
    """Raise NotMeasuredError if a job runs, as on a node that was drained and still has one, or may run."""
    ran = node.run(ARGV, TIMEOUT_S)
    for process in log(ran.stdout or ran.stderr).iter("process_info"):
        if COMPUTES in process.findtext("type", "").strip().split("+"):
            name = clean(process.findtext("process_name", ""))
            raise NotMeasuredError(
                f"process {clean(process.findtext('pid', ''))} ({name:.60}) uses a GPU; wait until its job has ended"
            )
