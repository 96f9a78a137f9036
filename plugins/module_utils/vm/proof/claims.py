# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The claims of a GPU virtual machine: one for each optimisation that the paper names, layer by layer. Pure.

The five layers and their content are those of arXiv 2407.05467, section 2.1.2. A claim compares the wanted value with
the value that was read where it takes effect: the hypervisor's config space and /sys, the arguments and the memory map
of the running QEMU process, the guest's own /sys. A missing observation makes its claim fail. A claim that this machine
cannot meet is not applicable, with the reason.
"""

from __future__ import annotations

from difflib import unified_diff

from ansible_collections.sailloft.fleet.plugins.module_utils.pci.registers import PCI_CFG_SPACE_EXP_SIZE
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import bios
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Acs, Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import fidelity, pairs
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.labels import name as _name
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import GIB, KIB, MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.qemu_command_line import Options, qemu_options
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import (
    ACS_FOR_ATS,
    MAX_READ_REQUEST_BYTES,
    Cell,
    Device,
    Evidence,
    Settings,
)

# Bit 1, translation blocking, stops exactly the translated requests that ATS makes.
ACS_TRANSLATION_BLOCKING = 0x02

# Vendors whose functions have the ATS capability unless their firmware hides it (mlxconfig ATS_ENABLED).
ATS_BY_FIRMWARE = {0x15B3: "the firmware of an NVIDIA ConnectX NIC shows the ATS capability when ATS_ENABLED is 1"}

SAME = "no difference"

READ_ONLY = "MaxReadReq is read-only on this device: it was written, and kept its value"

# Linux drivers/vfio/pci/vfio_pci_config.c, vfio_exp_config_write: the guest's DevCtl bits 14:12 are a copy, and a write
# to them becomes a call of pcie_set_readrq() on the device.
VFIO_COPY = (
    "the guest sees VFIO's copy of the register, and the device's own was found to be read-only on the hypervisor"
)

# PCI vendor of the NICs whose firmware the paper sets: NVIDIA (Mellanox).
CONNECTX_VENDOR = 0x15B3


# The settings of the paper in the NIC's firmware, with mlxconfig's names.
NIC_FIRMWARE = {
    "PCI_WR_ORDERING": "relaxed PCI ordering is off",
    "MAX_ACC_OUT_READ": "more outstanding read bytes",
    "RDMA_SELECTIVE_REPEAT_EN": "selective repeat is on",
    "ATS_ENABLED": "ATS is on",
}


def prove(evidence: Evidence) -> list[Claim]:
    """Return all claims, by layer. Raises TopologyError where the plan names a device that the host lacks."""
    return [
        *_bios(evidence),
        *_nic_firmware(evidence),
        *_hypervisor(evidence),
        *_guest_xml(evidence),
        *_guest_os(evidence),
    ]


# BIOS --------------------------------------------------------------------------------------------------------------


def _bios(evidence: Evidence) -> list[Claim]:
    host, where = evidence.host, evidence.host_name
    return [
        bios.extensions(host, where),
        bios.iommu(host, where),
        bios.interrupt_remapping(host, where),
        *bios.acs(host, where, _passed_through(evidence)),
        *bios.sriov(_physical_functions(evidence), where, f"{evidence.planned.name} has no virtual function"),
    ]


# NIC firmware ------------------------------------------------------------------------------------------------------


def _nic_firmware(evidence: Evidence) -> list[Claim]:
    nics = sorted(
        {
            _firmware_owner(evidence.host, function)
            for function in evidence.host.functions
            if function.kind == "nic" and function.vendor_id == CONNECTX_VENDOR
        }
    )
    if not nics:
        reason = (
            f"{evidence.host_name} has no NVIDIA ConnectX NIC (PCI vendor 15b3), whose firmware these are settings of"
        )
        return [
            not_applicable("nic_firmware", f"{words} ({key})", "set", "mstconfig query", reason)
            for key, words in NIC_FIRMWARE.items()
        ]
    claims = []
    for nic in nics:
        settings = evidence.nic_firmware.get(nic, {})
        for key in sorted({*NIC_FIRMWARE, *settings}):
            words = NIC_FIRMWARE.get(key, "as asked for")
            setting = settings.get(key, {})
            claims.append(
                compare(
                    "nic_firmware",
                    f"NIC {nic}: {words} ({key})",
                    setting.get("wanted", "set"),
                    setting.get("seen"),
                    f"{evidence.host_name} mstconfig query {nic}",
                )
            )
    return claims


def _firmware_owner(host: Host, function: Function) -> str:
    """Return the address that stands for the firmware of a NIC: all its functions share the one of the first."""
    own = function.physical_function or function.address
    first = f"{own[:-1]}0"
    return first if first in host.by_address() else own


# Hypervisor --------------------------------------------------------------------------------------------------------


def _hypervisor(evidence: Evidence) -> list[Claim]:
    host, where = evidence.host, evidence.host_name
    claims = [
        compare(
            "hypervisor",
            "the IOMMU passes the host's own DMA through (iommu=pt)",
            "identity",
            host.iommu.default_domain,
            f"{where} /sys/kernel/iommu_groups/*/type",
        )
    ]
    settings = evidence.host_settings
    claims.append(
        compare(
            "hypervisor",
            "every setting of the host is as asked for, and comes back at every boot",
            SAME,
            _differences(settings.differences if settings else None),
            f"{where} gpu_host_boot in check mode",
        )
    )
    known = host.by_address()
    for address, number in sorted(settings.virtual_functions.items()) if settings else []:
        function = known.get(address)
        claims.append(
            compare(
                "hypervisor",
                f"NIC {address} has its virtual functions",
                number,
                function.sriov.now if function and function.sriov else None,
                f"{where} /sys/bus/pci/devices/{address}/sriov_numvfs",
            )
        )
    for pages in settings.huge_pages if settings else []:
        node, size_bytes = pages["node"], pages["size_mib"] * MIB
        claims.append(
            compare(
                "hypervisor",
                f"node {node} has its huge pages of {_size(size_bytes)}",
                pages["wanted"],
                _huge_pages(host, node, size_bytes),
                f"{where} /sys/devices/system/node/node{node}/hugepages/hugepages-{size_bytes // 1024}kB/nr_hugepages",
            )
        )
    claims.extend(_acs(evidence, port) for port in bios.ports_above(host, _passed_through(evidence)) if port.acs)
    for device in evidence.planned.devices:
        claims.extend(_device_on_host(evidence, device))
    return claims


def _acs(evidence: Evidence, port: Function) -> Claim:
    claim = f"{bios.port_name(port)} isolates untranslated requests and lets translated ones through (ACSCtl)"
    acs = port.acs or Acs(0, 0)
    wanted = ACS_FOR_ATS & acs.capability
    source = f"{evidence.host_name} config space of {port.address}, ACSCtl {acs.control:#04x}"
    asked = evidence.host_settings.acs_ports if evidence.host_settings else None
    if asked is not None and port.address not in asked:
        reason = "the inventory leaves ACS as it is on this port"
        return not_applicable("hypervisor", claim, f"{wanted:#04x}", source, reason, f"{acs.control:#04x}")
    relevant = acs.control & (wanted | ACS_TRANSLATION_BLOCKING)
    return compare("hypervisor", claim, f"{wanted:#04x}", f"{relevant:#04x}", source)


def _device_on_host(evidence: Evidence, device: Device) -> list[Claim]:
    host, where = evidence.host, evidence.host_name
    function = host.function(device.host_address)
    name, address = _name(function), function.address
    others = [
        member.address
        for member in (host.group_members(function.iommu_group) if function.iommu_group is not None else [])
        if member.kind != "bridge" and member.driver not in ("vfio-pci", None)
    ]
    claims = [
        compare(
            "hypervisor",
            f"{name} is bound to vfio-pci",
            "vfio-pci",
            function.driver,
            f"{where} /sys/bus/pci/devices/{address}/driver",
        ),
        compare(
            "hypervisor",
            f"no other function of {name}'s IOMMU group is used by the host",
            [],
            None if function.iommu_group is None else others,
            f"{where} /sys/kernel/iommu_groups/{function.iommu_group}/devices",
        ),
    ]
    claims.append(_ats(evidence, function))
    claims.append(_read_request_on_host(evidence, function))
    return claims


def _ats(evidence: Evidence, function: Function) -> Claim:
    claim = f"ATS is enabled on {_name(function)}"
    source = f"{evidence.host_name} config space of {function.address}, ATSCtl"
    reason = "" if function.ats else ATS_BY_FIRMWARE.get(function.vendor_id, "")
    if function.ats is None and not reason:
        if function.config_bytes == PCI_CFG_SPACE_EXP_SIZE:
            reason = f"{_model(function)} has no ATS capability"
            return not_applicable("hypervisor", claim, True, source, reason)
        reason = f"only {function.config_bytes} bytes of its config space were read: read the host as root"
    return compare("hypervisor", claim, True, function.ats.enabled if function.ats else None, source, reason)


def _read_request_on_host(evidence: Evidence, function: Function) -> Claim:
    # A virtual function has no DevCtl fields of its own: it follows its physical function (PCI Express Base
    # Specification, "Device Control Register", changes for VFs).
    owner = evidence.host.function(function.physical_function) if function.physical_function else function
    claim = f"MaxReadReq of {_name(owner)}" + (f", which {_name(function)} follows" if owner is not function else "")
    source = f"{evidence.host_name} config space of {owner.address}, DevCtl bits 14:12"
    return _read_request("hypervisor", claim, owner.address, owner, evidence.host_settings, source)


def _read_request(
    layer: str, claim: str, address: str, function: Function | None, settings: Settings | None, source: str
) -> Claim:
    seen = _bytes(function.max_read_request_bytes if function else None)
    wanted = MAX_READ_REQUEST_BYTES
    if settings and function:
        # The register is read-only because it was written and kept its value, not because it is emulated.
        if address in settings.read_only:
            return not_applicable(layer, claim, _bytes(wanted), source, READ_ONLY, seen)
        asked = settings.max_read_request_bytes
        if asked is not None and address not in asked:
            return not_applicable(
                layer, claim, _bytes(wanted), source, "the inventory leaves MaxReadReq as it is", seen
            )
        wanted = asked[address] if asked else wanted
    return compare(layer, claim, _bytes(wanted), seen, source)


# Guest XML ---------------------------------------------------------------------------------------------------------


def _guest_xml(evidence: Evidence) -> list[Claim]:
    options = qemu_options(evidence.running.qemu_arguments)
    claims = [
        compare(
            "guest_xml",
            "libvirt has the domain as it is planned, defined and running",
            SAME,
            _differences(evidence.domain_differences),
            f"{evidence.host_name} virsh dumpxml, with --inactive and without",
        )
    ]
    for cell in evidence.planned.cells:
        claims += [
            _binding(evidence, cell, options),
            _huge_page_backing(evidence, cell),
            compare(
                "guest_xml",
                f"guest NUMA node {cell.id} has its CPUs",
                cell.cpus,
                next((node.cpus for node in evidence.guest.numa_nodes if node.id == cell.id), None)
                if evidence.guest
                else None,
                f"guest /sys/devices/system/node/node{cell.id}/cpulist",
            ),
        ]
    claims.append(_memory_locked(evidence, options))
    claims.extend(_pinning(evidence))
    claims.append(_physical_address_bits(evidence))
    for device in evidence.planned.devices:
        claims.extend(_device_in_guest(evidence, device, options))
    claims.append(_guest_iommu(evidence, options))
    return claims


def _binding(evidence: Evidence, cell: Cell, options: Options) -> Claim:
    """Claim that QEMU was told to take a cell's memory as planned."""
    claim = f"memory of guest cell {cell.id} is bound to host node {cell.host_node}"
    source = f"{evidence.host_name} /proc/PID/cmdline of QEMU, -object ram-node{cell.id}"
    wanted = {"size": _size(cell.memory_bytes), "host node": str(cell.host_node), "policy": "bind"}
    if not cell.strict:
        return not_applicable("guest_xml", claim, wanted, source, "the plan binds no memory (strict_memory: false)")
    seen = None
    for option, fields in options or []:
        if option == "object" and fields.get("id") == f"ram-node{cell.id}":
            size = fields.get("size", "")
            seen = {
                "size": _size(int(size)) if size.isdigit() else size,
                "host node": fields.get("host-nodes"),
                "policy": fields.get("policy"),
            }
    return compare("guest_xml", claim, wanted, seen, source)


def _huge_page_backing(evidence: Evidence, cell: Cell) -> Claim:
    """Claim a cell's memory in the kernel: all pages of the size on planned nodes, the planned number on this one."""
    node = str(cell.host_node)
    claim = f"memory of guest cell {cell.id} lies in huge pages of host node {node}"
    source = f"{evidence.host_name} /proc/PID/numa_maps of QEMU"
    if not cell.page_bytes:
        return not_applicable("guest_xml", claim, "huge pages", source, "the plan has no huge pages (huge_page_mib: 0)")
    # The map of the process does not distinguish cells of one size and node: they are counted together.
    alike = [other for other in evidence.planned.cells if other.page_bytes == cell.page_bytes]
    needed = sum(other.memory_bytes // other.page_bytes for other in alike if other.host_node == cell.host_node)
    planned_nodes = {str(other.host_node) for other in alike}

    def shown(here: int, elsewhere: int) -> dict[str, str]:
        size = _size(cell.page_bytes)
        return {f"node {node}": f"{here} x {size}", "nodes without a cell": f"{elsewhere} x {size}"}

    pages = _mapped(evidence, cell.page_bytes)
    seen = None
    if pages is not None:
        elsewhere = sum(number for there, number in pages.items() if there not in planned_nodes)
        seen = shown(pages.get(node, 0), elsewhere)
    return compare("guest_xml", claim, shown(needed, 0), seen, source)


def _mapped(evidence: Evidence, page_bytes: int) -> dict[str, int] | None:
    """Count the pages of a size that the QEMU process has, by host node; None where that was not read."""
    if evidence.running.memory is None:
        return None
    pages: dict[str, int] = {}
    for row in evidence.running.memory:
        if row["page_bytes"] == page_bytes:
            for node, number in row["pages_by_node"].items():
                if number:
                    pages[str(node)] = pages.get(str(node), 0) + number
    return pages


def _memory_locked(evidence: Evidence, options: Options) -> Claim:
    claim = "the guest's memory is locked"
    source = f"{evidence.host_name} /proc/PID/cmdline of QEMU, -overcommit mem-lock"
    if not evidence.planned.memory_locked:
        return not_applicable("guest_xml", claim, "on", source, "the plan locks no memory (lock_memory: false)")
    seen = None
    if options is not None:
        seen = next((fields.get("mem-lock") for option, fields in options if option == "overcommit"), "off")
    return compare("guest_xml", claim, "on", seen, source)


def _pinning(evidence: Evidence) -> list[Claim]:
    source = f"{evidence.host_name} /proc/PID/task/TID/status of QEMU, Cpus_allowed_list"
    if not evidence.planned.pinning:
        reason = "the plan pins no CPUs (pin_cpus: false)"
        return [not_applicable("guest_xml", "virtual CPUs run on their own host CPUs", "pinned", source, reason)]
    seen = evidence.running.pinning or {}
    claims = [
        compare("guest_xml", f"virtual CPU {vcpu} runs on its own host CPUs", cpus, seen.get(vcpu), source)
        for vcpu, cpus in sorted(evidence.planned.pinning.items())
    ]
    claim, kept = "QEMU's other threads run on the CPUs kept for the host", evidence.planned.emulator_cpus
    if kept:
        claims.append(compare("guest_xml", claim, kept, evidence.running.emulator_cpus, source))
    else:
        reason = "the plan keeps no CPUs for the host (host_cores_per_node: 0)"
        claims.append(not_applicable("guest_xml", claim, "pinned", source, reason))
    return claims


def _physical_address_bits(evidence: Evidence) -> Claim:
    claim = "the guest has the host's physical address bits (host-phys-bits)"
    source = "guest and host /proc/cpuinfo, address sizes"
    wanted = evidence.host.cpu.physical_address_bits
    seen = evidence.guest.cpu.physical_address_bits if evidence.guest else None
    if evidence.running.accelerated is False:
        reason = "the domain runs under TCG, which has no physical address bits of the host to pass through"
        return not_applicable("guest_xml", claim, wanted, source, reason, seen)
    mode = evidence.planned.address_bits_mode
    if mode == "emulate":
        claim = "the guest has its planned physical address bits"
        return compare("guest_xml", claim, evidence.planned.address_bits, seen, "guest /proc/cpuinfo, address sizes")
    if mode == "off":
        reason = "the plan leaves them at QEMU's default (physical_address_bits: off)"
        return not_applicable("guest_xml", claim, wanted, source, reason, seen)
    return compare("guest_xml", claim, wanted, seen, source)


def _device_in_guest(evidence: Evidence, device: Device, options: Options) -> list[Claim]:
    on_host = evidence.host.function(device.host_address)
    name = _name(on_host)
    inside = evidence.guest.by_address().get(device.guest_address) if evidence.guest else None
    passed = None
    if options is not None:
        passed = [
            fields.get("host")
            for option, fields in options
            if option == "device" and fields.get("driver") == "vfio-pci" and fields.get("host") == device.host_address
        ]
    path = [step.address for step in evidence.guest.path(inside.address)] if evidence.guest and inside else None
    where = f"guest /sys/bus/pci/devices/{device.guest_address}"
    return [
        compare(
            "guest_xml",
            f"QEMU has {name}",
            [device.host_address],
            passed,
            f"{evidence.host_name} /proc/PID/cmdline of QEMU, -device vfio-pci",
        ),
        compare(
            "guest_xml",
            f"{name} is at {device.guest_address} in the guest",
            _model(on_host),
            _model(inside) if inside else None,
            f"{where}/vendor and device",
        ),
        compare("guest_xml", f"{name} has its planned PCI path in the guest", device.guest_path, path, where),
        compare(
            "guest_xml",
            f"{name} is on guest NUMA node {device.guest_numa_node}",
            device.guest_numa_node,
            inside.numa_node if inside else None,
            f"{where}/numa_node",
        ),
        compare(
            "guest_xml",
            f"{name} has all its memory windows in the guest (BAR sizes)",
            _bars(on_host),
            # Every passed-through device has memory: if there is none, it was not read.
            (_bars(inside) or None) if inside else None,
            f"{where}/resource",
        ),
    ]


def _guest_iommu(evidence: Evidence, options: Options) -> Claim:
    claim = "the guest's IOMMU serves ATS (device IOTLB)"
    source = f"{evidence.host_name} /proc/PID/cmdline of QEMU, -device intel-iommu"
    if not evidence.planned.guest_iommu:
        reason = (
            "the plan has no guest IOMMU; ATS of a passed-through function is between it and the host's IOMMU, and "
            "libvirt's ats= on a PCIe port adds nothing to QEMU's arguments"
        )
        return not_applicable("guest_xml", claim, "on", source, reason)
    seen = None
    if options is not None:
        seen = next(
            (
                fields.get("device-iotlb", "off")
                for option, fields in options
                if option == "device" and fields.get("driver") == "intel-iommu"
            ),
            None,
        )
    return compare("guest_xml", claim, "on", seen, source)


# Guest OS ----------------------------------------------------------------------------------------------------------


def _guest_os(evidence: Evidence) -> list[Claim]:
    claims = [_read_request_in_guest(evidence, device) for device in evidence.planned.devices]
    claims += [_nccl(evidence), _nccl_topology(evidence), _fidelity(evidence)]
    return claims


def _read_request_in_guest(evidence: Evidence, device: Device) -> Claim:
    on_host = evidence.host.function(device.host_address)
    inside = evidence.guest.by_address().get(device.guest_address) if evidence.guest else None
    claim = f"MaxReadReq of {_name(on_host)} in the guest"
    source = f"guest config space of {device.guest_address}, DevCtl bits 14:12"
    owner = on_host.physical_function or on_host.address
    if inside and evidence.host_settings and owner in evidence.host_settings.read_only:
        seen = _bytes(inside.max_read_request_bytes)
        return not_applicable("guest_os", claim, _bytes(MAX_READ_REQUEST_BYTES), source, VFIO_COPY, seen)
    return _read_request("guest_os", claim, device.guest_address, inside, evidence.guest_settings, source)


def _fidelity(evidence: Evidence) -> Claim:
    """Claim all pairs of the guest's devices at once; name pairs that are not as near as on the host, with both."""
    devices = evidence.planned.devices
    on_host = {_name(evidence.host.function(device.host_address)): device.host_address for device in devices}
    wanted = pairs(evidence.host, on_host)
    claim = "pairs of devices that are as near in the guest as on the host (fidelity)"
    source = f"guest and {evidence.host_name} /sys/bus/pci/devices"
    if not wanted:
        reason = f"{evidence.planned.name} has fewer than two devices, so no pair of them"
        return not_applicable("guest_os", claim, "all", source, reason)
    seen: object = None
    if evidence.guest:
        inside = set(evidence.guest.by_address())
        places = {
            name: device.guest_address for name, device in zip(on_host, devices) if device.guest_address in inside
        }
        there = pairs(evidence.guest, places)
        found = fidelity(wanted, {pair: there.get(pair, "not there") for pair in wanted})
        seen = f"{found.equal} of {found.total}"
        if found.differences:
            seen = [
                seen,
                *(
                    f"{' and '.join(item['pair'])}: {item['host']} on the host, {item['guest']} in the guest"
                    for item in found.differences
                ),
            ]
    return compare("guest_os", claim, f"{len(wanted)} of {len(wanted)}", seen, source)


def _nccl(evidence: Evidence) -> Claim:
    claim, source = "NCCL has its settings", "guest /etc/nccl.conf"
    if not evidence.nccl:
        return not_applicable("guest_os", claim, "none", source, "the inventory sets none (gpu_guest_nccl)")
    seen = None
    if evidence.nccl_settings is not None:
        lines = (line.strip() for line in evidence.nccl_settings.splitlines())
        seen = dict(sorted(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#")))
    return compare("guest_os", claim, dict(sorted(evidence.nccl.items())), seen, source)


def _nccl_topology(evidence: Evidence) -> Claim:
    claim, source = "the guest's NCCL topology file is the plan's", "guest /etc/nccl-topology.xml"
    if not evidence.nccl_topology:
        reason = "the guest has no GPU, or the inventory does not ask for it (gpu_guest_nccl_topology, gpu_guest_nccl)"
        return not_applicable("guest_os", claim, SAME, source, reason)
    lines = None
    if evidence.nccl_topology_file is not None:
        planned, found = evidence.nccl_topology.splitlines(), evidence.nccl_topology_file.splitlines()
        lines = [
            line
            for line in unified_diff(planned, found, "the plan's", "the guest's", n=0, lineterm="")
            if not line.startswith("@@")
        ]
    return compare("guest_os", claim, SAME, _differences(lines), source)


# Small helpers -----------------------------------------------------------------------------------------------------


def _differences(lines: list[str] | None) -> str | list[str] | None:
    return SAME if lines == [] else lines


def _passed_through(evidence: Evidence) -> list[Function]:
    return [evidence.host.function(device.host_address) for device in evidence.planned.devices]


def _physical_functions(evidence: Evidence) -> list[Function]:
    owners = {evidence.host.function(device.host_address).physical_function for device in evidence.planned.devices}
    return [evidence.host.function(address) for address in sorted(owner for owner in owners if owner)]


def _huge_pages(host: Host, node_id: int, size_bytes: int) -> int | None:
    for node in host.numa_nodes:
        if node.id == node_id:
            return next((pages.total for pages in node.huge_pages if pages.size_bytes == size_bytes), None)
    return None


def _model(function: Function) -> str:
    return f"{function.vendor_id:04x}:{function.device_id:04x}"


def _bars(function: Function) -> dict[str, str]:
    return {
        f"BAR {region.index}": _size(region.size_bytes)
        for region in function.bars
        if region.kind == "memory" and region.index < 6
    }


def _bytes(value: int | None) -> str | None:
    return None if value is None else f"{value} B"


def _size(size_bytes: int) -> str:
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"
