# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Claims about the host's and QEMU's settings, and about what tuning left alone or could not write."""

from __future__ import annotations

from dataclasses import replace

import gpu_vm
import pytest
from claims_found import failed, found, function
from gpu_vm import evidence

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Bar
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.claims import prove
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import BootCheck
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import Interface


def test_the_driver_claim_is_not_applicable_if_the_host_needs_the_driver():
    one = evidence()
    one.host_settings = replace(one.host_settings, modules_off=[], modules_that_may_load=["nvidia may load: a reason"])
    one.host.kernel_arguments.clear()
    (claim, _other) = found(prove(one), "no driver of the host takes")
    assert (claim.holds, claim.seen, claim.reason) == (None, [], "nvidia may load: a reason")
    # If the binding failed, the modules were not read, which is no reason.
    one.host_settings = replace(one.host_settings, modules_off=None)
    assert [claim.holds for claim in found(prove(one), "no driver of the host takes")] == [False, False]


def test_kernel_settings_that_are_unset_or_unsupported_are_not_applicable():
    one = evidence()
    one.host_settings.kernel_settings = {"governor": {"wanted": "performance", "not_applicable": "no cpufreq"}}
    (claim,) = found(prove(one), "frequency governor")
    assert (claim.holds, claim.reason) == (None, "no cpufreq")
    (claim,) = found(prove(one), "(KSM)")
    assert (claim.holds, claim.reason) == (None, "the inventory leaves it as it is (gpu_host_kernel_settings.ksm)")


def with_speed_settings():
    """Return the evidence of a guest with all settings for speed, as QEMU's arguments show them."""
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


# The replacement in QEMU's arguments, and the claim that fails because of it.
SLOWER = {
    '"prealloc-threads":8,"size"': ('"size"', "is allocated by several threads"),
    "hpet=off": ("smm=off", "has no HPET"),
    ",kvm-hint-dedicated=on": ("", "(kvm-hint-dedicated)"),
    "virtio-rng-pci": ("virtio-balloon-pci", "(virtio-rng)"),
    '"vectors":10': ('"vectors":4', "virtio interface 0 has its queues"),
    '"rombar":0': ('"rombar":1', "has no option ROM"),
}


def test_requested_speed_settings_have_claims():
    claims = {claim.claim for claim in prove(with_speed_settings())} - {claim.claim for claim in prove(evidence())}
    assert len(claims) == 10  # two for cells, four for devices, and one each for the others
    assert failed(prove(with_speed_settings())) == []


@pytest.mark.parametrize("there", SLOWER)
def test_a_speed_setting_that_qemu_lacks_fails_its_claim(there):
    instead, words = SLOWER[there]
    one = with_speed_settings()
    assert any(there in text for text in one.running.qemu_arguments)
    one.running.qemu_arguments = [text.replace(there, instead) for text in one.running.qemu_arguments]
    names = failed(prove(one))
    assert names
    assert all(words in name for name in names)


@pytest.mark.parametrize("arguments", [[], ["-overcommit", "cpu-pm=on"], ["-overcommit", "mem-lock=off"]])
def test_memory_that_qemu_does_not_lock_was_read_as_not_locked(arguments):
    one = evidence()
    one.running.qemu_arguments = arguments
    (claim,) = found(prove(one), "memory is locked")
    assert (claim.seen, claim.holds) == ("off", False)


def test_rhel_machine_types_have_at_most_48_address_bits():
    one = evidence()
    one.planned.machine = "pc-q35-rhel9.4.0"
    assert [claim.seen for claim in found(prove(one), "host-phys-bits") if claim.holds is False] == [52]
    one.guest.cpu.physical_address_bits = 48
    assert failed(prove(one)) == []


def test_a_reset_that_is_known_to_fail_is_not_applicable_with_a_reason():
    one = evidence()
    one.host_settings.reset_failures["0000:13:00.0"] = "flr is known to fail"
    (claim,) = found(prove(one), "can be reset between guests")
    assert (claim.claim, claim.holds, claim.reason) == (
        "GPU 0000:13:00.0 can be reset between guests",
        None,
        "flr is known to fail",
    )


def test_a_requested_max_read_request_is_the_wanted_value():
    one = evidence()
    one.host_settings.max_read_request_bytes["0000:13:00.0"] = 2048
    assert failed(prove(one)) == ["MaxReadReq of GPU 0000:13:00.0"]
    function(one.host, "0000:13:00.0").max_read_request_bytes = 2048
    assert failed(prove(one)) == []


def test_the_address_bits_claim_is_not_applicable_under_tcg():
    one = evidence()
    one.running.accelerated = False
    one.guest.cpu.physical_address_bits = 40
    (claim,) = found(prove(one), "host-phys-bits")
    assert claim.holds is None
    assert "TCG" in claim.reason


def test_the_address_bits_claim_fails_if_the_accelerator_is_unknown():
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
def test_a_planned_guest_iommu_must_have_a_device_iotlb(argument, holds):
    one = evidence()
    one.planned.spec.guest_iommu = True
    if argument:
        one.running.qemu_arguments += ["-device", argument]
    (claim,) = found(prove(one), "guest's IOMMU")
    assert claim.holds is holds


def test_host_settings_that_were_not_read_fail():
    assert failed(prove(replace(evidence(), host_settings=None))) == [
        "every setting of the host is as requested, and is restored at every boot"
    ]


def test_claims_about_unset_settings_are_not_applicable():
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


def test_settings_that_lockdown_refused_fail_their_claims():
    """Kernel lockdown prevents writes that the inventory requests; gpu_host_boot reports them."""
    result = gpu_vm.on_host()
    port, gpu = "0000:12:01.0", "0000:13:00.0"
    result["failures"] = ["pci_tuning: kernel lockdown is on (integrity)"]
    devices = result["outcomes"]["pci_tuning"]["devices"]
    devices[port] = {"acs": ["source_validation"], "refused": {"acs": ["direct_translated"]}}
    devices[gpu] = {"max_read_request_bytes": 512, "refused": {"max_read_request_bytes": 4096}}
    one = replace(evidence(), host_settings=BootCheck.of_result(result))
    function(one.host, port).acs.control = 0x1D
    function(one.host, gpu).max_read_request_bytes = 512
    claims = prove(one)
    assert failed(claims) == [
        "every setting of the host is as requested, and is restored at every boot",
        f"switch port {port}: requests of the NIC that the IOMMU has translated go straight (ACSCtl, inline, nic port)",
        f"MaxReadReq of GPU {gpu}",
    ]
    assert found(claims, "every setting of the host")[0].seen == ["pci_tuning: kernel lockdown is on (integrity)"]
    assert (found(claims, f"MaxReadReq of GPU {gpu}")[0].wanted, found(claims, f"of GPU {gpu}")[0].layer) == (
        "4096 B",
        "hypervisor",
    )


def test_claims_fail_if_tuning_failed_before_it_chose_devices():
    result = gpu_vm.on_host()
    result["failures"] = ["pci_tuning: 0000:13:00.0 is gone; read the host again"]
    result["outcomes"]["pci_tuning"] = {}
    one = replace(evidence(), host_settings=BootCheck.of_result(result))
    function(one.host, "0000:12:01.0").acs.control = 0x1D
    function(one.host, "0000:13:00.0").max_read_request_bytes = 512
    claims = prove(one)
    assert [claim.claim for claim in claims if claim.holds is None] == [
        "the guest's IOMMU serves ATS (device IOTLB)",
        "GPU 0000:13:00.0 has PCIe AtomicOps in the guest",
        "GPU 0000:83:00.0 has PCIe AtomicOps in the guest",
        "GPU 0000:13:00.0 and NIC 0000:14:00.1 reach each other directly, links of unknown rate",
    ]
    assert failed(claims) == [
        "every setting of the host is as requested, and is restored at every boot",
        "switch port 0000:12:01.0: requests of the NIC that the IOMMU has translated go straight (ACSCtl, inline, nic "
        "port)",
        "MaxReadReq of GPU 0000:13:00.0",
    ]


def test_a_planned_number_of_address_bits_is_compared_with_the_guests():
    one = evidence()
    one.planned.address_bits_mode, one.planned.address_bits = "emulate", 46
    assert failed(prove(one)) == ["the guest has its planned physical address bits"]
    one.guest.cpu.physical_address_bits = 46
    assert failed(prove(one)) == []


def test_a_nic_that_the_host_lacks_has_no_virtual_functions():
    one = evidence()
    one.host_settings.virtual_functions["0000:99:00.0"] = {"count": 2}
    (claim,) = found(prove(one), "NIC 0000:99:00.0 has its virtual functions")
    assert (claim.wanted, claim.seen, claim.holds) == (2, None, False)


GUID, GID = "0200:0000:0000:0001\n", "fe80:0000:0000:0000:0200:0000:0000:0002\n"


@pytest.mark.parametrize(
    ("node_guid", "gid", "holds"), [(GUID, GID, True), (GUID, f"{GID[:-2]}3\n", False), (None, None, False)]
)
def test_the_guids_of_a_vf_are_those_of_its_driver_in_the_guest(node_guid, gid, holds):
    one = evidence()
    assert [claim for claim in prove(one) if "GUIDs in the guest" in claim.claim] == []
    device = next(passed for passed in one.planned.passed() if passed.address == "0000:14:00.1")
    wanted = {"node_guid": "02:00:00:00:00:00:00:01", "port_guid": "02:00:00:00:00:00:00:02"}
    one.host_settings.virtual_functions["0000:14:00.0"]["settings"] = [
        {"vf": 0, "name": name, "wanted": value, "seen": value} for name, value in wanted.items()
    ]
    (claim,) = found(prove(one), "has its GUIDs in the guest")
    assert (claim.seen, claim.holds) == (None, False)
    function(one.guest, device.guest_address).interfaces["rdma"] = ["mlx5_3"]
    files = {"node_guid": node_guid, "ports/1/gids/0": gid}
    one.guest_files = {f"/sys/class/infiniband/mlx5_3/{name}": text for name, text in files.items() if text}
    (claim,) = found(prove(one), "has its GUIDs in the guest")
    assert claim.holds is holds


def test_memory_windows_are_the_six_bars_of_memory():
    one = evidence()
    bars = [Bar(5, 1 << 20, "memory", 32, False), Bar(6, 1 << 20, "memory", 32, False), Bar(4, 32, "io", 32, False)]
    for where, address in ((one.host, "0000:13:00.0"), (one.guest, "0000:23:00.0")):
        function(where, address).bars = [*bars]
    (claim,) = found(prove(one), "GPU 0000:13:00.0 has all its memory windows")
    assert claim.wanted == claim.seen == {"BAR 5": "1 MiB"}


def test_another_guest_that_may_run_on_pinned_cpus_fails_the_claim():
    one = evidence()
    before = failed(prove(one))
    one.host_cpus["guests"] = {"db": "2-3"}
    (claim,) = [item for item in prove(one) if "stay off pinned CPUs" in item.claim]
    assert claim.holds is False
    assert "db" in str(claim.seen)
    assert len(failed(prove(one))) == len(before) + 1
