# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whole configurations of placements, and the differences of two configurations."""

from __future__ import annotations

from typing import Any

import pytest
from vsphere_requests import NETWORK, server, vm

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.placement import place
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.request import parse
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.wanted import configure, differences

API = (8, 0, 3, 0)
GPUS = [
    {"type": "fixed", "id": "0000:13:00.0", "numa_node": 0},
    {"type": "fixed", "id": "0000:83:00.0", "numa_node": 1},
]
VFS = [
    {"type": "sriov", "id": "0000:15:10.0", "numa_node": 0},
    {"type": "sriov", "id": "0000:85:10.0", "numa_node": 1},
]
EXTRA = {
    "pciPassthru.use64bitMMIO": "TRUE",
    "pciPassthru.64bitMMIOSizeGB": "32",
    "pciPassthru.allowP2P": "TRUE",
    "pciPassthru.RelaxACSforP2P": "TRUE",
    "sched.mem.lpage.enable1GPage": "TRUE",
    "numa.nodeAffinity": "0,1",
}
WHOLE = {
    "guest_id": "otherLinux64Guest",
    "hardware_version": "vmx-21",
    "firmware": "efi",
    "memory_mib": 65536,
    "vcpus": 4,
    "cores_per_socket": 2,
    "threads_per_core": 1,
    "cores_per_numa_node": 2,
    "iommu": False,
    "memory_reservation_mib": 65536,
    "memory_locked": True,
    "cpu_reservation_mhz": 10000,
    "latency_sensitivity": "high",
    "device_group": "",
    "extra": EXTRA,
    "devices": [*GPUS, *VFS],
    "networks": [NETWORK],
    "disks_mib": [20480],
}


def configured(
    host: Host | None = None, esxi: str = "8.0.3", api: tuple[int, ...] = API, hardware: str = "", **more: Any
) -> dict[str, Any]:
    (request,) = parse([vm(**more)])
    (placement,) = place(host or server(), [request.spec], {}, lambda _spec: 768)
    return configure(request, placement, esxi, 2500, api, hardware)


def changed(**more: Any) -> dict[str, Any]:
    """Return what a change of the request changes in the configuration."""
    found = configured(**more)
    assert set(found) == set(WHOLE)
    return {key: value for key, value in found.items() if value != WHOLE[key]}


def without(*keys: str) -> dict[str, str]:
    return {key: value for key, value in EXTRA.items() if not any(part in key for part in keys)}


def test_the_whole_configuration_of_a_request():
    assert configured() == WHOLE


OLD = {
    "cores_per_numa_node": 0,
    "devices": [{**device, "numa_node": None} for device in [*GPUS, *VFS]],
}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"strict_memory": False}, {"extra": without("nodeAffinity")}),
        ({"huge_page_mib": 2}, {"extra": without("lpage")}),
        ({"mmio_window_mib": 262144}, {"extra": {**EXTRA, "pciPassthru.64bitMMIOSizeGB": "256"}}),
        ({"interrupt_remapping": True}, {"iommu": True}),
        ({"guest_iommu": True}, {"iommu": True}),
        ({"lock_memory": False}, {}),  # the devices need all of it
        ({"pin_cpus": False}, {"latency_sensitivity": "normal", "cpu_reservation_mhz": 0}),
        ({"vsphere": {"latency_sensitivity": "normal"}}, {"latency_sensitivity": "normal", "cpu_reservation_mhz": 0}),
        ({"vsphere": {"guest_id": "ubuntu64Guest"}}, {"guest_id": "ubuntu64Guest"}),
        (
            {"vsphere": {"device_group": "Nvidia:2@nvlink"}},
            {"device_group": "Nvidia:2@nvlink", "devices": VFS},
        ),
        (
            {"vsphere": {"passthrough": "dynamic"}},
            {
                "devices": [
                    {"type": "dynamic", "id": "10de:2330", "numa_node": 0},
                    {"type": "dynamic", "id": "10de:2330", "numa_node": 1},
                    *VFS,
                ]
            },
        ),
        ({"nics": {}}, {"devices": GPUS}),
        # An older API, ESXi or hardware has no virtual nodes.
        ({"api": (8, 0, 0, 1)}, {}),
        ({"api": (8, 0, 0, 0)}, OLD),
        ({"hardware": "vmx-20"}, {"hardware_version": "vmx-20"}),
        ({"hardware": "vmx-19"}, {**OLD, "hardware_version": "vmx-19"}),
        ({"esxi": "7.0.3"}, {**OLD, "hardware_version": "vmx-19"}),
    ],
)
def test_a_change_of_the_request_or_the_versions_changes_its_settings_only(more, expected):
    assert changed(**more) == expected


def test_a_machine_without_devices_is_on_one_node_and_reserves_locked_memory_only():
    plain = {"gpus": {}, "nics": {}}
    one_node = {
        "cores_per_socket": 3,
        "vcpus": 3,
        "cpu_reservation_mhz": 7500,
        "cores_per_numa_node": 3,
        "devices": [],
        "extra": {"sched.mem.lpage.enable1GPage": "TRUE", "numa.nodeAffinity": "0"},
    }
    assert changed(vcpus=3, **plain) == one_node
    assert changed(vcpus=3, lock_memory=False, **plain) == {
        **one_node, "memory_reservation_mib": 0, "memory_locked": False,
    }  # fmt: skip


def test_one_device_needs_no_peer_to_peer():
    found = changed(gpus={"addresses": ["0000:83:00.0"]}, nics={}, vcpus=2)
    assert found == {
        "vcpus": 2,
        "cpu_reservation_mhz": 5000,
        "devices": [{"type": "fixed", "id": "0000:83:00.0", "numa_node": 0}],
        "extra": {**without("P2P"), "numa.nodeAffinity": "1"},
    }


def threaded() -> Host:
    host = server()
    for node in host.numa_nodes:
        node.cpus = list(range(node.id * 8, node.id * 8 + 8))
        node.siblings = [node.cpus[at : at + 2] for at in range(0, 8, 2)]
    return host


def test_two_threads_of_a_core_are_one_core_and_its_frequency_is_reserved_once():
    assert changed(host=threaded(), vcpus=4) == {
        "cores_per_socket": 1, "cores_per_numa_node": 1, "threads_per_core": 2, "cpu_reservation_mhz": 5000,
    }  # fmt: skip
    # Without virtual hyperthreads, each vCPU has a core of its own, as on a host without hyperthreads.
    assert changed(host=threaded(), vcpus=4, api=(7, 0)) == OLD


def test_a_device_whose_node_is_unknown_has_no_virtual_node():
    host = server()
    for function in host.functions:
        if function.root_complex == "pci0000:80":
            function.numa_node = None
    next(item for item in host.root_complexes if item.name == "pci0000:80").numa_node = None
    found = configured(host, numa_nodes=["0", "1"])
    assert [(row["id"], row["numa_node"]) for row in found["devices"]] == [
        ("0000:13:00.0", 0), ("0000:83:00.0", None), ("0000:15:10.0", 0), ("0000:85:10.0", None),
    ]  # fmt: skip


def test_equal_dynamic_devices_are_in_the_order_of_their_nodes():
    host = server()
    for item in [*host.functions, *host.root_complexes]:
        item.numa_node = {0: 1, 1: 0}.get(item.numa_node)
    found = configured(host, nics={}, vsphere={"passthrough": "dynamic"})
    assert [row["numa_node"] for row in found["devices"]] == [0, 1]


@pytest.mark.parametrize(
    ("have", "found"),
    [
        ({}, []),
        ({"vcpus": 8}, [{"path": "vcpus", "wanted": 4, "have": 8}]),
        ({"disks_mib": []}, [{"path": "disks_mib", "wanted": [20480], "have": []}]),
        ({"disks_mib": [20479]}, [{"path": "disks_mib", "wanted": [20480], "have": [20479]}]),
        ({"disks_mib": [20480, 1]}, []),
        ({"disks_mib": [20481]}, []),
        (
            {"extra": {**without("lpage", "allowP2P"), "numa.nodeAffinity": "0"}},
            [
                {"path": "extra.pciPassthru.allowP2P", "wanted": "TRUE", "have": None},
                {"path": "extra.sched.mem.lpage.enable1GPage", "wanted": "TRUE", "have": None},
                {"path": "extra.numa.nodeAffinity", "wanted": "0,1", "have": "0"},
            ],
        ),
        ({"extra": {**EXTRA, "foreign": "x"}}, []),
        (
            {"memory_mib": 1024, "networks": []},
            [
                {"path": "memory_mib", "wanted": 65536, "have": 1024},
                {"path": "networks", "wanted": [NETWORK], "have": []},
            ],
        ),
    ],
)
def test_each_setting_that_differs_has_both_values(have, found):
    assert differences(WHOLE, {**WHOLE, **have}) == found
