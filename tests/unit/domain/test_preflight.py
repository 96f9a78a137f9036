# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from typing import Any

import pytest
from machines import GIB, MIB, hypervisor, lab, observed, plan, wish

from ansible_collections.sailloft.fleet.plugins.module_utils.domain.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.hypervisor import Accelerator, Hypervisor
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.plan import DomainPlan, plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.preflight import check
from ansible_collections.sailloft.fleet.plugins.module_utils.domain.spec import parse_specs
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import Host, HugePages


def run(
    plans: DomainPlan | list[DomainPlan],
    host: Host | None = None,
    there: Hypervisor | None = None,
    starting: bool = True,
    stopping: set[str] | None = None,
    paths_may_come: bool = False,
) -> None:
    every = plans if isinstance(plans, list) else [plans]
    names = {item.name for item in every} if starting else set()
    check(every, host or lab(), there or hypervisor(), names, stopping or set(), paths_may_come)


def refused(message: str, *arguments: Any, **more: Any) -> None:
    with pytest.raises(DomainError, match=f"virtual machine .*{message}"):
        run(*arguments, **more)


def test_all_well() -> None:
    run(plan())


def test_huge_pages_that_a_node_has_not() -> None:
    host = lab()
    host.numa_nodes[1].huge_pages = [HugePages(GIB, 1, 0)]
    refused("needs 1 huge pages of 1024 MiB on NUMA node 1, which has 0 free; reserve more", plan(), host)
    run(plan(), host, starting=False)


def test_huge_pages_of_a_size_that_there_is_not() -> None:
    refused(
        "needs 64 huge pages of 16 MiB on NUMA node 0, which has 0 free",
        plan(huge_page_mib=16),
        None,
        hypervisor(hugetlbfs_mib=[16]),
    )


def test_two_at_once_count_together() -> None:
    one = wish(name="a", gpus={"addresses": ["13:00.0"]}, nics={}, memory_mib=1024, vcpus=1)
    two = wish(name="b", gpus={}, nics={"addresses": ["15:10.0"]}, memory_mib=1024, vcpus=1)
    plans = plan_domains(lab(), parse_specs([one, two]))
    refused("needs 1 huge pages of 1024 MiB on NUMA node 0, which has 1 free, 1024 MiB of it go to .* before it", plans)


def test_ordinary_memory_that_a_node_has_not() -> None:
    host = lab()
    host.numa_nodes[0].memory_free_bytes = 1000 * MIB
    refused("needs 1024 MiB on NUMA node 0, which has 1000 MiB free", plan(huge_page_mib=0), host)
    run(plan(huge_page_mib=0, strict_memory=False), host)


def test_a_restart_has_its_own_memory_back() -> None:
    host = lab()
    host.numa_nodes[0].huge_pages = [HugePages(GIB, 1, 0)]
    refused("has 0 free", plan(), host)
    run(plan(), host, stopping={"gpu-vm"})


def test_no_hugetlbfs() -> None:
    refused("no hugetlbfs is mounted for pages of 1024 MiB", plan(), None, hypervisor(hugetlbfs_mib=[2]))


def test_no_iommu() -> None:
    host = lab()
    for function in host.functions:
        function.iommu_group = None
    refused("0000:13:00.0 is in no IOMMU group: the host's IOMMU is off", plan(host), host)


def test_a_foreign_member_that_came_since() -> None:
    host = lab()
    made = plan(host)
    host.by_address()["0000:15:00.0"].iommu_group = host.by_address()["0000:15:10.0"].iommu_group
    refused(r"0000:15:10.0: its IOMMU group \d+ also holds 0000:15:00.0 \(driver igb\)", made, host)


def test_a_device_in_a_domain_that_still_runs_with_it() -> None:
    other = plan(name="other", gpus={"addresses": ["13:00.0"]}, nics={}, memory_mib=1024, vcpus=1)
    let_go = plan(name="other", gpus={}, nics={"addresses": ["15:10.2"]}, memory_mib=1024, vcpus=1)
    domain = observed(let_go, running=True)
    domain.live_xml = observed(other, running=True).live_xml
    there = hypervisor(domains={"other": domain})
    refused(
        "0000:13:00.0 is still in the running virtual machine other; restart or stop that first", plan(), None, there
    )
    run(plan(), None, there, stopping={"other"})
    run(plan(), None, there, starting=False)


def test_networks() -> None:
    refused("libvirt has no network default; there are lan", plan(), None, hypervisor(networks={"lan": True}))
    refused("network default is not active; start it", plan(), None, hypervisor(networks={"default": False}))
    run(plan(interfaces=[{"type": "bridge", "source": "br0"}, {"type": "user"}]), None, hypervisor(networks={}))


def test_files_that_are_not_there() -> None:
    there = hypervisor(missing_paths=["/var/lib/libvirt/images/gpu-vm.qcow2"])
    refused("/var/lib/libvirt/images/gpu-vm.qcow2 does not exist on this host", plan(), None, there)
    run(plan(), None, there, paths_may_come=True)
    overlay = plan(disks=[{"path": "/var/lib/libvirt/images/gpu-vm.qcow2", "base": "/base.qcow2"}])
    run(overlay, None, there)
    refused("/base.qcow2 does not exist", overlay, None, hypervisor(missing_paths=["/base.qcow2"]))


def test_firmware_that_is_not_installed() -> None:
    bios = Accelerator(288, ["bios"], "pc-q35-7.2")
    there = hypervisor(accelerators={"kvm": bios})
    refused("firmware efi is not to be had on this host; install OVMF", plan(), None, there)
    run(plan(firmware="bios"), None, there)


def test_a_libvirt_that_is_too_old() -> None:
    old = hypervisor(libvirt_version=(8, 6, 0))
    refused(r"physical_address_bits \(maxphysaddr\) needs libvirt 8.7.0, this host has 8.6.0", plan(), None, old)
    run(plan(physical_address_bits="off"), None, old)


def test_the_accelerator() -> None:
    qemu = Accelerator(288, ["bios", "efi"], "pc-q35-7.2")
    emulating = hypervisor(accelerators={"qemu": qemu})
    assert plan(hypervisor=emulating).accelerator == "qemu"
    assert plan(hypervisor=emulating).address_bits_mode == "off"
    assert plan(hypervisor=hypervisor()).accelerator == "kvm"
    with pytest.raises(DomainError, match="accelerator kvm is not to be had: libvirt on this host offers qemu; "):
        plan(hypervisor=emulating, accelerator="kvm")
    with pytest.raises(DomainError, match="physical_address_bits passthrough needs KVM, and this host runs guests by"):
        plan(hypervisor=emulating, physical_address_bits="passthrough")
    with pytest.raises(DomainError, match="physical_address_bits 46 is more than the host's 40"):
        plan(physical_address_bits="46")
    with pytest.raises(DomainError, match="physical_address_bits 46 is more than the host's 40"):
        plan(physical_address_bits="46", accelerator="qemu")
