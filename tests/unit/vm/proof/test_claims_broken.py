# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each fault fails the claims about it, and no others."""

from __future__ import annotations

import pytest
from claims_found import failed, function, other_path
from gpu_vm import GIB, evidence

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.claims import prove

# The fault, and the words of the claims that must fail; no other claims may fail.
BREAKS = {
    "no virtualization": (lambda e: setattr(e.host.cpu, "virtualization", None), ["virtualization extensions"]),
    "no IOMMU": (lambda e: setattr(e.host.iommu, "kind", None), ["describes an IOMMU"]),
    "no interrupt remapping": (lambda e: setattr(e.host.iommu, "interrupt_remapping", None), ["remaps interrupts"]),
    "IOMMU translates the host's DMA": (lambda e: setattr(e.host.iommu, "default_domain", "DMA"), ["iommu=pt"]),
    "ACS capability hidden": (
        lambda e: setattr(function(e.host, "0000:12:00.0"), "acs", None),
        ["switch port 0000:12:00.0 has the ACS capability"],
    ),
    "direct translated P2P off": (
        lambda e: setattr(function(e.host, "0000:12:01.0").acs, "control", 0x1D),
        ["switch port 0000:12:01.0: requests of the NIC"],
    ),
    "translation blocking on": (
        lambda e: setattr(function(e.host, "0000:12:01.0").acs, "control", 0x5F),
        ["switch port 0000:12:01.0: requests of the NIC"],
    ),
    "no SR-IOV": (
        lambda e: setattr(function(e.host, "0000:14:00.0"), "sriov", None),
        ["NIC 0000:14:00.0 has the SR-IOV capability", "NIC 0000:14:00.0 has its virtual functions"],
    ),
    "too few VFs": (
        lambda e: e.host_settings.virtual_functions["0000:14:00.0"].update(count=8),
        ["NIC 0000:14:00.0 has its virtual functions"],
    ),
    "VFs not read": (
        lambda e: setattr(e.host_settings, "virtual_functions", None),
        ["the host's NICs have their virtual functions"],
    ),
    "another mode of the switch": (
        lambda e: e.host_settings.virtual_functions["0000:84:00.0"]["eswitch_mode"].update(seen="switchdev"),
        ["the embedded switch of NIC 0000:84:00.0"],
    ),
    "the MAC of a VF is not told": (
        lambda e: e.host_settings.virtual_functions["0000:14:00.0"]["settings"][0].update(seen=None),
        ["0000:14:00.1 has its settings (VF 0 of 0000:14:00.0)"],
    ),
    "another link state of a VF": (
        lambda e: e.host_settings.virtual_functions["0000:84:00.0"]["settings"][1].update(seen="disable"),
        ["0000:84:00.1 has its settings (VF 0 of 0000:84:00.0)"],
    ),
    "firmware not read": (
        lambda e: e.nic_firmware.pop("0000:84:00.0"),
        [f"NIC 0000:84:00.0: {words}" for words in ("ATS is as", "more outst", "relaxed PCI", "selective")],
    ),
    "a host setting drifted": (
        lambda e: e.host_settings.differences.append("hugepages: node0 2 MiB"),
        ["every setting of the host"],
    ),
    "firmware differs": (
        lambda e: e.nic_firmware["0000:84:00.0"]["ATS_ENABLED"].update(seen="0"),
        ["NIC 0000:84:00.0: ATS is as"],
    ),
    "too few huge pages": (
        lambda e: setattr(e.host.numa_nodes[1].huge_pages[0], "total", 31),
        ["node 1 has its huge pages"],
    ),
    "huge page size unknown": (lambda e: e.host.numa_nodes[0].huge_pages.clear(), ["node 0 has its huge pages"]),
    "not bound": (
        lambda e: setattr(function(e.host, "0000:13:00.0"), "driver", "nvidia"),
        ["GPU 0000:13:00.0 is bound", "no other function of GPU 0000:13:00.0's"],
    ),
    "a driver may load at boot": (
        lambda e: e.host.kernel_arguments.append("module_blacklist=nouveau,nova_core,nvidiafb"),
        ["no driver of the host takes GPU 0000:13:00.0", "no driver of the host takes GPU 0000:83:00.0"],
    ),
    "another governor": (
        lambda e: e.host_settings.kernel_settings["governor"].update(seen="performance,powersave"),
        ["the frequency governor of the host's CPUs"],
    ),
    "NUMA balancing on": (
        lambda e: e.host_settings.kernel_settings["numa_balancing"].update(seen="1"),
        ["automatic NUMA balancing of the host"],
    ),
    "AVIC waits for a boot": (
        lambda e: e.host_settings.kernel_settings["avic"].update(seen="0"),
        ["AMD's CPUs (AVIC)"],
    ),
    "kernel settings not read": (
        lambda e: setattr(e.host_settings, "kernel_settings", None),
        ["governor", "to wake", "NUMA balancing", "KSM", "transparent huge pages", "AVIC"],
    ),
    "a unit of the host may use a pinned CPU": (
        lambda e: e.host_cpus["units"].update({"user.slice": "0-2,4-5"}),
        ["the host's processes stay off pinned CPUs"],
    ),
    "irqbalance with another list": (
        lambda e: e.host_cpus["irqbalance"].update(seen="2-3"),
        ["irqbalance leaves pinned CPUs alone"],
    ),
    "limits of the host's CPUs not read": (
        lambda e: setattr(e, "host_cpus", None),
        ["the host's processes stay off pinned CPUs", "irqbalance leaves pinned CPUs alone"],
    ),
    "no IOMMU group": (
        lambda e: setattr(function(e.host, "0000:13:00.0"), "iommu_group", None),
        ["IOMMU groups of 0000:14:00.1", "no other function of GPU 0000:13:00.0's"],
    ),
    "a foreign member in the group": (
        lambda e: setattr(function(e.host, "0000:14:00.0"), "iommu_group", 0x15),
        ["no other function of GPU 0000:13:00.0's"],
    ),
    "ATS off": (
        lambda e: setattr(function(e.host, "0000:13:00.0").ats, "enabled", False),
        ["ATS is enabled on GPU 0000:13:00.0"],
    ),
    "ATS hidden by firmware": (
        lambda e: setattr(function(e.host, "0000:14:00.1"), "ats", None),
        ["ATS is enabled on VF 0000:14:00.1"],
    ),
    "MaxReadReq of the host's GPU": (
        lambda e: setattr(function(e.host, "0000:13:00.0"), "max_read_request_bytes", 512),
        ["MaxReadReq of GPU 0000:13:00.0"],
    ),
    "MaxReadReq of a PF, which its VF follows": (
        lambda e: setattr(function(e.host, "0000:14:00.0"), "max_read_request_bytes", 512),
        ["MaxReadReq of NIC 0000:14:00.0, which VF 0000:14:00.1 follows"],
    ),
    "MaxReadReq in the guest": (
        lambda e: setattr(function(e.guest, "0000:23:00.0"), "max_read_request_bytes", 512),
        ["MaxReadReq of GPU 0000:13:00.0 in the guest"],
    ),
    "memory bound elsewhere": (
        lambda e: e.running.qemu_arguments.__setitem__(
            e.running.qemu_arguments.index("-object") + 1,
            e.running.qemu_arguments[e.running.qemu_arguments.index("-object") + 1].replace("[0]", "[0,1]"),
        ),
        ["memory of guest cell 0 is bound"],
    ),
    "pages on another node": (
        lambda e: e.running.memory[0].update(pages_by_node={"0": 31, "1": 1}),
        ["memory of guest cell 0 lies", "memory of guest cell 1 lies"],
    ),
    "pages of a foreign node": (
        lambda e: e.running.memory.append({"page_bytes": GIB, "policy": "default", "pages_by_node": {"2": 1}}),
        ["memory of guest cell 0 lies", "memory of guest cell 1 lies"],
    ),
    "small pages": (
        lambda e: e.running.memory[0].update(page_bytes=4096),
        ["memory of guest cell 0 lies"],
    ),
    "memory not locked": (
        lambda e: e.running.qemu_arguments.remove("mem-lock=on"),
        ["memory is locked"],
    ),
    "a vCPU elsewhere": (lambda e: e.running.pinning.update({3: [6, 7]}), ["virtual CPU 3 runs"]),
    "another definition": (
        lambda e: e.domain_differences.append("cpu/maxphysaddr: wanted passthrough"),
        ["libvirt has the domain"],
    ),
    "domain not compared": (lambda e: setattr(e, "domain_differences", None), ["libvirt has the domain"]),
    "emulator threads on a guest's CPU": (
        lambda e: setattr(e.running, "emulator_cpus", [0, 1, 2]),
        ["QEMU's other threads"],
    ),
    "a vCPU without thread": (lambda e: e.running.pinning.pop(3), ["virtual CPU 3 runs"]),
    "fewer address bits": (lambda e: setattr(e.guest.cpu, "physical_address_bits", 40), ["host-phys-bits"]),
    "a CPU in the wrong cell": (lambda e: e.guest.numa_nodes[0].cpus.append(9), ["guest NUMA node 0 has its CPUs"]),
    "a cell missing": (lambda e: e.guest.numa_nodes.pop(), ["guest NUMA node 1 has its CPUs"]),
    "another device": (
        lambda e: setattr(function(e.guest, "0000:23:00.0"), "device_id", 1),
        ["GPU 0000:13:00.0 is at 0000:23:00.0"],
    ),
    "guest NUMA node -1": (
        lambda e: setattr(function(e.guest, "0000:23:00.0"), "numa_node", None),
        ["GPU 0000:13:00.0 is on guest NUMA node 0"],
    ),
    "a BAR missing": (
        lambda e: function(e.guest, "0000:23:00.0").bars.pop(),
        ["GPU 0000:13:00.0 has all its memory windows"],
    ),
    "under another switch": (
        other_path,
        [
            "VF 0000:84:00.1 has its planned PCI path",
            "pairs of devices that are as near in the guest as on the host",
        ],
    ),
    "another NCCL setting": (
        lambda e: setattr(e, "nccl_settings", "NCCL_IB_PCI_RELAXED_ORDERING=0\n"),
        ["NCCL has its settings"],
    ),
    "no NCCL file": (lambda e: setattr(e, "nccl_settings", None), ["NCCL has its settings"]),
    "an empty NCCL file": (lambda e: setattr(e, "nccl_settings", ""), ["NCCL has its settings"]),
    "no NCCL topology file": (lambda e: setattr(e, "nccl_topology_file", None), ["NCCL topology file is the plan's"]),
    "an empty NCCL topology file": (
        lambda e: setattr(e, "nccl_topology_file", ""),
        ["NCCL topology file is the plan's"],
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_each_fault_fails_its_claims_and_no_others(name):
    breaks, words = BREAKS[name]
    one = evidence()
    breaks(one)
    names = failed(prove(one))
    assert len(names) == len(words), names
    for word in words:
        assert [name for name in names if word in name], f"{word!r} is not in {names}"
