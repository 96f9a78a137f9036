# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The claims of layers BIOS, NIC firmware and hypervisor: an ESXi host, from what vCenter reports. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.labels import name
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.nic_firmware import NIC_FIRMWARE
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.registry import Row, of_each
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.vsphere.evidence import VsphereEvidence
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.vsphere.not_expressed import not_expressed

BIOS, FIRMWARE, HYPERVISOR = "bios", "nic_firmware", "hypervisor"
NO_CONFIG_SPACE = "the API does not show config space"

OF_BIOS = (
    not_expressed(
        BIOS,
        "the processor has its virtualization extensions",
        "on",
        "the API does not report them",
        "none: ESXi starts no 64-bit virtual machine without them",
    ),
    not_expressed(
        BIOS,
        "the firmware describes an IOMMU, and interrupts are remapped",
        "on",
        "the API reports neither",
        "none known: ESXi offers no device for passthrough without an IOMMU (claims of the hypervisor)",
    ),
    not_expressed(
        BIOS,
        "the ports above the devices have the ACS capability",
        "on",
        NO_CONFIG_SPACE,
        "it is not known whether translated requests can go straight from NIC to GPU",
    ),
)
OF_FIRMWARE = tuple(
    not_expressed(
        FIRMWARE,
        f"{text} ({key})",
        "set",
        "the API does not report the firmware's settings, and mstconfig does not run on ESXi",
        "as on KVM where it is not set; set it before ESXi is installed, or with NVIDIA's tools for ESXi",
    )
    for key, text in NIC_FIRMWARE.items()
)
OF_HYPERVISOR = (
    not_expressed(
        HYPERVISOR,
        "the IOMMU passes the host's own DMA through (iommu=pt)",
        "identity",
        "ESXi has no such setting",
        "none known to guests, whose devices the IOMMU translates in any case",
    ),
    not_expressed(
        HYPERVISOR,
        "every setting of the host is as requested, and is restored at every boot",
        "no difference",
        "the role gpu_host does not run on ESXi; ESXi keeps passthrough and SR-IOV itself",
        "none: vsphere_host_passthrough in check mode compares them",
    ),
    not_expressed(
        HYPERVISOR,
        "each node has its huge pages",
        "reserved",
        "ESXi takes 1 GiB pages when a virtual machine starts, and reserves none before",
        "smaller pages where the host's memory is in pieces; start large virtual machines first after a boot",
    ),
    not_expressed(
        HYPERVISOR,
        "ACSCtl of each port on the paths of the devices",
        "by the port's role",
        "the API neither shows nor sets it; RelaxACSforP2P (layer Guest XML) asks ESXi for it",
        "if ESXi leaves redirection on, traffic between NIC and GPU goes to the root complex and back "
        "(27 instead of 50 GB/s on KVM, NVIDIA/nccl#949)",
    ),
    not_expressed(
        HYPERVISOR,
        "ATS is enabled on the devices",
        "on",
        "the API neither shows nor sets it, and ESXi has no published switch for it",
        "where it is off, a NIC's requests to a GPU go through the IOMMU: about half on KVM (NVIDIA/nccl-tests#156)",
    ),
    not_expressed(
        HYPERVISOR,
        "MaxReadReq of the devices on the host",
        "4096 B",
        NO_CONFIG_SPACE,
        "the guest sees a copy, of which it is not known whether ESXi writes it to the device",
    ),
    not_expressed(
        HYPERVISOR,
        "no other function of a device's IOMMU group is used by the host",
        "none",
        "the API does not report the groups",
        "none: ESXi refuses to start a virtual machine with half of what cannot be separated",
    ),
)


def sriov(evidence: VsphereEvidence) -> Iterator[Claim]:
    """Claim SR-IOV of the physical functions of the virtual machine's virtual functions."""
    owners = {function.physical_function for function in evidence.functions()} - {None}
    claim, source = "has the SR-IOV capability", "HostSystem.config.pciPassthruInfo, sriovCapable"
    if not owners:
        reason = f"{evidence.plan.name} has no virtual function"
        yield not_applicable(BIOS, f"the NIC {claim}", True, source, reason)
    for owner in sorted(filter(None, owners)):
        nic = evidence.host.by_address().get(owner)
        seen = nic.sriov is not None if nic else None
        yield compare(BIOS, f"NIC {owner} {claim}", True, seen, f"{evidence.host_name} {source}")


def offered(evidence: VsphereEvidence, function: Function) -> Claim:
    """Claim that ESXi gives a function to guests: DirectPath I/O is active, or it is a virtual function of its NIC."""
    owner = function.physical_function
    if owner:
        nic = evidence.host.by_address().get(owner)
        seen = owner if nic and nic.sriov and function.address in nic.sriov.vfs else None
        source = f"{evidence.host_name} EnvironmentBrowser.QueryConfigTarget, sriov"
        return compare(HYPERVISOR, f"{name(function)} is a virtual function of its NIC now", owner, seen, source)
    return compare(
        HYPERVISOR,
        f"{name(function)} is active for passthrough",
        True,
        function.passthrough.active if function.passthrough else None,
        f"{evidence.host_name} HostSystem.config.pciPassthruInfo, passthruActive",
    )


CLAIMS: tuple[Row[VsphereEvidence], ...] = (
    *OF_BIOS,
    sriov,
    *OF_FIRMWARE,
    of_each(VsphereEvidence.functions, offered),
    *OF_HYPERVISOR,
)
