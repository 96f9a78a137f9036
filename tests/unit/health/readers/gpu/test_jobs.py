# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""No deep check begins while a program computes on a GPU, or while it is not known whether one does."""

from __future__ import annotations

import pytest
from gpu_readings import FIRST, SECOND, expected, gpu, node, report, write
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.common.measuring_tools import ALL_REDUCE
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.gpu import jobs
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError, Ran
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.table import READERS


def process(kind, name="python"):
    """Return a GPU with one process, as nvidia-smi names it."""
    fields = {"pid": "675", "type": kind, "process_name": name, "used_memory": "1 MiB"}
    return gpu(**{f"processes__process_info__{field}": value for field, value in fields.items()})


@pytest.mark.parametrize("kind", ["C", "C+G", "M+C"])
def test_a_program_that_computes_is_named(tmp_path, kind):
    answers = {"nvidia-smi -q -x": report(gpu(), process(kind))}
    with raises(NotMeasuredError, "675", "python"):
        jobs.refuse(node(tmp_path, answers))


@pytest.mark.parametrize("text", [report(gpu()), report(process("G", "/usr/lib/xorg/Xorg"))])
def test_a_program_that_only_draws_is_no_job(tmp_path, text):
    jobs.refuse(node(tmp_path, {"nvidia-smi -q -x": text}))


@pytest.mark.parametrize("reader", [reader for reader in READERS if reader.is_deep], ids=lambda reader: reader.name)
@pytest.mark.parametrize("answer", [report(process("C")), "GPU is lost"], ids=["a job", "not known"])
def test_no_deep_check_runs_beside_a_job(tmp_path, reader, answer):
    plan = expected(FIRST, SECOND, accepted={ALL_REDUCE: 470.0})
    for program in ("dcgmi", "nvbandwidth", "all_reduce_perf"):
        write(tmp_path, f"/usr/bin/{program}", "")
    asked = []

    def run(argv, timeout_s, *more):
        asked.append(argv[0])
        return node(tmp_path, {"nvidia-smi -q -x": answer}).run(argv, timeout_s)

    with raises(NotMeasuredError):
        reader.read(Node(plan, str(tmp_path), run=run))
    assert asked == ["nvidia-smi"]


@pytest.mark.parametrize("reader", [reader for reader in READERS if reader.is_deep], ids=lambda reader: reader.name)
def test_a_job_that_began_meanwhile_makes_the_result_worthless(tmp_path, reader):
    plan = expected(FIRST, SECOND, accepted={ALL_REDUCE: 470.0})
    for program in ("dcgmi", "nvbandwidth", "all_reduce_perf"):
        write(tmp_path, f"/usr/bin/{program}", "")
    reports = [report(gpu()), report(process("C"))]

    def run(argv, _timeout_s):
        return Ran(0, reports.pop(0) if argv[0] == "nvidia-smi" else "", "")

    with raises(NotMeasuredError, "675"):
        reader.read(Node(plan, str(tmp_path), run=run))
