# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Inactive NVLinks and rising error counters are named at their GPU; a counter at its end is not measured."""

from __future__ import annotations

import pytest
from gpu_readings import FIRST, SECOND, Verdicts, expected, node, write
from hypothesis import given
from hypothesis import strategies as st
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Expected, ExpectedDevice, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.gpu.nvlink import (
    measurements,
    parse,
    read,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError

UUIDS = {FIRST: "GPU-01000100-0000-0000-0000-000000000000", SECOND: "GPU-01000100-0000-0000-0000-000000000001"}
TWO = expected(FIRST, SECOND)
NONE_ACTIVE = "NVML: Unable to retrieve NVLink information as all links are inActive\n"


def head(address):
    return f"GPU {0 if address == FIRST else 1}: NVIDIA H100 80GB HBM3 (UUID: {UUIDS[address]})\n"


def states(*inactive, address=FIRST):
    """Return a GPU's part of ``nvidia-smi nvlink -s``."""
    lines = (f"\t Link {link}: {'<inactive>' if link in inactive else '26.562 GB/s'}\n" for link in range(18))
    return head(address) + "".join(lines)


def errors(address=FIRST, **counts):
    """Return a GPU's part of ``nvidia-smi nvlink -e``. ``counts``: by name, of link 3."""
    text = head(address)
    for link in range(18):
        for name in ("Replay", "Recovery", "CRC"):
            text += f"\t Link {link}: {name} Errors: {counts.get(name, 0) if link == 3 else 0}\n"
        text += "\n"
    return text


def verdicts(states_text, errors_text, earlier=None, plan=TWO):
    """Return the verdicts on both reports, after an earlier one of the counters."""
    addresses = {uuid: address for address, uuid in UUIDS.items()}
    readings = [
        Reading("nvlink", measurements(parse(states_text), parse(text), addresses))
        for text in (earlier or errors_text, errors_text)
    ]
    return Verdicts(readings[1], plan, readings[0])


def healthy(**counts):
    return errors() + errors(SECOND, **counts)


def test_all_links_active_without_new_errors_pass():
    result = verdicts(states() + states(address=SECOND), healthy(Replay=5))
    assert result.faults() == set()
    checks = {"gpu_nvlinks_active", "gpu_nvlink_replays", "gpu_nvlink_recoveries", "gpu_nvlink_crc_errors"}
    assert result.passed(SECOND) == checks


@pytest.mark.parametrize("text", [states(5, 11, address=SECOND), head(SECOND) + NONE_ACTIVE])
def test_inactive_links_are_a_fault_of_their_gpu(text):
    assert verdicts(states() + text, healthy()).faults() == {("gpu_nvlinks_active", f"gpu {SECOND}")}


def test_links_that_are_not_planned_are_not_missed():
    plan = Expected("n", devices=(ExpectedDevice(FIRST, "gpu", "GPU 0"), ExpectedDevice(SECOND, "gpu", "GPU 1")))
    assert verdicts(states() + head(SECOND) + NONE_ACTIVE, healthy(), plan=plan).faults() == set()


@pytest.mark.parametrize(
    ("counts", "check"),
    [
        ({"Replay": 1}, "gpu_nvlink_replays"),
        ({"Recovery": 1}, "gpu_nvlink_recoveries"),
        ({"CRC": 60000}, None),  # less than 100 a second in an hour
    ],
)
def test_new_errors_are_faults_by_their_rate(counts, check):
    result = verdicts(states() + states(address=SECOND), healthy(**counts), earlier=healthy())
    assert result.faults() == ({(check, f"gpu {SECOND}")} if check else set())


def test_a_counter_at_its_end_is_not_measured():
    result = verdicts(states() + states(address=SECOND), healthy(CRC=65535))
    assert result.faults() == set()
    assert "gpu_nvlink_crc_errors" in result.unmeasured(SECOND)
    assert "gpu_nvlink_crc_errors" in result.passed(FIRST)


@pytest.mark.parametrize("line", ["\t Link 3: Unknown Error\n", "\t Link 3: GPU is lost\n", "日本\n"])
def test_a_line_that_is_no_link_leaves_the_gpu_unmeasured(line):
    result = verdicts(states() + states(address=SECOND) + line, healthy())
    assert "gpu_nvlinks_active" in result.unmeasured(SECOND)


def test_a_gpu_is_found_by_its_uuid_in_proc(tmp_path):
    for address, uuid in UUIDS.items():
        text = f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nVideo BIOS: \t 96.00.74.00.09\n"
        write(tmp_path, f"/proc/driver/nvidia/gpus/{address}/information", text)
    answers = {"nvidia-smi nvlink -s": states() + states(4, address=SECOND), "nvidia-smi nvlink -e": healthy()}
    assert Verdicts(read(node(tmp_path, answers, TWO)), TWO).faults() == {("gpu_nvlinks_active", f"gpu {SECOND}")}


def test_an_unknown_uuid_and_a_sentence_are_not_measured(tmp_path):
    answers = {"nvidia-smi nvlink -s": states(), "nvidia-smi nvlink -e": errors()}
    with raises(NotMeasuredError, UUIDS[FIRST]):
        read(node(tmp_path, answers))
    answers["nvidia-smi nvlink -s"] = "Unable to determine the device handle for GPU3: GPU is lost.\n"
    with raises(NotMeasuredError, "lost"):
        read(node(tmp_path, answers))


def test_a_node_without_planned_nvlinks_is_not_asked(tmp_path):
    plan = Expected("n", devices=(ExpectedDevice(FIRST, "gpu", "GPU 0"),))
    assert read(node(tmp_path, {}, plan)).measurements == ()


@given(st.text(max_size=80), st.integers(0, 600))
def test_any_text_is_read_without_a_crash(noise, cut):
    text = states(address=FIRST)
    try:
        result = parse(text[:cut] + noise + text[cut:])
    except NotMeasuredError:
        return
    for links in result.values():
        assert len(links.active) + len(links.inactive) <= 36
