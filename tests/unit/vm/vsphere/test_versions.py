# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The settings that an API version or a virtual hardware version lacks. test_config_spec.py has whole plans."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import REFUSE, WARN, Finding
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import versions


def wanted(*devices: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return those settings of a configuration that need a version; by default none but virtual NUMA."""
    values = {"threads_per_core": 1, "cores_per_numa_node": 2, "device_group": "", "hardware_version": "vmx-20"}
    return {**values, "devices": list(devices), **changes}


def device(kind: str = "fixed", node: int | None = None) -> dict[str, Any]:
    return {"type": kind, "id": "0000:13:00.0", "numa_node": node}


@pytest.mark.parametrize(
    ("version", "number"), [("vmx-21", 21), ("vmx-9", 9), ("vmx-", 0), ("", 0), ("vmx-2x", 0), ("21", 21)]
)
def test_the_number_of_a_hardware_version_is_at_its_end(version, number):
    assert versions.hardware(version) == number


@pytest.mark.parametrize(
    ("esxi", "hardware"),
    [
        ("9.1.0", "vmx-22"),
        ("9.0", "vmx-22"),
        ("9.0.0", "vmx-22"),
        ("8.0.3", "vmx-21"),
        ("8.0.2", "vmx-21"),
        ("8.0.1", "vmx-20"),
        ("8.0", "vmx-20"),
        ("8.0.0", "vmx-20"),
        ("7.0.3", "vmx-19"),
        ("7.0.2", "vmx-19"),
        ("7.0.1", "vmx-18"),
        ("7.0.0", "vmx-17"),
        ("7.0", "vmx-17"),
        ("6.7.3", "vmx-15"),
        ("6.7.2", "vmx-15"),
        ("6.7.1", "vmx-14"),
        ("6.7", "vmx-14"),
        ("6.6", "vmx-13"),
        ("6.5.0", "vmx-13"),
        ("6.5", "vmx-13"),
        ("6.0", "vmx-13"),
        ("", "vmx-13"),
        ("8.0.x", "vmx-20"),
    ],
)
def test_each_esxi_release_has_its_newest_hardware(esxi, hardware):
    assert versions.newest_hardware(esxi) == hardware


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        (wanted(cores_per_numa_node=0), set()),
        (wanted(), {"cores_per_numa_node"}),
        (wanted(cores_per_numa_node=0, threads_per_core=2), {"threads_per_core"}),
        (wanted(cores_per_numa_node=1), {"cores_per_numa_node"}),
        (wanted(cores_per_numa_node=0, device_group="Nvidia:2@nvlink"), {"device_group"}),
        (wanted(device(), cores_per_numa_node=0), set()),
        (wanted(device(node=0), cores_per_numa_node=0), {"numa_node"}),
        (wanted(device(), device(node=1), cores_per_numa_node=0), {"numa_node"}),
        (wanted(device("dynamic"), cores_per_numa_node=0), {"dynamic"}),
        (wanted(device("sriov"), device("dynamic", 1)), {"cores_per_numa_node", "dynamic", "numa_node"}),
    ],
)
def test_a_configuration_uses_the_settings_that_it_sets(config, settings):
    assert versions.used(config) == settings


EVERYTHING = wanted(device("dynamic", 0), threads_per_core=2, device_group="Nvidia:2@nvlink")


def test_the_least_versions_of_all_settings_are_sufficient():
    assert versions.missing("train", EVERYTHING, (8, 0, 0, 1)) == []


def test_each_setting_that_an_api_lacks_is_refused_with_its_least_version():
    found = versions.missing("train", EVERYTHING, (6, 7, 3))
    why = "it would be left out without an error"
    remedy = "upgrade the older one, or leave the setting out"
    have = "this vCenter and pyVmomi support 6.7.3"
    assert found == [
        Finding("train", f"{what}, {have}", why, remedy, REFUSE)
        for what in (
            "virtual NUMA (virtualNuma) needs API 8.0.0.1",
            "device groups needs API 8.0.0.1",
            "dynamic DirectPath I/O needs API 7.0",
            "the virtual NUMA node of a device (numaNode) needs API 8.0.0.1",
            "virtual hyperthreads (simultaneousThreads) needs API 8.0.0.1",
        )
    ]
    # API 7.0 has dynamic devices, and 8.0.0.0 nothing more.
    for api in ((7, 0), (8, 0, 0, 0)):
        assert "dynamic" not in "".join(item.what for item in versions.missing("train", EVERYTHING, api))
        assert len(versions.missing("train", EVERYTHING, api)) == 4


@pytest.mark.parametrize(
    ("hardware", "lacking"),
    [
        ("vmx-20", []),
        (
            "vmx-19",
            [
                "virtual NUMA (virtualNuma) needs vmx-20, its version is vmx-19",
                "device groups needs vmx-20, its version is vmx-19",
                "the virtual NUMA node of a device (numaNode) needs vmx-20, its version is vmx-19",
                "virtual hyperthreads (simultaneousThreads) needs vmx-20, its version is vmx-19",
            ],
        ),
    ],
)
def test_each_setting_that_the_hardware_lacks_is_refused_with_its_least_version(hardware, lacking):
    found = versions.missing("train", {**EVERYTHING, "hardware_version": hardware}, (8, 0, 3, 0))
    assert [item.what for item in found] == lacking
    assert {(item.domain, item.why, item.remedy, item.severity) for item in found} <= {
        ("train", "ESXi ignores or refuses it on older hardware", "set hardware_version: vmx-20 or newer", REFUSE)
    }


@pytest.mark.parametrize(("hardware", "lacks"), [("vmx-16", True), ("vmx-17", False)])
def test_dynamic_devices_need_hardware_17(hardware, lacks):
    config = wanted(device("dynamic"), hardware_version=hardware)
    found = [item for item in versions.missing("train", config, (8, 0, 3, 0)) if "dynamic" in item.what]
    assert [item.what for item in found] == (
        ["dynamic DirectPath I/O needs vmx-17, its version is vmx-16"] if lacks else []
    )


def test_a_configuration_without_virtual_numa_is_a_warning_and_nothing_else():
    assert versions.missing("train", wanted(cores_per_numa_node=0, hardware_version="vmx-19"), (8, 0, 3, 0)) == [
        Finding(
            "train",
            "virtual NUMA, virtual hyperthreads and the devices' virtual NUMA nodes are left out",
            "they need API 8.0.0.1 and vmx-20, it has API 8.0.3.0 and vmx-19: the guest does not know which of its "
            "nodes is near a device",
            "upgrade the older one of vCenter and pyVmomi, or set hardware_version: vmx-20 or newer",
            WARN,
        )
    ]
