# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""PCIe links of planned devices are compared with the plan, and a link that may be idle by its width only."""

from __future__ import annotations

from dataclasses import replace

import pytest
from health_nodes import failed, node, results, unmeasured, values, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    NOT_MEASURED,
    PASS,
    Expected,
    ExpectedDevice,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.pcie import (
    parse_errors,
    parse_speed,
    read,
)

GPU, NIC, PORT, DISK = "0000:4b:00.0", "0000:5c:00.0", "0000:4a:01.0", "0000:01:00.0"
EXPECTED = Expected(
    "gpu01",
    devices=(
        ExpectedDevice(GPU, "gpu", "GPU 4", link_speed_gt_s=32.0, link_width=16),
        ExpectedDevice(NIC, "nic", "NIC of rail 3", link_speed_gt_s=32.0, link_width=16),
        ExpectedDevice(PORT, "bridge", "port above GPU 4", link_speed_gt_s=32.0, link_width=16),
        ExpectedDevice(DISK, "nvme", "disk", link_speed_gt_s=16.0, link_width=4),
    ),
)
CORRECTED = "RxErr {}\nBadTLP 0\nTOTAL_ERR_COR {}"
NONFATAL = "DLP 0\nCmpltTO {}\nUnsupReq {}\nTOTAL_ERR_NONFATAL {}"
FATAL = "DLP {}\nUnsupReq 0\nTOTAL_ERR_FATAL {}"


def device(address, speed="32.0 GT/s PCIe", width="16", **more):
    """Return the files of a device."""
    folder = f"/sys/bus/pci/devices/{address}"
    files = {"current_link_speed": speed, "current_link_width": width, "power/runtime_status": "active", **more}
    return {f"{folder}/{name}": text for name, text in files.items()}


def machine(root, **changed):
    """Write a healthy machine; a keyword gives the files of one of its devices (gpu, nic, port, disk)."""
    files = {
        "gpu": device(GPU),
        "nic": device(NIC),
        "port": device(PORT, **{f"{GPU}/class": "0x030200"}),
        "disk": device(DISK, "16.0 GT/s PCIe", "4"),
        **changed,
    }
    for each in files.values():
        write(root, each or {})
    return node(root, EXPECTED)


def test_a_healthy_machine_passes_everywhere(tmp_path):
    judged = results(read(machine(tmp_path)), expected=EXPECTED)
    assert {result.verdict for result in judged} == {PASS}
    assert {result.check for result in judged} == {"device_missing", "pcie_speed", "pcie_width"}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"nic": None}, {"device_missing": [NIC]}),
        ({"nic": device(NIC, config=b"\xff" * 64)}, {"device_missing": [NIC]}),
        ({"nic": device(NIC, width="8")}, {"pcie_width": [NIC]}),
        ({"nic": device(NIC, "8.0 GT/s PCIe")}, {"pcie_speed": [NIC]}),
        ({"disk": device(DISK, "2.5 GT/s PCIe", "4")}, {"pcie_speed": [DISK]}),
        ({"gpu": device(GPU, width="8")}, {"pcie_width": [GPU]}),
        # Idle: the width alone is judged.
        ({"gpu": device(GPU, "2.5 GT/s PCIe", "4")}, {"pcie_width": [GPU]}),
        ({"port": device(PORT, "2.5 GT/s PCIe", "1", **{f"{GPU}/class": "0x030200"})}, {"pcie_width": [PORT]}),
        # A port above a NIC.
        ({"port": device(PORT, "2.5 GT/s PCIe", **{f"{NIC}/class": "0x020000"})}, {"pcie_speed": [PORT]}),
        ({"port": device(PORT, "Unknown", "0", **{f"{GPU}/class": "0x030200"})}, {"pcie_width": [PORT]}),
    ],
)
def test_each_difference_is_one_fault_at_its_device(tmp_path, changed, expected):
    assert failed(read(machine(tmp_path, **changed)), expected=EXPECTED) == expected


@pytest.mark.parametrize(
    "changed",
    [
        {"gpu": device(GPU, "2.5 GT/s PCIe")},
        {"port": device(PORT, "2.5 GT/s PCIe", **{f"{GPU}/class": "0x030200"})},
        {"nic": device(NIC, "2.5 GT/s PCIe", **{"power/runtime_status": "suspended"})},
        {"disk": device(DISK, "2.5 GT/s PCIe", "4", power_state="D3hot")},
    ],
)
def test_the_speed_of_a_link_that_may_be_idle_is_not_measured(tmp_path, changed):
    reading = read(machine(tmp_path, **changed))
    assert failed(reading, expected=EXPECTED) == {}
    assert list(unmeasured(reading, expected=EXPECTED)) == ["pcie_speed"]


def test_a_sleeping_device_without_a_link_has_no_width_and_that_is_no_fault_of_the_check(tmp_path):
    asleep = {"power/runtime_status": "suspended", "power_state": "D3cold"}
    judged = results(read(machine(tmp_path, gpu=device(GPU, "Unknown", "63", **asleep))), expected=EXPECTED)
    width = next(each for each in judged if (each.check, each.place.name) == ("pcie_width", GPU))
    assert (width.verdict, width.is_occasional) == (NOT_MEASURED, True)
    # One that keeps its link is judged.
    narrow = read(machine(tmp_path, gpu=device(GPU, width="8", **asleep)))
    assert failed(narrow, expected=EXPECTED) == {"pcie_width": [GPU]}


def test_a_sleeping_device_is_not_woken_to_see_whether_it_answers(tmp_path):
    sleeping = device(NIC, config=b"\xff" * 64, **{"power/runtime_status": "suspended"})
    assert failed(read(machine(tmp_path, nic=sleeping)), expected=EXPECTED) == {}


def test_a_link_is_judged_by_the_plan_and_not_by_what_the_device_could(tmp_path):
    narrow = replace(EXPECTED, devices=(ExpectedDevice(NIC, "nic", "NIC", link_speed_gt_s=16.0, link_width=8),))
    write(tmp_path, device(NIC, "16.0 GT/s PCIe", "8", max_link_width="16", max_link_speed="32.0 GT/s PCIe"))
    assert failed(read(node(tmp_path, narrow)), expected=narrow) == {}


def test_a_node_without_planned_devices_measures_nothing(tmp_path):
    assert read(node(tmp_path)).measurements == ()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (CORRECTED.format(5000, 5000), CORRECTED.format(5003, 5003), {}),
        (CORRECTED.format(0, 0), CORRECTED.format(1001, 1001), {"pcie_errors_corrected": [NIC]}),
        (NONFATAL.format(7, 0, 7), NONFATAL.format(7, 0, 7), {}),
        (NONFATAL.format(0, 2, 2), NONFATAL.format(0, 9, 9), {}),
        (NONFATAL.format(0, 2, 2), NONFATAL.format(1, 2, 3), {"pcie_errors_nonfatal": [NIC]}),
        (FATAL.format(0, 0), FATAL.format(1, 1), {"pcie_errors_fatal": [NIC]}),
    ],
)
def test_errors_are_judged_by_their_increase(tmp_path, before, after, expected):
    name = {"COR": "correctable", "FATAL": "fatal", "NONFATAL": "nonfatal"}[before.split("_")[-1].split()[0]]
    readings = []
    for text in (before, after):
        readings.append(read(machine(tmp_path, nic=device(NIC, **{f"aer_dev_{name}": text}))))
    assert failed(*readings, expected=EXPECTED) == expected


def test_values_in_other_forms_are_not_measured(tmp_path):
    broken = device(NIC, "schnell", "63", aer_dev_fatal="DLP viele")
    reading = read(machine(tmp_path, nic=broken))
    assert failed(reading, expected=EXPECTED) == {}
    assert unmeasured(reading, expected=EXPECTED) == {
        "pcie_errors_fatal": [NIC],
        "pcie_speed": [NIC],
        "pcie_width": [NIC],
    }


@pytest.mark.parametrize(("text", "speed"), [("2.5 GT/s PCIe", 2.5), ("64.0 GT/s PCIe", 64), ("8 GT/s", 8), ("", None)])
def test_speeds_of_old_and_new_kernels(text, speed):
    assert parse_speed(text) == speed


@given(st.text() | st.binary().map(lambda data: data.decode(errors="replace")))
def test_no_text_is_an_error(text):
    assert parse_speed(text) is None or parse_speed(text) >= 0
    assert parse_errors(text, "TOTAL_ERR_COR") is None or "TOTAL_ERR_COR" in text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_files_of_garbage_neither_pass_nor_crash(tmp_path, data):
    names = ("current_link_width", "current_link_speed", "aer_dev_correctable", "power_state")
    write(tmp_path, {f"/sys/bus/pci/devices/{NIC}/{name}": data for name in names})
    for (check, _place), value in values(read(node(tmp_path, EXPECTED))).items():
        assert check == "device_missing" or value is None or isinstance(value, (int, float))
