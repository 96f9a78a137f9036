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
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import WARN
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

    def said(chosen: list[Any], functions: list[Any]) -> list[Any]:
        placement = SimpleNamespace(chosen=SimpleNamespace(gpus=chosen, all=list))
        of = preflight.of_request(request, placement, wanted, "8.0.3", replace(host, functions=functions))
        return [(item.what, item.severity) for item in of]

    assert said(gpus, [*host.functions, switch]) == [("its host has NVSwitches", WARN)]
    assert said(gpus, host.functions) == []
    assert said([], [*host.functions, switch]) == []


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
