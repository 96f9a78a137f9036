# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import copy
from dataclasses import replace

import gpu_vm
import pytest
from gpu_vm import GIB, evidence

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, ProofError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host, TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.qemu_command_line import qemu_options
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.claims import prove
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import (
    Evidence,
    Running,
    Settings,
    differences_of_domain,
    firmware_of_result,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import Interface


def failed(claims: list[Claim]) -> list[str]:
    return [claim.claim for claim in claims if claim.holds is False]


def found(claims: list[Claim], words: str) -> list[Claim]:
    some = [claim for claim in claims if words in claim.claim]
    assert some, f"no claim has {words!r}"
    return some


def test_a_server_with_everything_proves_every_layer():
    claims = prove(evidence())
    assert failed(claims) == []
    assert {claim.layer for claim in claims if claim.holds} == {
        "bios",
        "nic_firmware",
        "hypervisor",
        "guest_xml",
        "guest_os",
        "gpudirect",
    }
    # The one thing that this VM does not have is a guest IOMMU.
    assert [claim.claim for claim in claims if claim.holds is None] == ["the guest's IOMMU serves ATS (device IOTLB)"]


def test_the_same_evidence_gives_the_same_claims():
    assert prove(evidence()) == prove(evidence())


def function(topology: Host, address: str) -> Function:
    return topology.function(address)


def other_path(one: Evidence) -> None:
    """The VF of the second root complex hangs under the first one's switch."""
    moved = one.guest.function("0000:64:00.0")
    moved.parent, moved.root_complex = "0000:22:01.0", "pci0000:20"


# What is broken, and the words of the claims that must fail for it, and no others.
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
        ["governor", "to wake", "NUMA balancing", "KSM", "transparent huge pages", "AVIC", "irqbalance"],
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
def test_what_is_broken_fails_its_claims_and_no_others(name):
    breaks, words = BREAKS[name]
    one = evidence()
    breaks(one)
    names = failed(prove(one))
    assert len(names) == len(words), names
    for word in words:
        assert [name for name in names if word in name], f"{word!r} is not in {names}"


UNREAD = {"guest": None, "nccl_settings": None, "nccl_topology_file": None}


def test_the_difference_of_a_topology_file_is_shown():
    one = evidence()
    one.nccl_topology_file = one.nccl_topology.replace('numaid="0"', 'numaid="1"')
    (claim,) = found(prove(one), "NCCL topology file")
    assert claim.seen == [
        "--- the plan's",
        "+++ the guest's",
        '-  <cpu numaid="0"/>',
        '+  <cpu numaid="1"/>',
    ]


def test_fidelity_is_measured_and_names_the_pairs_that_differ():
    one = evidence()
    (claim,) = found(prove(one), "(fidelity)")
    assert (claim.wanted, claim.seen, claim.holds) == ("6 of 6", "6 of 6", True)
    other_path(one)
    (claim,) = found(prove(one), "(fidelity)")
    assert claim.seen == [
        "3 of 6",
        "GPU 0000:13:00.0 and VF 0000:84:00.1: SYS on the host, PIX in the guest",
        "GPU 0000:83:00.0 and VF 0000:84:00.1: PIX on the host, NODE in the guest",
        "VF 0000:14:00.1 and VF 0000:84:00.1: SYS on the host, PIX in the guest",
    ]
    one.guest.functions = [item for item in one.guest.functions if item.address != "0000:64:00.0"]
    (claim,) = found(prove(one), "(fidelity)")
    assert claim.seen[0] == "3 of 6"
    assert all("not there in the guest" in line for line in claim.seen[1:])


def test_a_guest_that_was_not_read_fails_every_claim_about_it_and_loses_none():
    whole, without = prove(evidence()), prove(replace(evidence(), **UNREAD))
    assert [claim.claim for claim in whole] == [claim.claim for claim in without]
    for before, after in zip(whole, without):
        if before.source.startswith("guest"):
            assert (after.holds, after.seen) == (False, None), after
        else:
            assert after == before


def test_a_domain_that_was_not_read_fails_every_claim_about_it_and_loses_none():
    whole, without = prove(evidence()), prove(replace(evidence(), running=Running()))
    assert [claim.claim for claim in whole] == [claim.claim for claim in without]
    for before, after in zip(whole, without):
        if "QEMU" in before.source and before.holds is not None:
            assert (after.holds, after.seen) == (False, None), after


def test_a_domain_that_does_not_run_is_not_taken_for_one_without_pages():
    one = evidence()
    one.running.memory = []
    assert all(claim.holds is False for claim in found(prove(one), "lies in huge pages"))


def test_a_host_without_connectx_has_no_firmware_claim_that_passes():
    one = evidence()
    for each in one.host.functions:
        if each.vendor_id == 0x15B3:
            each.vendor_id = 0x8086
    claims = [claim for claim in prove(one) if claim.layer == "nic_firmware"]
    assert len(claims) == 4
    assert {claim.holds for claim in claims} == {None}
    assert {"no NVIDIA ConnectX NIC" in claim.reason for claim in claims} == {True}


def test_a_port_that_has_no_acs_by_design_is_not_applicable():
    one = evidence()
    port = function(one.host, "0000:12:00.0")
    port.vendor_id, port.device_id, port.acs = 0x104C, 0x8233, None
    (claim,) = found(prove(one), "switch port 0000:12:00.0")
    assert claim.holds is None
    assert "XIO3130" in claim.reason


def test_a_device_without_ats_is_not_applicable_unless_firmware_can_hide_it():
    one = evidence()
    gpu = function(one.host, "0000:13:00.0")
    gpu.ats, gpu.config_bytes = None, 4096
    (claim,) = found(prove(one), "ATS is enabled on GPU 0000:13:00.0")
    assert claim.holds is None
    assert claim.reason == "10de:2330 has no ATS capability"


@pytest.mark.parametrize("size_bytes", [0, 64, 256])
def test_ats_that_could_not_be_read_is_not_taken_for_none(size_bytes):
    one = evidence()
    gpu = function(one.host, "0000:13:00.0")
    gpu.ats, gpu.config_bytes = None, size_bytes
    claims = prove(one)
    assert failed(claims) == ["ATS is enabled on GPU 0000:13:00.0"]
    (claim,) = found(claims, "ATS is enabled on GPU 0000:13:00.0")
    assert claim.seen is None
    assert claim.reason == f"only {size_bytes} bytes of its config space were read: read the host as root"


def test_a_driver_that_another_gpu_of_the_host_needs_is_not_kept_off():
    one = evidence()
    one.host_settings = replace(one.host_settings, modules_off=[], modules_that_may_load=["nvidia may load: a reason"])
    one.host.kernel_arguments.clear()
    (claim, _other) = found(prove(one), "no driver of the host takes")
    assert (claim.holds, claim.seen, claim.reason) == (None, [], "nvidia may load: a reason")
    # A binding that failed was not read, which is no reason.
    one.host_settings = replace(one.host_settings, modules_off=None)
    assert [claim.holds for claim in found(prove(one), "no driver of the host takes")] == [False, False]


def test_kernel_settings_that_are_left_alone_or_missing_are_not_applicable():
    one = evidence()
    one.host_settings.kernel_settings = {"governor": {"wanted": "performance", "not_applicable": "no cpufreq"}}
    (claim,) = found(prove(one), "frequency governor")
    assert (claim.holds, claim.reason) == (None, "no cpufreq")
    (claim,) = found(prove(one), "(KSM)")
    assert (claim.holds, claim.reason) == (None, "the inventory leaves it as it is (gpu_host_kernel_settings.ksm)")


def with_speed_settings():
    """The evidence of a guest with all settings for speed, as QEMU's arguments show them."""
    one = evidence()
    spec = one.planned.spec
    spec.memory_threads, spec.hpet, spec.kvm_dedicated, spec.rng, spec.rom_bar = 8, False, True, True, False
    spec.interfaces = [Interface(source="default", queues=4)]
    arguments = [
        text.replace('"prealloc":true', '"prealloc":true,"prealloc-threads":8') for text in one.running.qemu_arguments
    ]
    arguments = [text.replace('"driver":"vfio-pci"', '"driver":"vfio-pci","rombar":0') for text in arguments]
    card = f'{{"driver":"virtio-net-pci","mq":true,"vectors":10,"mac":"{spec.mac(0)}"}}'
    arguments += ["-machine", "pc-q35-7.2,hpet=off", "-cpu", "host,kvm-hint-dedicated=on"]
    arguments += ["-device", '{"driver":"virtio-rng-pci","rng":"objrng0"}', "-device", card]
    one.running.qemu_arguments = arguments
    return one


# What is in QEMU's arguments instead, and the claim that fails for it.
SLOWER = {
    '"prealloc-threads":8,"size"': ('"size"', "is allocated by several threads"),
    "hpet=off": ("smm=off", "has no HPET"),
    ",kvm-hint-dedicated=on": ("", "(kvm-hint-dedicated)"),
    "virtio-rng-pci": ("virtio-balloon-pci", "(virtio-rng)"),
    '"vectors":10': ('"vectors":4', "virtio interface 0 has its queues"),
    '"rombar":0': ('"rombar":1', "has no option ROM"),
}


def test_settings_for_speed_are_claimed_if_they_are_asked_for():
    claims = {claim.claim for claim in prove(with_speed_settings())} - {claim.claim for claim in prove(evidence())}
    assert len(claims) == 10  # two cells, four devices, one each of the others
    assert failed(prove(with_speed_settings())) == []


@pytest.mark.parametrize("there", SLOWER)
def test_a_setting_for_speed_that_qemu_does_not_have_fails(there):
    instead, words = SLOWER[there]
    one = with_speed_settings()
    assert any(there in text for text in one.running.qemu_arguments)
    one.running.qemu_arguments = [text.replace(there, instead) for text in one.running.qemu_arguments]
    names = failed(prove(one))
    assert names
    assert all(words in name for name in names)


def test_rhels_machines_have_48_address_bits_at_most():
    one = evidence()
    one.planned.machine = "pc-q35-rhel9.4.0"
    assert [claim.seen for claim in found(prove(one), "host-phys-bits") if claim.holds is False] == [52]
    one.guest.cpu.physical_address_bits = 48
    assert failed(prove(one)) == []


def test_a_reset_that_is_known_to_fail_is_named():
    one = evidence()
    one.host_settings.reset_failures["0000:13:00.0"] = "flr is known to fail"
    (claim,) = found(prove(one), "can be reset between guests")
    assert (claim.claim, claim.holds, claim.reason) == (
        "GPU 0000:13:00.0 can be reset between guests",
        None,
        "flr is known to fail",
    )


def test_a_bridge_that_could_not_be_read_is_a_port_that_fails():
    one = evidence()
    port = function(one.host, "0000:12:00.0")
    port.acs, port.port_type, port.config_bytes = None, None, 64
    claims = prove(one)
    assert failed(claims) == ["switch port 0000:12:00.0 has the ACS capability"]
    assert found(claims, "switch port 0000:12:00.0 has")[0].seen is None


def test_a_conventional_bridge_is_no_port():
    one = evidence()
    port = function(one.host, "0000:12:00.0")
    port.acs, port.port_type, port.config_bytes = None, None, 256
    assert not [claim for claim in prove(one) if "0000:12:00.0" in claim.claim]


def test_memory_windows_that_were_not_read_on_either_side_do_not_hold():
    one = evidence()
    function(one.host, "0000:13:00.0").bars = []
    function(one.guest, "0000:23:00.0").bars = []
    assert failed(prove(one)) == ["GPU 0000:13:00.0 has all its memory windows in the guest (BAR sizes)"]


def test_a_guest_with_one_device_has_no_pair_to_claim():
    one = evidence()
    one.planned.root.ports.pop()
    one.planned.root.ports[0].ports[0].ports[0].ports.pop()
    (claim,) = found(prove(one), "(fidelity)")
    assert (claim.holds, claim.reason) == (None, "vm1 has fewer than two devices, so no pair of them")


def test_a_domain_that_was_not_compared_is_not_as_planned():
    for key, kind in (("differences", "defined"), ("live_differences", "running")):
        assert differences_of_domain({**gpu_vm.domain(), key: None}) == [f"{kind}: it was not compared with its plan"]


def test_both_ports_of_a_nic_have_the_firmware_of_the_first():
    one = evidence()
    second = copy.deepcopy(function(one.host, "0000:14:00.0"))
    second.address, second.sriov = "0000:14:00.7", None
    one.host.functions.append(second)
    assert failed(prove(one)) == []
    assert not found(prove(one), "NIC 0000:14:00.0: ATS is as")[1:]


def test_a_read_only_register_is_not_applicable_only_with_the_tunings_word_for_it():
    one = evidence()
    function(one.host, "0000:13:00.0").max_read_request_bytes = 128
    assert failed(prove(one)) == ["MaxReadReq of GPU 0000:13:00.0"]
    result = gpu_vm.on_host()
    # What pci_tuning says of a register that it wrote and that kept its value.
    result["outcomes"]["pci_tuning"]["devices"]["0000:13:00.0"] = {
        "max_read_request_bytes": 128,
        "not_writable": ["max_read_request_bytes"],
    }
    one.host_settings = Settings.of_result(result)
    claim = found(prove(one), "MaxReadReq of GPU 0000:13:00.0")[0]
    assert (claim.holds, claim.wanted, claim.seen) == (None, "4096 B", "128 B")
    assert "read-only" in claim.reason


@pytest.mark.parametrize(
    ("on_hypervisor", "name"), [("0000:13:00.0", "GPU 0000:13:00.0"), ("0000:14:00.0", "VF 0000:14:00.1")]
)
def test_vfios_copy_of_a_read_only_register_is_no_proof(on_hypervisor, name):
    one = evidence()
    one.host_settings.read_only = [on_hypervisor]
    (claim,) = found(prove(one), f"MaxReadReq of {name} in the guest")
    assert (claim.holds, claim.seen) == (None, "4096 B")
    assert "VFIO's copy" in claim.reason
    # A guest that was not read is no excuse either.
    (claim,) = found(prove(replace(one, guest=None)), f"MaxReadReq of {name} in the guest")
    assert claim.holds is False


def test_another_read_request_that_is_asked_for_is_what_is_wanted():
    one = evidence()
    one.host_settings.max_read_request_bytes["0000:13:00.0"] = 2048
    assert failed(prove(one)) == ["MaxReadReq of GPU 0000:13:00.0"]
    function(one.host, "0000:13:00.0").max_read_request_bytes = 2048
    assert failed(prove(one)) == []


def test_tcg_has_no_address_bits_to_pass_through():
    one = evidence()
    one.running.accelerated = False
    one.guest.cpu.physical_address_bits = 40
    (claim,) = found(prove(one), "host-phys-bits")
    assert claim.holds is None
    assert "TCG" in claim.reason


def test_not_knowing_whether_it_is_tcg_excuses_nothing():
    one = evidence()
    one.running.accelerated = None
    one.guest.cpu.physical_address_bits = 40
    assert failed(prove(one)) == ["the guest has the host's physical address bits (host-phys-bits)"]


@pytest.mark.parametrize(
    ("argument", "holds"),
    [
        ('{"driver":"intel-iommu","id":"iommu0","device-iotlb":true}', True),
        ("intel-iommu,device-iotlb=on", True),
        ('{"driver":"intel-iommu","id":"iommu0"}', False),
        (None, False),
    ],
)
def test_a_planned_guest_iommu_serves_ats(argument, holds):
    one = evidence()
    one.planned.spec.guest_iommu = True
    if argument:
        one.running.qemu_arguments += ["-device", argument]
    (claim,) = found(prove(one), "guest's IOMMU")
    assert claim.holds is holds


def test_a_plan_for_another_host_is_one_clear_error():
    other = gpu_vm.host()
    other.functions = [item for item in other.functions if item.address != "0000:13:00.0"]
    with pytest.raises(TopologyError, match=r"no PCI function 0000:13:00\.0"):
        DomainPlan.from_dict(gpu_vm.plan(), other)


def test_host_settings_that_were_not_read_fail():
    assert failed(prove(replace(evidence(), host_settings=None))) == [
        "every setting of the host is as asked for, and comes back at every boot"
    ]


def test_what_the_inventory_leaves_alone_is_not_applicable():
    one = evidence()
    one.host_settings.acs_ports.remove("0000:12:01.0")
    one.nccl, one.nccl_topology = {}, ""
    for settings in (one.host_settings, one.guest_settings):
        settings.max_read_request_bytes.clear()
    spec, processors = one.planned.spec, one.planned.processors
    spec.lock_memory, spec.huge_page_mib, spec.strict_memory = False, 0, False
    one.planned.address_bits_mode, processors.kept_cpus = "off", []
    for cell in processors.cells:
        cell.cpus = []
    claims = prove(one)
    assert failed(claims) == []
    for words in (
        "port 0000:12:01.0: req",
        "MaxReadReq",
        "NCCL",
        "locked",
        "own host CPUs",
        "phys-bits",
        "huge pages of host",
        "bound to host",
    ):
        assert {claim.holds for claim in found(claims, words)} == {None}, words


def test_what_tuning_was_refused_fails_and_is_not_taken_for_left_alone():
    """Under kernel lockdown gpu_host_boot says what it could not write: the inventory asks for it all the same."""
    result = gpu_vm.on_host()
    port, gpu = "0000:12:01.0", "0000:13:00.0"
    result["failures"] = ["pci_tuning: kernel lockdown is on (integrity)"]
    devices = result["outcomes"]["pci_tuning"]["devices"]
    devices[port] = {"acs": ["source_validation"], "refused": {"acs": ["direct_translated"]}}
    devices[gpu] = {"max_read_request_bytes": 512, "refused": {"max_read_request_bytes": 4096}}
    one = replace(evidence(), host_settings=Settings.of_result(result))
    function(one.host, port).acs.control = 0x1D
    function(one.host, gpu).max_read_request_bytes = 512
    claims = prove(one)
    assert failed(claims) == [
        "every setting of the host is as asked for, and comes back at every boot",
        f"switch port {port}: requests of the NIC that the IOMMU has translated go straight (ACSCtl, inline, nic port)",
        f"MaxReadReq of GPU {gpu}",
    ]
    assert found(claims, "every setting of the host")[0].seen == ["pci_tuning: kernel lockdown is on (integrity)"]
    assert (found(claims, f"MaxReadReq of GPU {gpu}")[0].wanted, found(claims, f"of GPU {gpu}")[0].layer) == (
        "4096 B",
        "hypervisor",
    )


def test_what_failed_before_it_chose_devices_is_unknown_and_excuses_nothing():
    result = gpu_vm.on_host()
    result["failures"] = ["pci_tuning: 0000:13:00.0 is gone; read the host again"]
    result["outcomes"]["pci_tuning"] = {}
    one = replace(evidence(), host_settings=Settings.of_result(result))
    function(one.host, "0000:12:01.0").acs.control = 0x1D
    function(one.host, "0000:13:00.0").max_read_request_bytes = 512
    claims = prove(one)
    assert [claim.claim for claim in claims if claim.holds is None] == [
        "the guest's IOMMU serves ATS (device IOTLB)",
        "GPU 0000:13:00.0 and NIC 0000:14:00.1 reach each other directly, links of unknown rate",
    ]
    assert failed(claims) == [
        "every setting of the host is as asked for, and comes back at every boot",
        "switch port 0000:12:01.0: requests of the NIC that the IOMMU has translated go straight (ACSCtl, inline, nic "
        "port)",
        "MaxReadReq of GPU 0000:13:00.0",
    ]


def test_planned_address_bits_that_are_a_number_are_compared_with_it():
    one = evidence()
    one.planned.address_bits_mode, one.planned.address_bits = "emulate", 46
    assert failed(prove(one)) == ["the guest has its planned physical address bits"]
    one.guest.cpu.physical_address_bits = 46
    assert failed(prove(one)) == []


def test_firmware_that_waits_for_a_reboot_does_not_hold():
    result = gpu_vm.firmware()
    result["devices"]["0000:84:00.0"] = {
        **result["devices"]["0000:84:00.0"],
        "ATS_ENABLED": {"current": "False(0)", "next_boot": "True(1)"},
    }
    claims = prove(replace(evidence(), nic_firmware=firmware_of_result(result)))
    (claim,) = [claim for claim in claims if claim.holds is False]
    assert (claim.claim, claim.wanted, claim.seen) == (
        "NIC 0000:84:00.0: ATS is as the topology needs it (ATS_ENABLED)",
        "True(1)",
        "False(0)",
    )


def test_firmware_that_the_module_would_change_does_not_hold():
    result = gpu_vm.firmware()
    result["diff"]["after"] = {"0000:84:00.0 MAX_ACC_OUT_READ": "64"}
    claims = prove(replace(evidence(), nic_firmware=firmware_of_result(result)))
    assert failed(claims) == ["NIC 0000:84:00.0: more outstanding read bytes (MAX_ACC_OUT_READ)"]


@pytest.mark.parametrize("read", [Settings.of_result, firmware_of_result])
@pytest.mark.parametrize(
    "result", [{}, {"outcomes": 1}, {"diff": {"after": {}}}, {"devices": [], "diff": {"after": {}}}]
)
def test_a_result_of_something_else_is_refused(read, result):
    with pytest.raises(ProofError, match="not a result of"):
        read(result)


@pytest.mark.parametrize("missing", ["arguments", "accelerated", "memory", "pinning", "emulator_cpus"])
def test_half_a_process_is_refused(missing):
    process = gpu_vm.process()
    del process[missing]
    with pytest.raises(ProofError, match=missing):
        Running.of_process(process)


def test_a_domain_that_is_gone_stopped_or_otherwise_does_not_pass_for_the_planned_one():
    assert differences_of_domain(gpu_vm.domain()) == []
    assert differences_of_domain({**gpu_vm.domain(), "exists": False}) is None
    stopped = {**gpu_vm.domain(), "process": None, "state": "shutoff", "live_differences": None}
    assert differences_of_domain(stopped) == ["it does not run: shutoff"]
    other = [{"path": "cpu/maxphysaddr/@mode", "wanted": "passthrough", "have": "emulate"}]
    assert differences_of_domain({**gpu_vm.domain(), "live_differences": other}) == [
        "running: cpu/maxphysaddr/@mode: wanted passthrough, have emulate"
    ]
    without = gpu_vm.domain()
    del without["differences"]
    with pytest.raises(ProofError, match="not a domain that was compared"):
        differences_of_domain(without)


def test_proving_changes_nothing_that_was_read():
    one = evidence()
    before = copy.deepcopy(one)
    prove(one)
    assert one == before


def test_qemus_two_notations_read_the_same():
    assert qemu_options(["-object", '{"qom-type":"x","id":"a","prealloc":true,"host-nodes":[0,1],"size":5}']) == [
        ("object", {"qom-type": "x", "id": "a", "prealloc": "on", "host-nodes": "0,1", "size": "5"})
    ]
    assert qemu_options(["-cpu", "host,migratable=on,x,path=a,,b", "-S", "-overcommit", "mem-lock=off"]) == [
        ("cpu", {"model": "host", "migratable": "on", "x": "on", "path": "a,b"}),
        ("overcommit", {"mem-lock": "off"}),
    ]
    assert qemu_options(None) is None
