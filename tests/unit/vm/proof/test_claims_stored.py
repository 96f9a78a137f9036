# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whole lists of claims: a change of a claim shows as a diff of files. SAILLOFT_WRITE_CLAIMS=1 writes them again."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gpu_vm
import pytest
from gpu_vm import GIB, evidence

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.claims import prove
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import Evidence, Running
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import Interface

FILES = Path(__file__).parent / "claims"
GPU, PF, VF, GPU2 = "0000:13:00.0", "0000:14:00.0", "0000:14:00.1", "0000:83:00.0"


def lines(claims: list[Claim]) -> str:
    """Return the claims as text, a paragraph each."""
    return "".join(
        f"{claim.layer}: {claim.claim}\n  wanted {claim.wanted!r}, seen {claim.seen!r}: {claim.holds}\n"
        f"  {claim.source}\n" + (f"  {claim.reason}\n" if claim.reason else "")
        for claim in claims
    )


def unread() -> Evidence:
    """Return evidence of which only the host's topology was read."""
    return Evidence("gpu01", gpu_vm.planned(gpu_vm.host()))


def unset() -> Evidence:
    """Return evidence for a plan and an inventory that leave everything as it is."""
    one = evidence()
    spec, processors = one.planned.spec, one.planned.processors
    spec.lock_memory, spec.huge_page_mib, spec.strict_memory = False, 0, False
    one.planned.address_bits_mode, processors.kept_cpus = "off", []
    for cell in processors.cells:
        cell.cpus = []
    one.nccl, one.nccl_topology = {}, ""
    settings = one.host_settings
    settings.acs_ports, settings.modules_off, settings.kernel_settings = [], [], {}
    settings.virtual_functions, settings.huge_pages = {}, []
    for each in (settings, one.guest_settings):
        each.max_read_request_bytes = {}
    return one


def fast() -> Evidence:
    """Return evidence of a guest with all settings for speed, which its QEMU has."""
    one = evidence()
    spec = one.planned.spec
    spec.memory_threads, spec.hpet, spec.kvm_dedicated, spec.rng, spec.rom_bar = 8, False, True, True, False
    spec.guest_iommu = True
    spec.interfaces = [Interface(source="a", queues=4), Interface(source="b"), Interface(source="c", queues=2)]
    one.planned.address_bits_mode, one.planned.address_bits = "emulate", 46
    arguments = [
        text.replace('"prealloc":true', '"prealloc":true,"prealloc-threads":8') for text in one.running.qemu_arguments
    ]
    arguments = [text.replace('"driver":"vfio-pci"', '"driver":"vfio-pci","rombar":0') for text in arguments]
    arguments += ["-machine", "pc-q35-7.2,hpet=off", "-cpu", "host,kvm-hint-dedicated=on", "-device", "intel-iommu"]
    arguments += ["-device", f"virtio-net-pci,mq=on,vectors=10,mac={spec.mac(0)}", "-device", "virtio-rng-pci,rng=x"]
    one.running.qemu_arguments = arguments
    return one


def slow() -> Evidence:
    """Return evidence of a guest for which none of the settings of ``fast`` took effect."""
    one = fast()
    one.running = Running.of_process(gpu_vm.process())
    return one


def emulated() -> Evidence:
    """Return evidence of a guest without KVM, and of a host with an older QEMU and devices of other firmware."""
    one = fast()
    one.running.accelerated, one.planned.accelerator = False, "qemu"
    one.running.qemu_arguments.append("-no-hpet")
    one.running.memory = []
    one.host_settings.read_only = [GPU, PF]
    one.host_settings.reset_failures = {GPU2: "flr is known to fail"}
    one.host_settings.kernel_settings = {
        "governor": {"wanted": "performance", "not_applicable": "no cpufreq"},
        "ksm": {"wanted": True, "seen": "0"},
        "avic": {"wanted": False},
    }
    one.host_settings.modules_off, one.host_settings.modules_that_may_load = [], ["nvidia may load: a reason"]
    one.nic_firmware = {PF: {"ATS_ENABLED": {"wanted": "True(1)", "seen": "False(0)"}, "OTHER": {"wanted": "1"}}}
    return one


def odd() -> Evidence:
    """Return evidence with a deviation of almost everything."""
    one = evidence()
    host, guest, settings = one.host, one.guest, one.host_settings
    host.iommu = replace(host.iommu, default_domain="DMA-FQ", interrupt_remapping=False)
    host.function(GPU).driver, host.function(GPU).ats = "nvidia", None
    host.function(VF).iommu_group = host.function(GPU).iommu_group
    host.function(GPU2).iommu_group, host.function(GPU2).max_read_request_bytes = None, None
    host.function(GPU2).ats.enabled = False
    host.function(PF).sriov.vfs = []
    for address, control in (("0000:12:00.0", 0x01), ("0000:12:01.0", 0x1D), ("0000:10:01.0", 0x00)):
        host.function(address).acs.control = control
    host.function("0000:82:01.0").acs.capability = 0x1F
    host.kernel_arguments = ["module_blacklist=nouveau"]
    host.numa_nodes[1].huge_pages[0].total = 31
    settings.differences = ["hugepages: node1 1024 MiB", "sriov: a failure"]
    settings.virtual_functions["0000:84:00.0"]["eswitch_mode"] = None
    settings.virtual_functions["0000:84:00.0"]["settings"][0]["seen"] = None
    settings.max_read_request_bytes[GPU] = 2048
    one.domain_differences = ["defined: vcpu: wanted 4, have 2"]
    running = one.running
    running.memory = [
        {"page_bytes": GIB, "policy": "bind:0", "pages_by_node": {"0": 30, "1": 2, "2": 1, "3": 0}},
        {"page_bytes": 2 << 20, "policy": "default", "pages_by_node": {"0": 512}},
    ]
    running.pinning, running.emulator_cpus = {0: [2], 1: [2, 3], 3: [7]}, [0]
    running.qemu_arguments = [
        text.replace('"host-nodes":[1],', '"host-nodes":[0,1],').replace("mem-lock=on", "cpu-pm=on")
        for text in running.qemu_arguments
        if GPU2 not in text
    ]
    guest.cpu.physical_address_bits = 40
    guest.numa_nodes[0].cpus = [0]
    del guest.numa_nodes[1]
    inside = guest.function("0000:23:00.0")
    inside.device_id, inside.numa_node, inside.bars, inside.max_read_request_bytes = 0x2331, 1, inside.bars[:1], 512
    moved = guest.function("0000:64:00.0")
    moved.parent, moved.root_complex = "0000:22:01.0", "pci0000:20"
    guest.functions = [item for item in guest.functions if item.address != "0000:63:00.0"]
    one.nccl_settings = "NCCL_IB_PCI_RELAXED_ORDERING=1\n#NCCL_X=1\nNCCL_DEBUG = INFO\nnonsense\n"
    one.nccl_topology_file = None
    return one


CASES: dict[str, Callable[[], Evidence]] = {
    "unread": unread,
    "unset": unset,
    "fast": fast,
    "slow": slow,
    "emulated": emulated,
    "odd": odd,
}


def compare(name: str, text: str) -> None:
    file = FILES / f"{name}.txt"
    if os.environ.get("SAILLOFT_WRITE_CLAIMS"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_all_claims_of_complete_evidence_equal_the_stored_file():
    compare("whole", lines(prove(evidence())))


@pytest.mark.parametrize("name", CASES)
def test_the_claims_that_differ_from_those_of_complete_evidence_equal_the_stored_file(name):
    whole, found = prove(evidence()), prove(CASES[name]())
    names = [claim.claim for claim in found]
    without = "".join(f"without: {claim.claim}\n" for claim in whole if claim.claim not in names)
    compare(name, without + lines([claim for claim in found if claim not in whole]))
