# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A limit of the host's platform is found before anything is defined, with its cost and a remedy that works."""

from __future__ import annotations

from typing import Any

import pytest
from machines import GIB, hypervisor, lab, plan
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Bar, Host, Iommu
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight import platform
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.checks import check, without_libvirt
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import RefusedError

FAST = {"qemu_version": (10, 1, 0)}


def wide(bits: int = 46, bar_gib: int = 16) -> Host:
    """Return the lab with so many physical address bits, and two GPUs with BARs of ``bar_gib``."""
    host = lab()
    host.cpu.physical_address_bits = bits
    for function in host.functions:
        if function.kind == "gpu":
            function.vendor_id = 0x10DE
            function.bars = [Bar(0, 16 << 20, "memory", 32, False), Bar(2, bar_gib * GIB, "memory", 64, True)]
    return host


def found(check_of: Any, *arguments: Any) -> list[tuple[str, str]]:
    return [(item.severity, str(item)) for item in check_of(*arguments)]


@pytest.mark.parametrize(
    ("remaps", "unsafe", "severity"),
    [
        (True, None, None),
        (True, True, None),
        (False, None, "refuse"),
        (False, False, "refuse"),
        (False, True, "warn"),
        (None, None, "warn"),
    ],
)
def test_devices_are_refused_if_interrupts_are_not_remapped(remaps, unsafe, severity):
    iommu = Iommu("intel", "identity", remaps, 48, unsafe)
    host = lab()
    host.iommu = iommu
    assert [item[0] for item in found(platform.interrupt_remapping, plan(host), iommu)] == (
        [severity] if severity else []
    )
    alone = plan(host, gpus={}, nics={}, numa_nodes=["0"], vcpus=2)
    assert found(platform.interrupt_remapping, alone, iommu) == []
    if severity == "refuse":
        with raises(RefusedError, "gpu-vm", "IOMMU", "interrupts"):
            check([plan(host)], host, hypervisor(**FAST), set(), set(), False)


def remedy(made: DomainPlan, width: int | None) -> str | None:
    """Return the remedy of a narrow IOMMU, None if it is wide enough."""
    item = next(platform.iommu_width(made, Iommu("intel", "identity", True, width)), None)
    return item and f"{item.severity}: {item.remedy}"


def test_an_iommu_that_is_narrower_than_the_guests_addresses_is_found_and_the_remedy_works():
    """The BARs of bpg/terraform-provider-proxmox issue 1353 were at 0x380000000000, the last eighth of 46 bits."""
    made = plan(wide(46))
    assert remedy(made, 39) == "warn: physical_address_bits: 39"
    assert [remedy(made, width) for width in (46, 48, 57)] == [None, None, None]
    assert remedy(plan(wide(46), physical_address_bits="39"), 39) is None


def test_ovmf_uses_47_bits_of_a_wider_host():
    assert remedy(plan(wide(52)), 48) is None
    assert remedy(plan(wide(52)), 46) == "warn: physical_address_bits: 46"


def test_a_window_that_the_iommu_cannot_hold_needs_fewer_devices():
    made = plan(wide(46, 512))
    window = made.window.window_bytes // GIB
    assert remedy(made, 40) == f"warn: assign fewer devices: a window of {window} GiB does not fit into 40 bits"


def test_memory_above_the_iommus_addresses_is_refused():
    big = lab()
    for node in big.numa_nodes:
        node.memory_bytes, node.huge_pages = 600 * GIB, []
    made = plan(big, memory_mib=600 * 1024, huge_page_mib=0, physical_address_bits="auto")
    assert remedy(made, 39) == "refuse: give it less than 512 GiB of memory"


def test_an_iommu_of_unknown_width_is_never_taken_for_a_wide_one():
    assert remedy(plan(wide(46)), None) == "warn: read the topology on the host itself"
    assert remedy(plan(wide(39, 4)), None) is None


def test_one_device_and_low_seabios_windows_need_no_warning():
    one = plan(wide(46), gpus={"addresses": ["0000:13:00.0"]}, nics={}, vcpus=2, memory_mib=1024)
    assert remedy(one, 39) is None
    assert remedy(plan(wide(46), firmware="bios"), 39) is None
    assert remedy(plan(wide(46), firmware="bios", memory_mib=4096, huge_page_mib=0), 39) is not None


@pytest.mark.parametrize(
    ("qemu", "linux", "stalls"),
    [
        ((10, 1, 0), "6.15.0", False),
        ((11, 0, 0), "7.0.3-1-amd64", False),
        ((10, 0, 8), "6.15.0", True),
        ((10, 1, 0), "6.14.11", True),
        ((10, 1, 0), "5.14.0-570.el9", True),
        ((10, 1, 0), None, True),
    ],
)
def test_large_bars_delay_a_boot_with_an_old_kernel_or_qemu(qemu, linux, stalls):
    """30 seconds for each 128 GiB: two GPUs of 128 GiB are a minute."""
    host = wide(46, 128)
    host.kernel_release = linux
    made, there = plan(host), hypervisor(qemu_version=qemu)
    assert platform.stall_s(made, there) == (60 if stalls else 0)
    assert [(severity, "60 s" in text) for severity, text in found(platform.boot_stall, made, there)] == (
        [("warn", True)] if stalls else []
    )


def test_small_bars_delay_nothing():
    assert found(platform.boot_stall, plan(), hypervisor()) == []


def test_a_real_gpu_is_not_emulated_unless_asked_for():
    host = wide(46)
    there = hypervisor()
    del there.accelerators["kvm"]
    with raises(DomainError, "KVM", "accelerator: qemu"):
        plan(host, there)
    assert plan(host, there, accelerator="qemu").accelerator == "qemu"
    assert plan(lab(), there).accelerator == "qemu"  # the lab's GPUs are QEMU's own devices


def test_the_remedy_for_too_few_address_bits_works_under_emulation():
    there = hypervisor()
    del there.accelerators["kvm"]
    emulated: dict[str, Any] = {"accelerator": "qemu"}
    with pytest.raises(DomainError, match="set physical_address_bits: 46"):
        plan(wide(46, 512), there, **emulated)
    assert plan(wide(46, 512), there, **emulated, physical_address_bits="46").address_bits == 46
    for host in (wide(40, 512), wide(38, 512)):
        with raises(DomainError, "fewer devices"):
            plan(host, there, **emulated)
    with raises(DomainError, "fewer devices"):
        plan(wide(36), hypervisor())


@pytest.mark.parametrize(
    ("linux", "words"), [("6.12.0-55.el10", "may delay"), ("6.12.1", "GiB delay"), (None, "may delay")]
)
def test_a_kernel_with_changes_of_later_ones_may_delay_a_boot(linux, words):
    host = wide(46, 128)
    host.kernel_release = linux
    ((_severity, text),) = found(platform.boot_stall, plan(host), hypervisor(qemu_version=(10, 1, 0)))
    assert words in text


def test_huge_pages_that_kvm_splits_are_a_warning_with_the_risk_of_the_remedy():
    ((severity, text),) = found(platform.split_pages, plan(), hypervisor(nx_huge_pages=True))
    assert severity == "warn"
    for words in ("iTLB multihit", "nx_huge_pages", "kvm.nx_huge_pages=off", "stop the host"):
        assert words in text
    assert found(platform.split_pages, plan(), hypervisor()) == []
    assert found(platform.split_pages, plan(huge_page_mib=0), hypervisor(nx_huge_pages=True)) == []
    assert found(platform.split_pages, plan(accelerator="qemu"), hypervisor(nx_huge_pages=True)) == []


def test_a_plan_without_libvirt_warns_of_what_the_facts_show_only():
    host = wide(46)
    host.iommu = Iommu("intel", "identity", None, None, None)
    assert found(platform.of_facts, plan(host), host) == []
    host.iommu = Iommu("intel", "identity", False, 39, None)
    host.cpu.virtualization = None
    results = found(platform.of_facts, plan(host), host)
    assert {severity for severity, _text in results} == {"warn"}
    for words in ("does not remap interrupts", "translates 39 address bits", "no virtualization"):
        assert any(words in text for _severity, text in results)
    results = [str(item) for item in without_libvirt([plan(host)], host)]
    assert any("does not remap interrupts" in text for text in results)
    # hwloc's XML does not have the processors' flags.
    host.source, host.iommu = "hwloc", Iommu()
    assert found(platform.of_facts, plan(host), host) == []
