# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import re
from typing import Any

import pytest
from machines import GIB, MIB, hypervisor, lab, observed, plan, request
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Acs, Ats, Host, HugePages
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Accelerator, Hypervisor
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.checks import check, of_requests
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import (
    Finding,
    RefusedError,
    unplannable,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


def tuned() -> Host:
    """Return the lab with direct translated P2P enabled at every port that supports it."""
    host = lab()
    for function in host.functions:
        if function.acs:
            function.acs = Acs(function.acs.capability, function.acs.capability & 0x5D)
    return host


def run(
    plans: DomainPlan | list[DomainPlan],
    host: Host | None = None,
    there: Hypervisor | None = None,
    starting: bool = True,
    stopping: set[str] | None = None,
    paths_may_come: bool = False,
) -> list[Finding]:
    every = plans if isinstance(plans, list) else [plans]
    names = {item.name for item in every} if starting else set()
    return check(every, host or tuned(), there or hypervisor(), names, stopping or set(), paths_may_come)


def refused(message: str, *arguments: Any, **more: Any) -> None:
    """Check that exactly one kind of thing is refused, with the reason and the remedy."""
    with pytest.raises(RefusedError, match=f"1\\. virtual machine .*{message}") as caught:
        run(*arguments, **more)
    refusing = [item for item in caught.value.findings if item.severity == "refuse"]
    assert len({item.what.split()[0] for item in refusing}) == 1, refusing
    assert all(item.why and item.remedy for item in caught.value.findings)


def warned(message: str, *arguments: Any, **more: Any) -> None:
    found = run(*arguments, **more)
    assert [item.severity for item in found] == ["warn"], found
    assert re.search(message, str(found[0])), str(found[0])


def test_a_plan_without_problems_has_no_findings() -> None:
    assert run(plan()) == []


def test_a_gpu_count_on_a_host_with_several_models_is_a_warning() -> None:
    host = tuned()
    host.function("0000:83:00.0").device_id = 0x1044
    warned(
        r"^virtual machine gpu-vm: the GPUs of this host are of several models: 1 of 1af4:1043 \(0000:13:00\.0\), "
        r"1 of 1af4:1044 \(0000:83:00\.0\): gpus\.count takes those of one model; it gets 1 of 1af4:1043; ",
        plan(host, gpus={"count": 1}, nics={}, vcpus=2, memory_mib=1024),
        host,
    )
    one = plan(host, gpus={"addresses": ["0000:13:00.0"]}, nics={}, vcpus=2, memory_mib=1024)
    assert run(one, host) == []


def test_a_host_whose_architecture_is_not_known_is_refused() -> None:
    host = tuned()
    host.cpu.architecture = host.cpu.vendor = None
    with raises(RefusedError, "architecture", "x86_64", "host_topology_info"):
        run(plan(host), host)


def test_all_problems_are_reported_together() -> None:
    there = hypervisor(hugetlbfs_mib=[], networks={}, libvirt_version=(7, 0, 0))
    with pytest.raises(RefusedError) as caught:
        run([plan(), plan(name="other")], None, there)
    lines = str(caught.value).splitlines()
    assert lines[0] == "nothing was touched: 10 problems"
    assert [line.split(".")[0] for line in lines[1:]] == [str(number) for number in range(1, 11)]
    assert sum("physical_address_bits (maxphysaddr) needs libvirt 8.7.0" in line for line in lines) == 2
    assert sum("has no network default" in line for line in lines) == 2
    assert sum("no hugetlbfs is mounted" in line for line in lines) == 2
    assert sum("virtual machine other" in line for line in lines) == 6
    assert len(caught.value.findings) == 10


def test_missing_huge_pages_of_a_node_are_refused() -> None:
    host = lab()
    host.numa_nodes[1].huge_pages = [HugePages(GIB, 1, 0)]
    refused("needs 1 huge pages of 1024 MiB on NUMA node 1, which has 0 free: .*; reserve more", plan(), host)
    run(plan(), host, starting=False)


def test_huge_pages_of_an_unavailable_size_are_refused() -> None:
    refused(
        "needs 512 huge pages of 2 MiB on NUMA node 0, which has 0 free",
        plan(huge_page_mib=2),
        None,
        hypervisor(hugetlbfs_mib=[2]),
    )


def test_huge_pages_of_two_machines_are_added() -> None:
    one = request(name="a", gpus={"addresses": ["13:00.0"]}, nics={}, memory_mib=1024, vcpus=1)
    two = request(name="b", gpus={}, nics={"addresses": ["15:10.0"]}, memory_mib=1024, vcpus=1)
    plans = plan_domains(lab(), parse_specs([one, two]))
    refused(
        "needs 1 huge pages of 1024 MiB on NUMA node 0, which has 1 free, 1024 MiB of which go to .* before it", plans
    )


def test_missing_ordinary_memory_of_a_node_is_refused() -> None:
    host = lab()
    host.numa_nodes[0].memory_free_bytes = 1000 * MIB
    refused("needs 1024 MiB on NUMA node 0, which has 1000 MiB free", plan(huge_page_mib=0), host)
    run(plan(huge_page_mib=0, strict_memory=False), host)


def test_memory_of_a_machine_that_restarts_counts_as_free() -> None:
    host = lab()
    host.numa_nodes[0].huge_pages = [HugePages(GIB, 1, 0)]
    refused("has 0 free", plan(), host)
    run(plan(), host, stopping={"gpu-vm"})


def test_a_missing_hugetlbfs_mount_is_refused() -> None:
    refused("no hugetlbfs is mounted for pages of 1024 MiB", plan(), None, hypervisor(hugetlbfs_mib=[2]))


def test_devices_without_an_iommu_group_are_refused() -> None:
    host = lab()
    for function in host.functions:
        function.iommu_group = None
    refused("0000:13:00.0, .* are in no IOMMU group: the host's IOMMU is off", plan(host), host)


def test_a_new_member_of_an_iommu_group_is_refused() -> None:
    host = lab()
    made = plan(host)
    host.by_address()["0000:15:00.0"].iommu_group = host.by_address()["0000:15:10.0"].iommu_group
    refused(r"0000:15:10.0: its IOMMU group \d+ also holds 0000:15:00.0 \(driver igb\)", made, host)


def test_a_device_of_another_running_domain_is_refused() -> None:
    other = plan(name="other", gpus={"addresses": ["13:00.0"]}, nics={}, memory_mib=1024, vcpus=1)
    let_go = plan(name="other", gpus={}, nics={"addresses": ["15:10.2"]}, memory_mib=1024, vcpus=1)
    domain = observed(let_go, running=True)
    domain.live_xml = observed(other, running=True).live_xml
    there = hypervisor(domains={"other": domain})
    refused(
        "0000:13:00.0 is still in the running virtual machine other: .*; restart or stop that virtual machine first",
        plan(),
        None,
        there,
    )
    run(plan(), None, there, stopping={"other"})
    run(plan(), None, there, starting=False)


def test_missing_and_inactive_networks_are_refused() -> None:
    refused("libvirt has no network default: existing networks: lan", plan(), None, hypervisor(networks={"lan": True}))
    refused("network default is not active: .*; start it", plan(), None, hypervisor(networks={"default": False}))
    run(plan(interfaces=[{"type": "bridge", "source": "br0"}, {"type": "user"}]), None, hypervisor(networks={}))


def test_a_missing_bridge_is_refused() -> None:
    there = hypervisor(missing_paths=["/sys/class/net/br0/bridge"])
    refused("there is no bridge br0 on this host", plan(interfaces=[{"type": "bridge", "source": "br0"}]), None, there)


def test_missing_files_are_refused() -> None:
    there = hypervisor(missing_paths=["/var/lib/libvirt/images/gpu-vm.qcow2"])
    refused("/var/lib/libvirt/images/gpu-vm.qcow2 does not exist on this host", plan(), None, there)
    run(plan(), None, there, paths_may_come=True)
    overlay = plan(disks=[{"path": "/var/lib/libvirt/images/gpu-vm.qcow2", "base": "/base.qcow2"}])
    run(overlay, None, there)
    refused("/base.qcow2 does not exist", overlay, None, hypervisor(missing_paths=["/base.qcow2"]))


def test_missing_firmware_is_refused() -> None:
    bios = Accelerator(288, ["bios"], "pc-q35-7.2", {"pc-q35-7.2": 288})
    there = hypervisor(accelerators={"kvm": bios})
    refused("firmware efi is not available on this host: .*; install OVMF", plan(), None, there)
    run(plan(firmware="bios"), None, there)


def test_a_libvirt_that_is_too_old_is_refused() -> None:
    old = hypervisor(libvirt_version=(8, 6, 0))
    refused(r"physical_address_bits \(maxphysaddr\) needs libvirt 8.7.0, this host has 8.6.0", plan(), None, old)
    run(plan(physical_address_bits="off"), None, old)


@pytest.mark.parametrize(
    ("changes", "libvirt", "qemu", "message"),
    [
        ({}, (8, 6, 9), (7, 2, 0), r"maxphysaddr\) needs libvirt 8.7.0, this host has 8.6.9"),
        (
            {"mirror_topology": False},
            (9, 0, 0),
            (4, 0, 9),
            r"topology with dies\) needs QEMU 4.1.0, this host has 4.0.9",
        ),
        ({"physical_address_bits": "off"}, (7, 1, 9), (7, 2, 0), "firmware efi .* needs libvirt 7.2.0"),
        (
            {"physical_address_bits": "off", "firmware": "bios", "accelerator": "qemu"},
            (7, 0, 9),
            (7, 2, 0),
            "cpu mode maximum.* needs libvirt 7.1.0",
        ),
        (
            {"physical_address_bits": "off", "firmware": "bios"},
            (6, 4, 9),
            (7, 2, 0),
            "migratable.* needs libvirt 6.5.0",
        ),
    ],
)
def test_a_feature_that_libvirt_or_qemu_lacks_is_refused(
    changes: dict[str, Any], libvirt: tuple, qemu: tuple, message: str
) -> None:
    refused(message, plan(**changes), None, hypervisor(libvirt_version=libvirt, qemu_version=qemu))


def test_all_features_that_an_old_host_lacks_are_reported() -> None:
    with pytest.raises(RefusedError) as caught:
        run(plan(guest_iommu=True), None, hypervisor(libvirt_version=(1, 3, 3), qemu_version=(2, 5, 0)))
    text = str(caught.value)
    for words in (
        "aw_bits, device IOTLB) needs libvirt 6.5.0",
        "aw_bits, device IOTLB) needs QEMU 2.9.0",
        "cell distances) needs libvirt 3.10.0",
        "cell distances) needs QEMU 2.10.0",
        "switch ports without hot plug) needs libvirt 6.3.0",
        "switch ports without hot plug) needs QEMU 5.0.0",
        "maxphysaddr) needs QEMU 2.7.0",
    ):
        assert words in text
    flat = plan(mirror_topology=False)
    with pytest.raises(RefusedError) as caught:
        run(flat, None, hypervisor(libvirt_version=(1, 3, 3), qemu_version=(2, 5, 0)))
    assert "hot plug" not in str(caught.value)


def test_a_device_that_the_host_began_to_use_is_refused() -> None:
    host = lab()
    made = plan(host)
    host.by_address()["0000:14:00.0"].used_by_host = ["carries the default route"]
    refused("0000:14:00.0 is in use by the host: carries the default route; free it on the host", made, host)


def test_the_reason_names_the_port_without_acs() -> None:
    host = lab()
    made = plan(host)
    host.by_address()["0000:15:00.0"].iommu_group = host.by_address()["0000:13:00.0"].iommu_group
    with pytest.raises(RefusedError) as caught:
        run(made, host)
    finding = caught.value.findings[0]
    assert "not viable (no ACS, which would split the group: port 0000:12:00.0)" in finding.why
    assert finding.remedy.startswith("assign that device to the same virtual machine")


def test_two_virtual_machines_in_one_group_are_refused() -> None:
    host = lab()
    one = plan(host, name="a", gpus={"addresses": ["13:00.0"]}, nics={}, memory_mib=1024, vcpus=1)
    two = plan(host, name="b", gpus={}, nics={"addresses": ["85:10.0"]}, memory_mib=1024, vcpus=1)
    for function in one.chosen.all() + two.chosen.all():
        function.iommu_group = 77
    refused("its IOMMU group 77 also holds .*, which belongs to virtual machine", [one, two], host)


def test_weakened_acs_between_two_virtual_machines_is_refused() -> None:
    host = lab()
    port = host.by_address()["0000:10:00.0"]
    port.acs = Acs(0x5F, 0x5D)
    one = plan(host, name="a", gpus={"addresses": ["13:00.0"]}, nics={}, memory_mib=1024, vcpus=1, huge_page_mib=0)
    two = plan(host, name="b", gpus={}, nics={"addresses": ["14:00.0"]}, memory_mib=1024, vcpus=1, huge_page_mib=0)
    for at, function in enumerate(one.chosen.all() + two.chosen.all()):
        function.iommu_group = 70 + at
    run([one, two], host)
    port.acs = Acs(0x5F, 0x51)
    message = r"ACS of port 0000:10:00.0 above GPU 0000:13:00.0 is weakened \(ACSCtl 0x51, without 0x0c\): devices of"
    refused(message, [one, two], host)
    run([one], host)  # allowed if it is alone on the switch
    # libvirt has the other machine, and the request does not list it.
    refused(message, [one], host, hypervisor(domains={"b": observed(two)}))


def test_ats_without_effect_is_a_warning() -> None:
    host = tuned()
    for function in host.functions:
        function.ats = None
    warned("ats has no effect: none of its devices has the ATS capability", plan(host), host)
    assert run(plan(host, ats=False), host) == []
    host.by_address()["0000:13:00.0"].ats = Ats(True, 0)
    assert run(plan(host), host) == []
    # The kernel's default is sufficient for a root port; the port of a NIC beside a GPU must let translated requests
    # pass.
    host.by_address()["0000:10:00.0"].acs = Acs(0x5F, 0x1D)
    assert run(plan(host), host) == []
    host.by_address()["0000:14:00.0"].ats = Ats(True, 0)
    host.by_address()["0000:12:01.0"].acs = Acs(0x5F, 0x1D)
    warned("ats has no effect on peer-to-peer traffic through port 0000:12:01.0 above NIC", plan(host), host)
    host.by_address()["0000:12:01.0"].acs = Acs(0x5F, 0x5D)
    assert run(plan(host), host) == []


def test_unknown_address_bits_are_a_warning() -> None:
    host = tuned()
    host.cpu.physical_address_bits = None
    warned("physical address bits are not known: whether a window of 32 GiB", plan(host), host)


def test_strict_memory_above_that_of_a_node_is_refused_even_if_nothing_starts() -> None:
    host = lab()
    host.numa_nodes[1].memory_bytes = 1023 * MIB
    refused("strict_memory binds 1024 MiB to NUMA node 1, which has 1023 MiB", plan(host), host, starting=False)
    run(plan(host, strict_memory=False), host, starting=False)


def test_an_error_of_the_planner_is_a_finding() -> None:
    with pytest.raises(DomainError) as caught:
        plan(physical_address_bits="46")
    finding = unplannable(caught.value)
    assert (finding.domain, finding.why) == ("gpu-vm", Mentions("physical_address_bits 46", "40"))
    assert finding.remedy == Mentions("auto")
    with pytest.raises(DomainError) as caught:
        plan(gpus={"count": 3})
    finding = unplannable(caught.value)
    assert (finding.domain, finding.why) == ("gpu-vm", Mentions("3 GPUs", "2"))
    held = hypervisor(
        domains={
            "other": observed(plan(name="other", gpus={"addresses": ["13:00.0"]}, nics={}, vcpus=1, memory_mib=1024))
        }
    )
    with pytest.raises(DomainError) as caught:
        plan(hypervisor=held)
    finding = unplannable(caught.value)
    assert (finding.why, finding.remedy) == (Mentions("other", "another device"), Mentions("fewer"))
    finding = unplannable(DomainError("no NUMA node: of two; each lacks CPUs"))
    assert (finding.domain, finding.why) == ("", "no NUMA node: of two; each lacks CPUs")
    assert finding.remedy
    requested = of_requests(
        parse_specs([request()]), hypervisor(networks={}, missing_paths=["/var/lib/libvirt/images/gpu-vm.qcow2"]), False
    )
    assert [item.what.split()[0] for item in requested] == ["libvirt", "/var/lib/libvirt/images/gpu-vm.qcow2"]
