# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""AMD's GPUs are read after amd-smi's documents."""

from __future__ import annotations

import json

import pytest
from gpu_readings import FIRST, SECOND, Verdicts, expected, node
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import ExpectedDevice
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.gpu.amd import parse, read
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError

PLAN = expected(
    devices=tuple(
        ExpectedDevice(address, "gpu", f"GPU {number}", "1002:74a1", 32.0, 16)
        for number, address in enumerate((FIRST, SECOND))
    )
)
LIST = json.dumps([{"gpu": number, "bdf": address} for number, address in enumerate((FIRST, SECOND))])
PAGES = json.dumps([{"gpu": 0, "pending": "No bad pages found."}, {"gpu": 1, "pending": "No bad pages found."}])


def metric(number, ecc=0, width=16):
    return {
        "gpu": number,
        "usage": {"gfx_activity": {"value": 98, "unit": "%"}},
        "power": {"socket_power": {"value": 700, "unit": "W"}},
        "pcie": {"width": width, "speed": {"value": 32, "unit": "GT/s"}, "replay_count": 3},
        "ecc": {"total_correctable_count": 5, "total_uncorrectable_count": ecc},
        "temperature": {"hotspot": {"value": 80, "unit": "C"}, "mem": {"value": 60, "unit": "C"}},
    }


def verdicts(tmp_path, *metrics, pages=PAGES):
    answers = {
        "amd-smi list --json": LIST,
        "amd-smi metric --json": json.dumps({"gpu_data": list(metrics)}),
        "amd-smi bad-pages --json": pages,
    }
    return Verdicts(read(node(tmp_path, answers, PLAN)), PLAN)


def test_faults_are_named_at_their_gpu(tmp_path):
    assert verdicts(tmp_path, metric(0), metric(1)).faults() == set()
    pages = json.dumps([{"gpu": 0, "pending": "No bad pages found."}, {"gpu": 1, "pending": [{"page_address": 1}]}])
    assert verdicts(tmp_path, metric(0), metric(1, ecc=2, width=8), pages=pages).faults() == {
        ("amd_ecc_uncorrectable", f"gpu {SECOND}"),
        ("pcie_width", f"gpu {SECOND}"),
        ("amd_retired_pages_pending", f"gpu {SECOND}"),
    }


def test_what_is_not_said_is_not_measured(tmp_path):
    result = verdicts(tmp_path, metric(0), metric(1, ecc="N/A"), pages=json.dumps([{"gpu": 0, "pending": "N/A"}]))
    assert "amd_ecc_uncorrectable" in result.unmeasured(SECOND)
    assert "amd_retired_pages_pending" in result.unmeasured(FIRST)


@pytest.mark.parametrize("text", ["", "{}", "[]", "7", '{"gpu_data": 3}', "AMDSMI_STATUS_DRIVER_NOT_LOADED"])
def test_without_an_answer_nothing_is_measured(text):
    with raises(NotMeasuredError, "amd-smi"):
        parse(text, text, text)


def test_a_node_with_nvidias_gpus_is_not_asked(tmp_path):
    assert read(node(tmp_path, {})).measurements == ()
