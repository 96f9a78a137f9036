# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A drained node reaches again what it was accepted with, and the links to its GPUs their speed while they are used."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
import tool_outputs as printed
import yaml
from gpu_readings import FIRST, SECOND, Verdicts, expected, gpu, report, write
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.health import process
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    FAIL,
    NOT_MEASURED,
    PASS,
    ExpectedDevice,
    Place,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.process import Reader
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.gpu import accepted
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import (
    Node,
    NotMeasuredError,
    Ran,
    run,
)

ROOT = Path(__file__).parents[5]
PORT, NIC = "0000:19:01.0", "0000:20:00.0"
RATES = {
    **{
        f"{test} {each}": 55.0
        for test in ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce")
        for each in (FIRST, SECOND)
    },
    "device_to_device_memcpy_read_ce": 391.0,
    "all_reduce_perf": 478.1,
}
GPUS = expected(FIRST, SECOND).devices
# The port above the first GPU shows its link, and so does the NIC its own, which never sleeps.
PLAN = expected(
    devices=(
        *GPUS,
        ExpectedDevice(PORT, "bridge", "port of GPU 0", link_speed_gt_s=32.0),
        ExpectedDevice(NIC, "nic", "NIC", link_speed_gt_s=32.0),
    ),
    accepted=RATES,
)


def speed(root, address, gt_s):
    write(root, f"/sys/bus/pci/devices/{address}/current_link_speed", f"{gt_s} GT/s PCIe\n")


class WatchedNode(Node):
    """A node that counts how often the speed of a link was read."""

    looks = 0

    def text(self, path):
        if path.endswith("current_link_speed"):
            WatchedNode.looks += 1
        return super().text(path)


def drained(root, plan=PLAN, copies=(55.1, 55.2), between=391.0, collective=478.0, awake=None, **answers):
    """Return a node whose idle links are slow, and those in ``awake`` while nvbandwidth copies."""
    for address in (FIRST, SECOND, PORT):
        speed(root, address, 2.5)
    write(root, f"/sys/bus/pci/devices/{PORT}/{FIRST}/class", "0x030200")
    for program in ("/opt/nvbandwidth/nvbandwidth", "/opt/nccl-tests/build/all_reduce_perf"):
        write(root, program, "")

    def run(argv, _timeout_s):
        if argv[0] == "nvidia-smi":
            return Ran(0, report(gpu(FIRST), gpu(SECOND)), "")
        if argv[0] in answers:
            return answers[argv[0]]
        if argv[0].endswith("all_reduce_perf"):
            return Ran(0, printed.nccl(collective), "")
        for address, gt_s in (awake or {FIRST: 32.0, SECOND: 32.0, PORT: 32.0}).items():
            speed(root, address, gt_s)
        # Two looks at each of the three links after they woke, however busy the machine.
        first, end = WatchedNode.looks, time.monotonic() + 20
        while WatchedNode.looks < first + 7 and time.monotonic() < end:
            time.sleep(accepted.LOOK_S)
        for address in (FIRST, SECOND, PORT):
            speed(root, address, 2.5)
        return Ran(0, printed.nvbandwidth([FIRST, SECOND], list(copies), between), "")

    return WatchedNode(plan, str(root), run=run)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    monkeypatch.setattr(accepted, "LOOK_S", 0.002)


def copies(root, **terms):
    return Verdicts(accepted.read_copies(drained(root, **terms)), PLAN)


def test_a_node_as_it_was_accepted_passes(tmp_path):
    verdicts = copies(tmp_path)
    assert verdicts.faults() == set()
    passes = {(check, place.name) for (check, place), each in verdicts.results.items() if each.verdict == PASS}
    of_gpus = ("nvbandwidth_to_gpu", "nvbandwidth_from_gpu", "pcie_speed")
    assert passes == {
        *((check, address) for check in of_gpus for address in (FIRST, SECOND)),
        ("pcie_speed", PORT),
        ("nvbandwidth_between_gpus", ""),
    }
    # Nothing woke the NIC's link.
    assert verdicts.results["pcie_speed", Place("nic", NIC)].verdict == NOT_MEASURED


def test_a_link_that_is_slow_while_it_is_used_is_a_fault(tmp_path):
    slow = copies(tmp_path, awake={FIRST: 8.0, PORT: 8.0, SECOND: 32.0})
    assert slow.faults() == {("pcie_speed", f"gpu {FIRST}"), ("pcie_speed", f"bridge {PORT}")}


def test_copies_slower_than_accepted_are_faults_of_their_gpu(tmp_path):
    # Half of the lanes.
    slow = copies(tmp_path, copies=(55.0, 27.0))
    assert slow.faults() == {(f"nvbandwidth_{way}_gpu", f"gpu {SECOND}") for way in ("to", "from")}
    between = copies(tmp_path, between=100.0)
    assert between.faults() == {("nvbandwidth_between_gpus", "node")}
    source = between.results["nvbandwidth_between_gpus", Place("node")].source
    assert {FIRST, SECOND} <= set(source.replace(",", "").split())


def test_a_gpu_that_nvbandwidth_does_not_list_is_not_measured(tmp_path):
    node = drained(tmp_path, **{"/opt/nvbandwidth/nvbandwidth": Ran(0, printed.nvbandwidth([FIRST], [55.0], None), "")})
    for address in (FIRST, SECOND, PORT):
        speed(tmp_path, address, 32.0)
    verdicts = Verdicts(accepted.read_copies(node), PLAN)
    assert verdicts.faults() == set()
    for check in ("nvbandwidth_to_gpu", "nvbandwidth_from_gpu", "pcie_speed"):
        assert verdicts.results[check, Place("gpu", SECOND)].verdict == NOT_MEASURED


TO, FROM, BETWEEN = (accepted.DEEP[test][0] for test in (accepted.TO_GPU, accepted.FROM_GPU, accepted.BETWEEN_GPUS))


def changed(root, change, plan=PLAN):
    """Return the verdicts on nvbandwidth's report after a change of its tests by name."""
    document = json.loads(printed.nvbandwidth([FIRST, SECOND], [55.0, 55.0]))
    change({test["name"]: test for test in document["nvbandwidth"]["testcases"]}, document["nvbandwidth"])
    node = drained(root, plan, **{"/opt/nvbandwidth/nvbandwidth": Ran(0, json.dumps(document), "")})
    return Verdicts(accepted.read_copies(node), plan)


def test_a_test_that_did_not_run_is_not_measured_with_its_status(tmp_path):
    def fail(tests, _report):
        tests["host_to_device_memcpy_ce"]["status"] = "Error in line 7"

    verdicts = changed(tmp_path, fail)
    for address in (FIRST, SECOND):
        result = verdicts.results[TO, Place("gpu", address)]
        assert (result.verdict, "Error in line 7" in result.reason) == (NOT_MEASURED, True)
    assert verdicts.results[FROM, Place("gpu", FIRST)].verdict == PASS


def _without_a_pair(tests, _report):
    tests["device_to_device_memcpy_read_ce"]["bandwidth_matrix"][0][1] = "N/A"


def _with_a_pair_of_0(tests, _report):
    tests["device_to_device_memcpy_read_ce"]["bandwidth_matrix"][1][0] = "0.00"


def _without_a_row(tests, _report):
    del tests["device_to_device_memcpy_read_ce"]["bandwidth_matrix"][1]


def _waived(tests, _report):
    tests["device_to_device_memcpy_read_ce"]["status"] = "Waived"


def _without_a_gpu(tests, report):
    del report["GPU Device list"][1]
    tests["device_to_device_memcpy_read_ce"]["bandwidth_matrix"] = [["N/A"]]


@pytest.mark.parametrize("change", [_without_a_pair, _with_a_pair_of_0, _without_a_row, _waived, _without_a_gpu])
def test_the_slowest_pair_is_not_known_while_a_pair_is_missing(tmp_path, change):
    result = changed(tmp_path, change).results[BETWEEN, Place("node")]
    assert (result.verdict, bool(result.reason)) == (NOT_MEASURED, True)


def test_a_gpu_that_nobody_planned_is_no_fault(tmp_path):
    plan = replace(PLAN, devices=PLAN.devices[:1])
    assert copies(tmp_path, plan=plan).faults() == set()


@pytest.mark.parametrize("rate", [0.0, -5.0, float("nan"), float("inf")])
def test_an_acceptance_that_is_no_rate_is_no_limit(tmp_path, rate):
    plan = replace(PLAN, accepted=dict.fromkeys(RATES, rate))
    verdicts = Verdicts(accepted.read_copies(drained(tmp_path, plan=plan)), plan)
    verdicts.results.update(Verdicts(accepted.read_collective(drained(tmp_path, plan=plan)), plan).results)
    for key in ((TO, Place("gpu", FIRST)), (BETWEEN, Place("node")), ("all_reduce_perf", Place("node"))):
        assert (verdicts.results[key].verdict, bool(verdicts.results[key].reason)) == (NOT_MEASURED, True)


# A program that misbehaves, and what the reason names.
BAD_PROGRAMS = {
    "hangs": ("sleep 60", "no answer"),
    "leaves a child that holds its output": ("sleep 60 &", "no answer"),
    "is killed": ("kill -9 $$", "-9"),
    "is killed in the middle": ("printf '{\"nvbandwidth\": {'; kill -11 $$", "-11"),
    "succeeds with an error": ("echo 'CUDA error: all CUDA-capable devices are busy' >&2", "nvbandwidth"),
    "says nothing": ("true", "nvbandwidth"),
    "prints without end": ("yes 1234567890", "MiB"),
    "prints rubbish": ("head -c 100000 /dev/urandom", "nvbandwidth"),
    "speaks another language": ('echo \'{"nvbandwidth": {"Fehler": "kein Gerät"}}\'', "nvbandwidth"),
    "cannot be run": ("", "Permission denied"),
}


@pytest.mark.parametrize(("script", "reason"), BAD_PROGRAMS.values(), ids=BAD_PROGRAMS)
def test_a_program_that_misbehaves_is_not_measured(tmp_path, monkeypatch, script, reason):
    monkeypatch.setattr(accepted, "TIMEOUT_S", 1.0)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755 if script else 0o644)
    node = drained(tmp_path)

    def ran(argv, timeout_s):
        return node.run(argv, timeout_s) if argv[0] == "nvidia-smi" else run((str(program), *argv[1:]), timeout_s)

    reader = Reader("nvbandwidth", accepted.read_copies, 15, is_deep=True)
    (outcome,) = process.read_all([reader], lambda _reader: replace(node, run=ran))
    assert (outcome.reading.measurements, outcome.alive) == ((), ())
    assert reason in outcome.reading.error


def test_a_speed_that_was_not_seen_during_the_copies_is_not_measured(tmp_path):
    answer = Ran(0, printed.nvbandwidth([FIRST, SECOND], [55.0, 55.0]), "")
    node = drained(tmp_path, **{"/opt/nvbandwidth/nvbandwidth": answer})
    write(tmp_path, f"/sys/bus/pci/devices/{FIRST}/current_link_speed", "Unknown")
    verdicts = Verdicts(accepted.read_copies(node), PLAN)
    assert verdicts.results["pcie_speed", Place("gpu", FIRST)].verdict == NOT_MEASURED


def test_a_collective_slower_than_accepted_is_a_fault_of_the_node(tmp_path):
    def verdict(rate):
        reading = accepted.read_collective(drained(tmp_path, collective=rate))
        return Verdicts(reading, PLAN).results["all_reduce_perf", Place("node")].verdict

    assert [verdict(rate) for rate in (478.0, 359.0, 358.0)] == [PASS, PASS, FAIL]
    # Without an acceptance there is nothing to compare with.
    assert accepted.read_collective(drained(tmp_path, plan=expected(FIRST, SECOND))).measurements == ()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Ran(1, "", "CUDA_ERROR_NO_DEVICE"), ["1", "CUDA_ERROR_NO_DEVICE"]),
        (Ran(0, "", ""), ["nvbandwidth"]),
        (Ran(0, '{"nvbandwidth": {"error": "no CUDA"}}', ""), ["no CUDA"]),
        (
            Ran(0, '{"nvbandwidth": {"GPU Device list": [], "testcases": [{"name": "x", "status": "Waived"}]}}', ""),
            ["x"],
        ),
    ],
)
def test_a_tool_that_fails_measures_nothing(tmp_path, answer, words):
    with raises(NotMeasuredError, *words):
        accepted.read_copies(drained(tmp_path, **{"/opt/nvbandwidth/nvbandwidth": answer}))


def test_a_collective_that_fails_measures_nothing(tmp_path):
    for answer in (Ran(1, "", "NCCL failure"), Ran(0, printed.nccl(wrong=3), "")):
        with raises(NotMeasuredError, "all_reduce_perf"):
            accepted.read_collective(drained(tmp_path, **{"/opt/nccl-tests/build/all_reduce_perf": answer}))


def test_a_node_without_the_tools_or_without_gpus_is_not_asked(tmp_path):
    def nothing(plan):
        node = Node(plan, str(tmp_path), run=None)
        return accepted.read_copies(node).measurements == accepted.read_collective(node).measurements == ()

    assert nothing(PLAN)
    drained(tmp_path)
    assert nothing(expected(devices=(PLAN.devices[-1],)))


def test_the_arguments_are_those_of_the_acceptance():
    tasks = yaml.safe_load((ROOT / "roles/gpu_node/tasks/accept_node.yml").read_text(encoding="utf-8"))
    runs = {
        task["sailloft.fleet.gpu_acceptance_run"]["tool"]: task["sailloft.fleet.gpu_acceptance_run"]["arguments"]
        for task in tasks
        if "sailloft.fleet.gpu_acceptance_run" in task
    }
    assert tuple(runs["nvbandwidth"]) == accepted.COPIES
    assert tuple(runs["all_reduce_perf"][:-1]) == accepted.COLLECTIVE
    defaults = yaml.safe_load((ROOT / "roles/gpu_node/defaults/main.yml").read_text(encoding="utf-8"))
    assert set(accepted.DIRECTORIES[:2]) <= set(defaults["gpu_node_accept_paths"])
