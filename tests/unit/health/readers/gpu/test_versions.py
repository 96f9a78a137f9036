# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Versions that differ from the released ones are faults of the configuration; unknown ones are not measured."""

from __future__ import annotations

import pytest
from gpu_readings import FIRST, Verdicts, expected, node, write

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import CONFIGURATION, ExpectedDevice
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.gpu.versions import read
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES

NIC = "0000:5c:00.0"
DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025\nGCC version:  gcc\n"
OPEN = DRIVER.replace("x86_64 Kernel Module", "Open Kernel Module for x86_64")
RIGHT = {
    "nvidia_driver": "550.163.01",
    "kernel": "6.8.0-60-generic",
    "vbios": "96.00.74.00.09",
    f"firmware {NIC}": "28.39.3004",
}


def verdicts(tmp_path, versions, **absent):
    """Return the verdicts on a node with the versions of RIGHT that should have others."""
    if not absent.get("driver"):
        write(tmp_path, "/proc/driver/nvidia/version", DRIVER)
    write(tmp_path, "/proc/sys/kernel/osrelease", "6.8.0-60-generic\n")
    vbios = absent.get("vbios", "96.00.74.00.09")
    write(tmp_path, f"/proc/driver/nvidia/gpus/{FIRST}/information", f"Model: \t H100\nVideo BIOS: \t {vbios}\n")
    device = tmp_path / "sys/devices/pci0000:5a" / NIC
    device.mkdir(parents=True, exist_ok=True)
    write(tmp_path, "/sys/class/infiniband/mlx5_0/fw_ver", "28.39.3004\n")
    link = tmp_path / "sys/class/infiniband/mlx5_0/device"
    if not link.exists():
        link.symlink_to(device)
    plan = expected(
        devices=(ExpectedDevice(FIRST, "gpu", "GPU 0"), ExpectedDevice(NIC, "nic", "NIC 0")), versions=versions
    )
    return Verdicts(read(node(tmp_path, {}, plan)), plan)


def test_the_released_versions_pass(tmp_path):
    result = verdicts(tmp_path, RIGHT)
    assert result.faults() == set()
    assert len(result.results) == 4


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("nvidia_driver", ("version_nvidia_driver", "node")),
        ("kernel", ("version_kernel", "node")),
        ("vbios", ("version_vbios", f"gpu {FIRST}")),
        (f"firmware {NIC}", ("version_firmware", f"nic {NIC}")),
    ],
)
def test_another_version_is_a_fault_of_the_configuration(name, fault, tmp_path):
    assert verdicts(tmp_path, {**RIGHT, name: "1.2"}).faults() == {fault}
    assert (RULES[fault[0]].layer, RULES[fault[0]].action) == (CONFIGURATION, "configure")


def test_the_open_kernel_module_has_another_line(tmp_path):
    verdicts(tmp_path, RIGHT)
    write(
        tmp_path,
        "/proc/driver/nvidia/version",
        OPEN,
    )
    plan = expected(versions={"nvidia_driver": "550.163.01"})
    assert Verdicts(read(node(tmp_path, {}, plan)), plan).faults() == set()


def test_a_driver_that_is_not_loaded_is_a_fault(tmp_path):
    assert verdicts(tmp_path, RIGHT, driver="absent").faults() == {("version_nvidia_driver", "node")}


def test_what_the_driver_does_not_know_is_not_measured(tmp_path):
    result = verdicts(tmp_path, RIGHT, vbios="??.??.??.??.??")
    assert result.faults() == set()
    assert result.unmeasured(FIRST) == {"version_vbios"}


def test_without_planned_versions_nothing_is_measured(tmp_path):
    assert verdicts(tmp_path, {}).results == {}
