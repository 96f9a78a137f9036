# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The BIOS settings as Linux shows them, claim by claim."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import bios
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Acs,
    Cpu,
    Function,
    Host,
    Iommu,
    RootComplex,
    Sriov,
)

NAMES = ("extensions", "iommu", "interrupt_remapping", "acs", "sriov")
ROOT, UP, DOWN, NIC = "0000:10:01.0", "0000:11:00.0", "0000:12:00.0", "0000:13:00.0"


def function(address, parent, kind, port_type, **more):
    return Function(address, "pci0000:10", parent, 0x060400, 0x15B3, 0x1979, kind, port_type, config_bytes=4096, **more)


def host(**changes):
    acs = Acs(0x5F, 0x1D)
    functions = [
        function(ROOT, None, "bridge", "root_port", acs=acs),
        function(UP, ROOT, "bridge", "switch_upstream"),
        function(DOWN, UP, "bridge", "switch_downstream", acs=acs),
        function(NIC, DOWN, "nic", "endpoint", sriov=Sriov(8, 0)),
    ]
    found = Host([], [RootComplex("pci0000:10", 0, 0x10, 0)], functions)
    return replace(found, cpu=Cpu(virtualization="svm"), iommu=Iommu("amd", None, True), **changes)


def claims(seen, tables=None, with_nic=True):
    nics = [item for item in seen.functions if item.kind == "nic"] if with_nic else []
    return bios.claims(bios.Subject(seen, "hv01", nics, nics, "no NIC is asked for", tables))


def test_all_claims_hold_for_a_host_with_all_settings_on():
    found = claims(host())
    assert list(found) == list(bios.CLAIMS)
    every = [claim for name in NAMES for claim in found[name]]
    assert [(claim.layer, claim.holds, claim.reason) for claim in every] == [("bios", True, "")] * 6
    assert [claim.seen for claim in every] == ["svm", "amd", True, "present", "present", "present"]
    assert [claim.claim for claim in found["acs"]] == [
        f"root port {ROOT} has the ACS capability",
        f"switch port {DOWN} has the ACS capability",
    ]


@pytest.mark.parametrize(("seen", "holds"), [("vmx", True), ("svm", True), ("kvm", False), (None, False)])
def test_the_extensions_claim_holds_only_with_vmx_or_svm(seen, holds):
    (claim,) = claims(replace(host(), cpu=Cpu(virtualization=seen)))["extensions"]
    assert (claim.seen, claim.holds) == (seen, holds)
    assert ("turn on VT-x (Intel) or SVM (AMD) in the BIOS" in claim.reason) is not holds


@pytest.mark.parametrize(
    ("kind", "tables", "seen"),
    [("intel", None, "intel"), ("other", ["DMAR"], "DMAR"), (None, ["IVRS"], "IVRS"), (None, [], None)],
)
def test_the_iommu_claim_holds_if_the_iommu_runs_or_has_an_acpi_table(kind, tables, seen):
    (claim,) = claims(replace(host(), iommu=Iommu(kind)), tables)["iommu"]
    assert (claim.seen, claim.holds) == (seen, seen is not None)


def test_the_claim_fails_if_interrupts_are_not_remapped():
    (claim,) = claims(replace(host(), iommu=Iommu("intel", None, False)))["interrupt_remapping"]
    assert (claim.holds, claim.reason) == (False, "turn on interrupt remapping (x2APIC) in the BIOS")
    (claim,) = claims(replace(host(), iommu=Iommu(None, None, None)))["interrupt_remapping"]
    assert (claim.holds, claim.reason) == (
        False,
        "the kernel does not use the IOMMU yet: boot with the IOMMU on, and read the host again",
    )


def test_the_acs_claim_fails_for_ports_without_acs_or_unread_config_space():
    seen = host()
    root, upstream, down, _nic = seen.functions
    root.acs, down.acs = None, None
    root.config_bytes = 256
    first, second = claims(seen)["acs"]
    assert (first.seen, first.holds) == (None, False)
    assert first.reason == "only 256 bytes of its config space were read: read the host as root"
    assert (second.seen, second.holds, second.reason) == ("absent", False, "turn on ACS in the BIOS")
    down.vendor_id, down.device_id = 0x104C, 0x8233
    assert claims(seen)["acs"][1].holds is None
    upstream.port_type, upstream.config_bytes = None, 64  # its type is unknown, so it may be a port
    assert [claim.claim.split()[2] for claim in claims(seen)["acs"]] == [ROOT, UP, DOWN]
    upstream.config_bytes = 256
    assert len(claims(seen)["acs"]) == 2


def test_a_claim_without_devices_gives_the_reason():
    found = claims(host(), with_nic=False)
    (acs,), (sriov,) = found["acs"], found["sriov"]
    assert (acs.holds, acs.reason) == (None, "no GPU or NIC is behind a port")
    assert (sriov.holds, sriov.reason) == (None, "no NIC is asked for")


@pytest.mark.parametrize("sriov", [None, Sriov(0, 0)])
def test_the_sriov_claim_fails_for_a_nic_without_virtual_functions(sriov):
    seen = host()
    seen.functions[-1].sriov = sriov
    (claim,) = claims(seen)["sriov"]
    assert (claim.claim, claim.seen, claim.holds) == (f"NIC {NIC} has the SR-IOV capability", "absent", False)
    assert claim.reason.startswith("turn on SR-IOV in the BIOS")


def test_the_claims_of_a_host_with_all_settings_are_complete():
    found = [claim for row in claims(host()).values() for claim in row]
    assert found == [
        Claim(
            "bios", "the processor's virtualization extensions are on", "vmx or svm", "svm", True,
            "hv01 /proc/cpuinfo flags",
        ),
        Claim(
            "bios", "the firmware describes an IOMMU (DMAR or IVRS table)", "intel or amd", "amd", True,
            "hv01 /sys/class/iommu and /sys/firmware/acpi/tables",
        ),
        Claim("bios", "the IOMMU remaps interrupts", True, True, True, "hv01 /sys/kernel/irq/*/chip_name"),
        *(
            Claim("bios", f"{port} has the ACS capability", "present", "present", True, f"hv01 config space of {at}")
            for port, at in ((f"root port {ROOT}", ROOT), (f"switch port {DOWN}", DOWN))
        ),
        Claim(
            "bios", f"NIC {NIC} has the SR-IOV capability", "present", "present", True,
            f"hv01 sriov_totalvfs of {NIC}",
        ),
    ]  # fmt: skip


def test_the_claims_of_a_host_without_any_setting_name_what_to_turn_on():
    seen = replace(host(), cpu=Cpu(), iommu=Iommu())
    for function in seen.functions:
        function.acs = function.sriov = None
    found = [(claim.seen, claim.holds, claim.reason) for row in claims(seen, []).values() for claim in row]
    assert found == [
        (
            None,
            False,
            "the processor shows neither vmx nor svm: turn on VT-x (Intel) or SVM (AMD) in the BIOS, and in a virtual "
            "machine turn on nested virtualization in its hypervisor",
        ),
        (None, False, "turn on VT-d (Intel) or the IOMMU (AMD) in the BIOS"),
        (None, False, "the kernel does not use the IOMMU yet: boot with the IOMMU on, and read the host again"),
        *[("absent", False, "turn on ACS in the BIOS")] * 2,
        (
            "absent",
            False,
            "turn on SR-IOV in the BIOS, and SRIOV_EN and NUM_OF_VFS in the NIC's firmware",
        ),
    ]


def test_claims_that_do_not_apply_are_complete():
    seen = host()
    down = seen.function(DOWN)
    down.acs, down.vendor_id, down.device_id = None, 0x104C, 0x8233
    assert claims(seen)["acs"][1] == Claim(
        "bios", f"switch port {DOWN} has the ACS capability", "present", None, None, f"hv01 config space of {DOWN}",
        "the TI XIO3130 switch, which QEMU emulates, has no ACS capability on its downstream ports",
    )  # fmt: skip
    down.acs = Acs(0x5F, 0x1D)
    assert claims(seen)["acs"][1].holds is True
    found = claims(host(), with_nic=False)
    assert [*found["acs"], *found["sriov"]] == [
        Claim(
            "bios", "ports have the ACS capability", "present", None, None, "hv01 config space",
            "no GPU or NIC is behind a port",
        ),
        Claim(
            "bios", "the NICs have the SR-IOV capability", "present", None, None, "hv01 config space",
            "no NIC is asked for",
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("config_bytes", "seen", "reason"),
    [
        (64, None, "only 64 bytes of its config space were read: read the host as root"),
        (4095, None, "only 4095 bytes of its config space were read: read the host as root"),
        (4096, "absent", "turn on ACS in the BIOS"),
    ],
)
def test_acs_is_absent_only_if_all_of_config_space_was_read(config_bytes, seen, reason):
    found = host()
    found.function(ROOT).acs, found.function(ROOT).config_bytes = None, config_bytes
    claim = claims(found)["acs"][0]
    assert (claim.seen, claim.holds, claim.reason) == (seen, False, reason)


@pytest.mark.parametrize(
    ("port_type", "config_bytes", "kind", "is_port"),
    [
        ("root_port", 4096, "bridge", True),
        ("switch_upstream", 64, "bridge", False),
        (None, 255, "bridge", True),
        (None, 256, "bridge", False),
        (None, 64, "other", False),
    ],
)
def test_ports_are_known_by_their_type_or_may_be_unread_bridges(port_type, config_bytes, kind, is_port):
    seen = host()
    up = seen.function(UP)
    up.port_type, up.config_bytes, up.kind = port_type, config_bytes, kind
    found = [port.address for port in bios.ports_above(seen, [seen.function(NIC)])]
    assert found == ([ROOT, UP, DOWN] if is_port else [ROOT, DOWN])
