# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.host import bios_settings
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError


def observe(server, required=None):
    return bios_settings.observe(server, server.host(), required)


def refused(server, *required):
    with pytest.raises(HostError) as error:
        observe(server, list(required))
    return str(error.value)


def holds(outcome):
    return {claim["claim"]: claim["holds"] for claim in outcome.facts["claims"]}


def test_all_claims_hold_for_a_correctly_configured_server(server):
    server.put("/sys/kernel/irq/9/chip_name", "IR-IO-APIC\n")
    outcome = observe(server, ["extensions", "iommu", "interrupt_remapping", "acs", "sriov"])
    found = holds(outcome)
    expected = {
        "the processor's virtualization extensions are on": True,
        "the firmware describes an IOMMU (DMAR or IVRS table)": True,
        "the IOMMU remaps interrupts": True,
        "root port 0000:10:00.0 has the ACS capability": True,
        "root port 0000:10:01.0 has the ACS capability": True,
        # QEMU emulates this switch.
        "switch port 0000:12:00.0 has the ACS capability": None,
        "switch port 0000:12:01.0 has the ACS capability": None,
        "NIC 0000:14:00.0 has the SR-IOV capability": True,
        "NIC 0000:15:00.0 has the SR-IOV capability": True,
    }
    assert {claim: found[claim] for claim in expected} == expected
    assert {claim for claim in found if "ACS" in claim or "SR-IOV" in claim} <= expected.keys()
    assert not [line for line in outcome.facts["missing"] if line.startswith(tuple(expected))]
    assert not outcome.changed


def test_disabled_virtualization_extensions_are_refused(server):
    server.put("/proc/cpuinfo", "processor : 0\nvendor_id : GenuineIntel\nflags : fpu\n\n")
    assert refused(server, "extensions") == (Mentions("svm", "/proc/cpuinfo"))


def test_an_iommu_that_the_kernel_does_not_use_yet_counts_as_on_in_the_bios(server):
    os.unlink(server.path("/sys/class/iommu/dmar0"))
    outcome = observe(server, ["iommu"])
    assert outcome.facts["claims"][1]["seen"] == "DMAR"
    assert outcome.facts["missing"][0] == (Mentions("IOMMU", "/sys/kernel/irq/*/chip_name"))


def test_a_disabled_iommu_is_refused(server):
    os.unlink(server.path("/sys/firmware/acpi/tables/DMAR"))
    os.unlink(server.path("/sys/class/iommu/dmar0"))
    assert refused(server, "iommu") == (
        Mentions("IOMMU", "DMAR", "IVRS", "amd", "/sys/class/iommu", "/sys/firmware/acpi/tables")
    )


def test_missing_interrupt_remapping_is_refused(server):
    server.put("/sys/kernel/irq/9/chip_name", "IO-APIC\n")
    assert refused(server, "interrupt_remapping").endswith(
        "seen no in this host's /sys/kernel/irq/*/chip_name; turn on interrupt remapping (x2APIC) in the BIOS"
    )


def test_a_port_without_acs_is_refused(server):
    config = bytearray(server.read_bytes(f"{server.directory('0000:10:00.0')}/config"))
    config[0x100:0x104] = b"\0\0\0\0"  # no extended capabilities
    server.put(f"{server.directory('0000:10:00.0')}/config", bytes(config))
    assert refused(server, "acs") == (Mentions("0000:10:00.0", "ACS", "capability"))


def test_a_port_that_could_not_be_read_is_reported_as_unread(server):
    config = server.read_bytes(f"{server.directory('0000:10:00.0')}/config")
    server.put(f"{server.directory('0000:10:00.0')}/config", config[:64])
    assert refused(server, "acs") == (Mentions("0000:10:00.0", "ACS", "capability"))


def test_one_nic_with_sriov_is_enough(server):
    os.unlink(server.path(f"{server.directory('0000:14:00.0')}/sriov_totalvfs"))
    missing = [line for line in observe(server, ["sriov"]).facts["missing"] if "SR-IOV" in line]
    assert [line.split(" has ")[0] for line in missing] == ["NIC 0000:14:00.0"]
    os.unlink(server.path(f"{server.directory('0000:15:00.0')}/sriov_totalvfs"))
    assert refused(server, "sriov").startswith(
        "NIC 0000:14:00.0 has the SR-IOV capability: wanted present, seen absent"
    )


def test_sriov_is_not_applicable_on_a_host_without_nics(server):
    for address in ("0000:14:00.0", "0000:15:00.0", "0000:00:03.0"):
        server.put(f"{server.directory(address)}/uevent", "PCI_CLASS=78000\nPCI_ID=1AF4:1043\n")
    (claim,) = [claim for claim in observe(server).facts["claims"] if "SR-IOV" in claim["claim"]]
    assert (claim["holds"], claim["reason"]) == (None, Mentions("NIC", "PCI", "Express"))


ARM = "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd4f\n\n"


@pytest.mark.parametrize("required", [["iommu"], []])
def test_a_host_of_another_architecture_can_be_read_and_is_refused_by_the_role(server, required):
    """The role always passes a list, because it installs packages after this call."""
    server.put("/proc/cpuinfo", ARM)
    assert observe(server).facts["claims"][0]["holds"] is False
    assert refused(server, *required) == (Mentions("bios_info", "aarch64", "GPU", "x86_64"))


def test_all_missing_settings_are_named_together(server):
    server.put("/proc/cpuinfo", "processor : 0\nvendor_id : GenuineIntel\nflags : fpu\n\n")
    os.unlink(server.path("/sys/firmware/acpi/tables/DMAR"))
    os.unlink(server.path("/sys/class/iommu/dmar0"))
    both = refused(server, "extensions", "iommu")
    assert [part.split(":")[0] for part in both.split("; ")[:2]] == [
        Mentions("extensions"),
        Mentions("IOMMU", "DMAR", "IVRS"),
    ]
    assert len(both.split("; ")) == 4
    assert observe(server, ["acs", "sriov"]).facts["missing"]


def test_a_vf_and_a_nic_without_pci_express_do_not_count_as_nics(server):
    server.poke("/sys/bus/pci/devices/0000:15:00.0/sriov_numvfs", "1")
    claims = [claim["claim"] for claim in observe(server).facts["claims"]]
    assert [claim.split(" has ")[0] for claim in claims if "SR-IOV" in claim] == [
        "NIC 0000:14:00.0",
        "NIC 0000:15:00.0",
    ]
