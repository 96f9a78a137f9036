# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The BIOS settings as Linux shows them, claim by claim."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
