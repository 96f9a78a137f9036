# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host import bios
from ansible_collections.sailloft.fleet.plugins.module_utils.host.errors import HostError


def observe(server, required=()):
    return bios.observe(server, server.host(), list(required))


def holds(outcome):
    return [claim["holds"] for claim in outcome.facts["claims"]]


def test_what_the_server_has(server):
    outcome = observe(server, ["extensions", "iommu", "sriov"])
    # A switch without ACS is above the GPU.
    assert holds(outcome) == [True, True, False, True]
    assert "0000:12:00.0, 0000:12:01.0 without it" in outcome.facts["missing"][0]
    assert not outcome.changed


def test_extensions_are_off(server):
    server.put("/proc/cpuinfo", "processor : 0\nvendor_id : GenuineIntel\nflags : fpu\n\n")
    assert holds(observe(server))[0] is False
    with pytest.raises(HostError, match=r"virtual machine extensions are on: wanted vmx or svm, found None .*BIOS"):
        observe(server, ["extensions"])


def test_the_iommu_is_off(server):
    os.unlink(server.path("/sys/firmware/acpi/tables/DMAR"))
    os.unlink(server.path("/sys/class/iommu/dmar0"))
    with pytest.raises(HostError, match=r"the IOMMU is on: wanted one of DMAR, IVRS, IORT, found None"):
        observe(server, ["iommu"])


def test_what_is_required_is_named(server):
    with pytest.raises(HostError, match=r"ports above GPUs and NICs have ACS.*turn it on in the BIOS"):
        observe(server, ["acs"])


def test_a_host_without_nics_makes_no_claim_about_them(server):
    for address in ("0000:14:00.0", "0000:15:00.0", "0000:00:03.0"):
        server.put(f"{server.directory(address)}/uevent", "PCI_CLASS=78000\nPCI_ID=1AF4:1043\n")
    claim = observe(server).facts["claims"][3]
    assert claim["holds"] is None
    assert claim["reason"]
