# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Requests that are known to fail are refused without a vCenter. test_converge.py has other refused requests."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vsphere_requests import server

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Passthrough
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import REFUSE, WARN, Finding
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import NOT_ON_VSPHERE, DomainSpec
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import preflight


def row(**more: Any) -> dict[str, Any]:
    """Return the reservations of one virtual machine."""
    return {"memory_reservation_mib": 1024, "cpu_reservation_mhz": 0, "extra": {}, **more}


def of_host(wanted: dict[str, Any], others: dict[str, Any]) -> list[str]:
    return [item.what for item in preflight.of_host("esx01", server(), 2000, wanted, others, {})]


def test_cpu_reservations_above_the_frequency_of_the_host_are_reported():
    """The emulated server has eight threads of 2,000 MHz."""
    assert of_host({"train": row(cpu_reservation_mhz=16000)}, {}) == []
    assert of_host({"train": row(cpu_reservation_mhz=10000)}, {"other": row(cpu_reservation_mhz=8000)}) == [
        "18000 MHz are reserved on esx01, which has 16000 MHz"
    ]


def test_memory_reservations_of_other_machines_are_counted():
    half = row(memory_reservation_mib=600 << 10)
    assert of_host({"train": half}, {}) == []
    assert of_host({"train": half}, {"other": half}) == [
        "1228800 MiB of memory are reserved on esx01, which has 1048576 MiB"
    ]


def test_nvswitches_are_a_warning_only_if_gpus_are_passed_through():
    host = server()
    gpus = [item for item in host.functions if item.kind == "gpu"]
    switch = replace(gpus[0], kind="nvswitch", address="0000:99:00.0")
    spec = DomainSpec("train")
    request = SimpleNamespace(name="train", spec=spec, vsphere=SimpleNamespace(sriov_network=""))
    wanted = {"hardware_version": "vmx-21", "devices": [], "latency_sensitivity": "normal"}

    def warned(chosen: list[Any], functions: list[Any]) -> list[Any]:
        placement = SimpleNamespace(chosen=SimpleNamespace(gpus=chosen, all=list))
        of = preflight.of_request(request, placement, wanted, "8.0.3", replace(host, functions=functions))
        return [(item.what, item.severity) for item in of]

    assert warned(gpus, [*host.functions, switch]) == [("its host has NVSwitches", WARN)]
    assert warned(gpus, host.functions) == []
    assert warned([], [*host.functions, switch]) == []


def test_each_setting_has_an_effect_on_vsphere_or_a_reason():
    library = Path(preflight.__file__).parents[1]
    # The code that makes a virtual machine on vSphere: its own, and the choice of devices, nodes, CPUs and memory.
    texts = [file.read_text() for name in ("vsphere", "devices", "numa") for file in (library / name).rglob("*.py")]
    used = set(re.findall(r"\bspec\.(\w+)", "".join(texts)))
    assert "remaps_interrupts" in used  # guest_iommu or interrupt_remapping
    used |= {"guest_iommu", "interrupt_remapping", *kinds.SETTINGS.values()}
    used.add("disks")  # vsphere/request.py takes their sizes from the request itself
    without = {item.name for item in fields(DomainSpec) if item.metadata.get(NOT_ON_VSPHERE)}
    assert without | used >= {item.name for item in fields(DomainSpec)}
    assert without & used == set()


@pytest.mark.parametrize(
    ("name", "value"), [("autostart", False), ("ats", False), ("gpudirect_cliques", False), ("boot", "a kernel")]
)
def test_a_setting_without_an_effect_is_a_warning(name, value):
    host = server()
    request = SimpleNamespace(
        name="train", spec=replace(DomainSpec("train"), **{name: value}), vsphere=SimpleNamespace(sriov_network="")
    )
    placement = SimpleNamespace(chosen=SimpleNamespace(gpus=[], all=list))
    wanted = {"hardware_version": "vmx-21", "devices": [], "latency_sensitivity": "normal"}
    (found,) = preflight.of_request(request, placement, wanted, "8.0.3", host)
    assert (found.what, found.severity) == (f"{name} has no effect on vSphere", WARN)


def request(spec: DomainSpec | None = None, sriov_network: str = "") -> Any:
    return SimpleNamespace(
        name="train", spec=spec or DomainSpec("train"), vsphere=SimpleNamespace(sriov_network=sriov_network)
    )


def of_request(
    *chosen: Any, spec: DomainSpec | None = None, esxi: str = "8.0.3", sriov_network: str = "", **wanted: Any
) -> list[Finding]:
    """Return the findings on a request that gets ``chosen`` functions; ``wanted`` changes its configuration."""
    config = {
        "hardware_version": "vmx-21",
        "devices": [],
        "latency_sensitivity": "normal",
        "memory_reservation_mib": 0,
        "memory_mib": 1024,
        **wanted,
    }
    gpus = [item for item in chosen if item.kind == "gpu"]
    placement = SimpleNamespace(chosen=SimpleNamespace(gpus=gpus, all=lambda: list(chosen)))
    return list(preflight.of_request(request(spec, sriov_network), placement, config, esxi, server()))


def gpu(**more: Any) -> Any:
    return replace(server().function("0000:13:00.0"), **more)


def refusal(what: str, why: str, remedy: str) -> Finding:
    return Finding("train", what, why, remedy, REFUSE)


def test_a_request_without_problems_has_no_findings():
    assert of_request(gpu()) == []
    assert of_request() == []


@pytest.mark.parametrize(("hardware", "newer"), [("vmx-21", False), ("vmx-22", True), ("vmx-20", False)])
def test_hardware_that_the_host_does_not_support_is_refused(hardware, newer):
    assert of_request(hardware_version=hardware) == (
        [
            refusal(
                "virtual hardware vmx-22 is newer than ESXi 8.0.3 supports",
                "its newest is vmx-21",
                "set vsphere.hardware_version: vmx-21 or older",
            )
        ]
        if newer
        else []
    )


def test_gpus_whose_bars_are_unknown_are_refused_without_a_window():
    strange = [gpu(device_id=0x1234, bars=[], address=address) for address in ("0000:13:00.0", "0000:14:00.0")]
    assert of_request(*strange) == [
        refusal(
            "the BARs of 0000:13:00.0, 0000:14:00.0 are not known",
            "vSphere's API does not report them, and the collection's table has no such GPU: the MMIO space cannot be "
            "sized",
            "set mmio_window_mib: the power of two above the sum of their memory",
        )
    ]
    assert of_request(*strange, spec=DomainSpec("train", mmio_window_mib=65536)) == []


def test_bios_is_refused_only_with_gpus():
    bios = DomainSpec("train", firmware="bios")
    assert of_request(spec=bios) == []
    assert of_request(gpu(), spec=bios) == [
        refusal("firmware bios with GPUs", "vSphere maps BARs above 4 GiB with EFI only", "set firmware: efi")
    ]


@pytest.mark.parametrize(
    ("state", "owner", "why"),
    [
        (None, None, None),
        (Passthrough(True, True, True), None, None),
        (Passthrough(True, True, False), None, "it becomes active with the host's next boot"),
        (Passthrough(True, False, False), None, "it is not enabled"),
        # A virtual function is not enabled by itself.
        (Passthrough(True, False, False), "0000:13:00.0", None),
    ],
)
def test_a_device_that_is_not_active_is_refused_with_the_reason(state, owner, why):
    assert of_request(gpu(passthrough=state, physical_function=owner)) == (
        [refusal("gpu 0000:13:00.0 is not active for passthrough", why, "enable it (vsphere_host_passthrough)")]
        if why
        else []
    )


def test_virtual_functions_need_a_network():
    rows = [{"type": "fixed"}, {"type": "sriov"}]
    assert of_request(devices=rows[:1]) == []
    assert of_request(devices=rows, sriov_network="rails") == []
    assert of_request(devices=rows) == [
        refusal(
            "virtual functions without vsphere.sriov_network",
            "vSphere attaches a virtual function to a port group of its NIC's switch",
            "name the port group",
        )
    ]


@pytest.mark.parametrize(
    ("level", "reserved_mib", "refused"),
    [("high", 1024, False), ("high", 1023, True), ("normal", 0, False), ("high", 2048, False)],
)
def test_high_sensitivity_needs_all_memory_reserved(level, reserved_mib, refused):
    found = of_request(latency_sensitivity=level, memory_reservation_mib=reserved_mib)
    assert found == (
        [
            refusal(
                "latency sensitivity high without all memory reserved",
                "ESXi gives exclusive CPUs only with it",
                "set lock_memory: true",
            )
        ]
        if refused
        else []
    )


def findings_of_host(wanted: dict[str, Any], others: dict[str, Any] | None = None, **nodes: int) -> list[Finding]:
    of_nodes = {int(name[-1]): memory_mib for name, memory_mib in nodes.items()}
    return list(preflight.of_host("esx01", server(), 2000, wanted, others or {}, of_nodes))


def test_reservations_up_to_the_whole_host_are_accepted():
    """The emulated server has 512 GiB on each of two nodes."""
    assert findings_of_host({"train": row(memory_reservation_mib=1 << 20)}) == []
    assert findings_of_host({"train": row(memory_reservation_mib=(1 << 20) + 1)}) == [
        Finding(
            "train",
            "1048577 MiB of memory are reserved on esx01, which has 1048576 MiB",
            "ESXi does not start a virtual machine whose reservation it cannot keep",
            "give them less memory, or another host",
            REFUSE,
        )
    ]
    assert findings_of_host({"b": row(cpu_reservation_mhz=8001), "a": row(cpu_reservation_mhz=8000)}) == [
        Finding(
            "a, b",
            "16001 MHz are reserved on esx01, which has 16000 MHz",
            "latency sensitivity high reserves every core of a virtual machine",
            "give them fewer vCPUs, or another host",
            REFUSE,
        )
    ]


def test_a_core_with_two_threads_has_its_frequency_once():
    host = server()
    for node in host.numa_nodes:
        node.siblings = [node.cpus[:2], node.cpus[2:]]
    asked = {"train": row(cpu_reservation_mhz=8001)}
    (found,) = preflight.of_host("esx01", host, 2000, asked, {}, {})
    assert found.what == "8001 MHz are reserved on esx01, which has 8000 MHz"


def test_memory_of_the_request_and_of_others_is_counted_by_node():
    half = 512 << 10
    both = row(memory_reservation_mib=half, extra={"numa.nodeAffinity": "0,1"})
    second = row(memory_reservation_mib=half // 2, extra={"numa.nodeAffinity": "1"})
    assert findings_of_host({"a": both, "b": second}) == []
    (found,) = findings_of_host({"a": both, "b": second}, node1=1, node0=half // 2)
    assert found == Finding(
        "a, b",
        "524289 MiB are planned on NUMA node 1 of esx01, which has 524288 MiB",
        "memory beyond it comes from another node",
        "give them less memory, or other nodes (numa_nodes)",
        REFUSE,
    )
    # A node without memory is no problem of machines that are not on it.
    host = server()
    host.numa_nodes[1].memory_bytes = 0
    assert list(preflight.of_host("esx01", host, 2000, {"b": row(extra={"numa.nodeAffinity": "0"})}, {}, {})) == []
    # Memory without an affinity is on no node.
    assert findings_of_host({"a": row(memory_reservation_mib=half + 1)}) == []


@pytest.mark.parametrize(
    ("disks_mib", "free_bytes", "what"),
    [
        ({"fast": 10240}, {"fast": 10 << 30}, []),
        (
            {"fast": 10241},
            {"fast": (10 << 30) + 1},
            ["the new disks can grow to 10 GiB in datastore fast, which has 10 GiB"],
        ),
        ({"fast": 0}, {}, []),
        ({"slow": 1}, {"fast": 1 << 30}, ["the new disks can grow to 0 GiB in datastore slow, which has 0 GiB"]),
        (
            {"b": 4096, "a": 2048},
            {"a": 1 << 30, "b": 3 << 30},
            [
                "the new disks can grow to 2 GiB in datastore a, which has 1 GiB",
                "the new disks can grow to 4 GiB in datastore b, which has 3 GiB",
            ],
        ),
    ],
)
def test_new_disks_must_fit_into_their_datastore(disks_mib, free_bytes, what):
    found = list(preflight.of_datastores(disks_mib, free_bytes))
    assert [item.what for item in found] == what
    for item in found:
        assert (item.domain, item.why, item.remedy, item.severity) == (
            "",
            "guests stop when a datastore is full",
            "choose another datastore, or smaller disks",
            REFUSE,
        )
