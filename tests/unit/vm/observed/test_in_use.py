# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Devices that a domain, a network of libvirt or a process has are not given to another virtual machine."""

from __future__ import annotations

from typing import Any

import pytest
from machines import hypervisor, lab, observed, plan, request

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.libvirt_devices import Lent
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.processes import OpenFile
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import ObservedDomain
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.in_use import reserve
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

GPU, VF, OTHER_VF, PF = "0000:13:00.0", "0000:15:10.0", "0000:15:10.2", "0000:15:00.0"
ONE: dict[str, Any] = {"vcpus": 2, "memory_mib": 1024, "numa_nodes": [0]}


def web(devices: str, running: bool = False, **changes: Any) -> ObservedDomain:
    """Return a domain of another program; if it runs, only the running domain has the devices."""
    xml = f"<domain><name>web</name><devices>{devices}</devices></domain>"
    without = "<domain><name>web</name><devices/></domain>"
    values = {"inactive_xml": without, "live_xml": xml} if running else {"inactive_xml": xml}
    return ObservedDomain(**{"name": "web", "uuid": "1", **values, **changes})


def interface(address: str) -> str:
    _domain, bus, slot = address.split(":")
    slot, function = slot.split(".")
    place = f"<address type='pci' domain='0x0000' bus='0x{bus}' slot='0x{slot}' function='0x{function}'/>"
    return f"<interface type='hostdev' managed='yes'><source>{place}</source></interface>"


@pytest.mark.parametrize("running", [False, True])
def test_a_vf_that_another_domain_has_as_an_interface_is_not_chosen(running):
    own = {"gpus": {"addresses": [GPU]}, "nics": {"per_gpu": 1}, **ONE}
    assert [item.address for item in plan(**own).chosen.nics] == [VF]
    there = hypervisor(domains={"web": web(interface(VF), running)})
    assert [item.address for item in plan(None, there, **own).chosen.nics] == [OTHER_VF]
    with pytest.raises(DomainError, match=f"{VF}.* web "):
        plan(None, there, **{**own, "nics": {"addresses": [VF]}})


def uses(address: str, there: Any, *opened: OpenFile) -> list[str]:
    """Return why the host needs the function."""
    host = lab()
    host.function(PF).interfaces["net"] = ["eno1"]
    host.function(VF).interfaces["net"] = ["eno1v0"]
    for function in host.functions:
        function.used_by_host = []
    reserve(host, there, list(opened))
    reserve(host, there, list(opened))
    return host.function(address).used_by_host


@pytest.mark.parametrize(
    ("lent", "vfs", "pf"),
    [
        (Lent(owners=["eno1"]), [VF, OTHER_VF], " virtual functions"),
        (Lent(devices=[VF]), [VF], None),
        (Lent(interfaces=["eno1v0"]), [VF], None),
        (Lent(owners=["eno9"], devices=["0000:99:00.0"]), [], None),
    ],
)
def test_a_network_keeps_what_it_lends_although_no_domain_runs(lent, vfs, pf):
    there = hypervisor(lent={"pool": lent})
    expected = {
        address: ["libvirt's network pool lends it to virtual machines"] * (address in vfs)
        for address in (VF, OTHER_VF)
    }
    assert {address: uses(address, there) for address in expected} == expected
    assert uses(PF, there) == (["libvirt's network pool lends its virtual functions to virtual machines"] if pf else [])


def test_a_physical_function_whose_vf_is_lent_is_not_given_away():
    host = lab()
    reserve(host, hypervisor(lent={"pool": Lent(devices=[VF])}), [])
    with pytest.raises(DomainError, match=f"{PF}.* {VF}.* network pool "):
        plan(host, gpus={}, nics={"addresses": [PF]}, **ONE)


@pytest.mark.parametrize("running", [False, True])
def test_the_function_of_an_interface_or_disk_that_a_domain_uses_as_a_whole_is_in_use(running):
    macvtap = "<interface type='direct'><source dev='eno1v0' mode='passthrough'/></interface>"
    assert uses(VF, hypervisor(domains={"web": web(macvtap, running)})) == ["virtual machine web uses its eno1v0"]
    host = lab()
    drive = next(item for item in host.functions if item.kind == "nic")
    for disk, names in (("nvme1n1", ["nvme1n1", "nvme1n1p2"]), ("sda", ["sda", "sda1"])):
        for name in names:
            drive.interfaces, drive.used_by_host = {"block": [disk]}, []
            source = f"<disk type='block'><source dev='/dev/{name}'/></disk>"
            reserve(host, hypervisor(domains={"web": web(source, running)}), [])
            assert drive.used_by_host == [f"virtual machine web uses its {name}"]
    drive.interfaces, drive.used_by_host = {"block": ["nvme1n1"]}, []
    reserve(host, hypervisor(domains={"web": web("<disk type='block'><source dev='/dev/nvme1n10'/></disk>")}), [])
    assert drive.used_by_host == []


def drives(paths: list[str], **changes: Any) -> list[str]:
    """Return which of three NVMe drives are in use if a domain that is shut off has these disks; the last has none."""
    host = lab()
    functions = [item for item in host.functions if item.kind == "nic"][:3]
    for number, function in enumerate(functions):
        function.kind, function.used_by_host = "nvme", []
        function.interfaces = {"block": [f"nvme{number}n1"]} if number < 2 else {}
    disks = "".join(f"<disk type='block'><source dev='{path}'/></disk>" for path in paths)
    disks = disks.replace("DRIVE", functions[2].address)
    reserve(host, hypervisor(domains={"db": web(disks, name="db")}, **changes), [])
    return [str(number) for number, function in enumerate(functions) if function.used_by_host]


@pytest.mark.parametrize(
    ("paths", "changes", "used"),
    [
        (["/dev/disk/by-id/nvme-A"], {"real_paths": {"/dev/disk/by-id/nvme-A": "/dev/nvme1n1"}}, "1"),
        (["/dev/disk/by-id/nvme-A-part1"], {"real_paths": {"/dev/disk/by-id/nvme-A-part1": "/dev/nvme0n1p1"}}, "0"),
        (["/srv/db"], {"real_paths": {"/srv/db": "/dev/nvme0n1"}}, "0"),
        (["/dev/ng1n1"], {}, "1"),
        (["/srv/nvme0n1", "/dev/mapper/vg-db"], {}, ""),
        # The drive has vfio-pci now, and so its links are not there.
        (["/dev/disk/by-path/pci-DRIVE-nvme-1"], {}, "2"),
        (["/dev/disk/by-id/nvme-A"], {}, "2"),
        ([], {"pools": {"db": ["/dev/nvme1n1"]}}, "1"),
        ([], {"pools": {"db": ["/dev/db"]}, "real_paths": {"/dev/db": "/dev/nvme0n1"}}, "0"),
    ],
)  # fmt: skip
def test_the_drive_of_a_disk_is_in_use_whatever_path_leads_to_it(paths, changes, used):
    assert "".join(drives(paths, **changes)) == used


def test_a_drive_that_a_domain_passes_through_is_not_behind_a_missing_link():
    host = lab()
    drive = host.function(PF)
    drive.kind, drive.used_by_host, drive.interfaces = "nvme", [], {}
    disk = "<disk type='block'><source dev='/dev/disk/by-id/nvme-A'/></disk>"
    passed = web(interface(PF), name="web")
    reserve(host, hypervisor(domains={"web": passed, "db": web(disk, name="db")}), [])
    assert drive.used_by_host == []


def test_a_device_that_a_guest_outside_libvirt_has_open_is_not_given_away():
    kata = OpenFile("/dev/vfio/devices/vfio0", (GPU,), 4711, "qemu", "kata")
    assert uses(GPU, hypervisor(), kata) == ["guest kata (process 4711) has /dev/vfio/devices/vfio0 open"]
    host = lab()
    reserve(host, hypervisor(), [kata])
    with pytest.raises(DomainError, match=f"{GPU}.*guest kata "):
        plan(host, gpus={"addresses": [GPU]}, nics={}, **ONE)
    with pytest.raises(DomainError, match="2"):
        plan(host, gpus={"count": 2}, nics={})


def test_a_domains_own_process_keeps_none_of_its_devices_from_it():
    """Its file opens the whole group, of which the domain may have one function."""
    have = plan()
    running = hypervisor(domains={have.name: observed(have, running=True)})
    own = OpenFile("/dev/vfio/12", (GPU, VF), 4711, "qemu", have.name)
    assert uses(GPU, running, own) == uses(VF, running, own) == []
    stopped = hypervisor(domains={have.name: observed(have)})
    assert uses(GPU, stopped, own) == [f"guest {have.name} (process 4711) has /dev/vfio/12 open"]
    host = lab()
    reserve(host, running, [own])
    again = plan_domains(host, parse_specs([request()]), running)[0]
    assert again.guest_addresses() == have.guest_addresses()
