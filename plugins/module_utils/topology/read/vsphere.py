# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Convert an ESXi host as vSphere's API describes it to the project's model. Pure: the caller has read the properties.

Objects are those of the vSphere Web Services API (HostHardwareInfo, HostConfigInfo, ...), read by attribute. The API
does not report these values, which stay unknown: BARs, links, ACS, ATS, MaxReadReq, IOMMU groups, types of ports,
distances of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.kinds import DEVICES, kind
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Cpu,
    Function,
    Host,
    NumaNode,
    Passthrough,
    RootComplex,
    Sriov,
)

# HostCpuPackage.vendor, which is in lower case, and the vendor as CPUID writes it.
VENDORS = {"intel": "GenuineIntel", "amd": "AuthenticAMD"}
VIRTUALIZATION = {"intel": "vmx", "amd": "svm"}
# CPUID leaf 80000008h: EAX bits 7:0 are the physical address bits (Intel SDM volume 2, AMD APM volume 3).
ADDRESS_SIZES_LEAF = 0x80000008
# The kinds of devices that can be assigned to a virtual machine.
PASSED_KINDS = frozenset(kind.name for kind in DEVICES)


def read_esxi(properties: dict[str, Any], sriov_of_target: Iterable[Any] = ()) -> Host:
    """Return the host of the HostSystem ``properties`` hardware, config.pciPassthruInfo, config.network.pnic, ...

    ``sriov_of_target`` is ConfigTarget.sriov, the only place where the API reports the NIC of a virtual function.
    """
    hardware = properties["hardware"]
    passthrough = {info.id: info for info in properties.get("config.pciPassthruInfo") or []}
    nics = {nic.device: nic.pci for nic in properties.get("config.network.pnic") or []}
    owner = {
        item.pciDevice.id: nics[item.pnic] for item in sriov_of_target if item.virtualFunction and item.pnic in nics
    }
    # pyVmomi's numbers are subclasses of int; the model has plain numbers.
    node_of = {address: int(node.typeId) for node in _nodes(hardware) for address in node.pciId or []}
    devices = sorted(hardware.pciDevice or [], key=lambda device: device.id)
    device_of = {device.id: device for device in devices}
    roots = {device.id: _root(device.id, device_of) for device in devices}
    functions = [
        _function(
            device,
            device_of,
            roots[device.id],
            node_of.get(device.id),
            passthrough.get(device.id),
            owner.get(device.id),
        )
        for device in devices
    ]
    vfs: dict[str, list[str]] = {}
    for address, physical in sorted(owner.items()):
        if address in device_of and physical in device_of:
            vfs.setdefault(physical, []).append(address)
    for function in functions:
        if function.sriov:
            function.sriov.vfs = vfs.get(function.address, [])
        for device, pci in nics.items():
            if pci == function.address and not function.physical_function:
                function.interfaces = {"net": [device]}
    product = properties.get("config.product")
    return Host(
        numa_nodes=_numa_nodes(hardware),
        root_complexes=_root_complexes(functions, set(roots.values())),
        functions=functions,
        cpu=_cpu(hardware),
        kernel_release=f"ESXi {product.version}" if product else None,
        source="vsphere",
        notes=_notes(functions, passthrough, owner),
    )


def _nodes(hardware: Any) -> list[Any]:
    return list(hardware.numaInfo.numaNode or []) if hardware.numaInfo else []


def _numa_nodes(hardware: Any) -> list[NumaNode]:
    """Return the nodes; a host without NUMA has one node 0 with everything."""
    info = hardware.cpuInfo
    # Logical processors of a core have consecutive numbers (vSphere Resource Management, "Hyperthreading and ESXi
    # Hosts").
    width = max(int(info.numCpuThreads) // max(info.numCpuCores, 1), 1)
    nodes = []
    for node in sorted(_nodes(hardware), key=lambda item: item.typeId):
        memory_bytes = getattr(node, "memorySize", None) or node.memoryRangeLength
        cpus = sorted(int(cpu) for cpu in node.cpuID)
        nodes.append(NumaNode(int(node.typeId), cpus, _cores(cpus, width), int(memory_bytes)))
    if not nodes:
        cpus = list(range(info.numCpuThreads))
        nodes = [NumaNode(0, cpus, _cores(cpus, width), int(hardware.memorySize))]
    return nodes


def _cores(cpus: list[int], width: int) -> list[list[int]]:
    cores: dict[int, list[int]] = {}
    for cpu in cpus:
        cores.setdefault(cpu // width, []).append(cpu)
    return list(cores.values())


def _root(address: str, device_of: dict[str, Any]) -> str:
    """Return the name of the root complex above a function; the path ends at a bridge that is not listed."""
    root_address, seen = address, {address}
    while (device_of[root_address].parentBridge or "") in device_of and device_of[
        root_address
    ].parentBridge not in seen:
        root_address = device_of[root_address].parentBridge
        seen.add(root_address)
    return "pci" + ":".join(root_address.split(":")[:2])


def _function(
    device: Any, device_of: dict[str, Any], root: str, node: int | None, info: Any, physical: str | None
) -> Function:
    vendor, model = device.vendorId & 0xFFFF, device.deviceId & 0xFFFF
    code = (device.classId & 0xFFFF) << 8
    of_kind = kind(code, vendor, model)
    parent = device.parentBridge if device.parentBridge in device_of else None
    function = Function(
        address=device.id,
        root_complex=root,
        parent=parent,
        class_code=code,
        vendor_id=vendor,
        device_id=model,
        kind=of_kind,
        port_type=None,
        subsystem_vendor_id=device.subVendorId & 0xFFFF,
        subsystem_device_id=device.subDeviceId & 0xFFFF,
        numa_node=node,
        physical_function=physical,
    )
    if info is not None:
        function.passthrough = Passthrough(info.passthruCapable, info.passthruEnabled, info.passthruActive)
        if getattr(info, "sriovCapable", False):
            now = int(info.numVirtualFunction) if info.sriovActive else 0
            function.sriov = Sriov(total=int(info.maxVirtualFunctionSupported), now=now)
        if of_kind in PASSED_KINDS and not info.passthruCapable and physical is None and not (function.sriov and now):
            function.used_by_host = ["ESXi does not offer it for passthrough"]
    return function


def _root_complexes(functions: list[Function], names: set[str]) -> list[RootComplex]:
    complexes = []
    for name in sorted(names):
        domain, bus = (int(part, 16) for part in name[len("pci") :].split(":"))
        nodes = {item.numa_node for item in functions if item.root_complex == name and item.numa_node is not None}
        complexes.append(RootComplex(name, domain, bus, nodes.pop() if len(nodes) == 1 else None))
    return complexes


def _cpu(hardware: Any) -> Cpu:
    package = next(iter(hardware.cpuPkg or []), None)
    if package is None:
        return Cpu()
    vendor = (package.vendor or "").lower()
    return Cpu(
        # GPU passthrough is not supported on ESXi with other processors.
        architecture="x86_64" if vendor in VENDORS else None,
        vendor=VENDORS.get(vendor),
        model=package.description,
        virtualization=VIRTUALIZATION.get(vendor),
        physical_address_bits=_address_bits(hardware.cpuFeature or package.cpuFeature or []),
    )


def _address_bits(features: Iterable[Any]) -> int | None:
    """Return the physical address bits. A register is text of 32 digits, "0000:0000:...", the highest bit first."""
    for feature in features:
        digits = (feature.eax or "").replace(":", "")
        if feature.level & 0xFFFFFFFF == ADDRESS_SIZES_LEAF and len(digits) == 32 and set(digits[-8:]) <= {"0", "1"}:
            bits = int(digits[-8:], 2)
            return bits if bits >= 32 else None
    return None


def _notes(functions: list[Function], passthrough: dict[str, Any], owner: dict[str, str]) -> list[str]:
    notes = ["vSphere's API does not report BARs, links, ACS, ATS, MaxReadReq, IOMMU groups and NUMA distances"]
    if not passthrough:
        notes.append("the host reports nothing about passthrough: its IOMMU is off, or the account may not read it")
    without_node = [item.address for item in functions if item.kind in PASSED_KINDS and item.numa_node is None]
    if without_node:
        notes.append(f"the host does not report the NUMA node of {', '.join(without_node)}")
    wanting = [
        item.address for item in functions if item.sriov and item.sriov.now and len(item.sriov.vfs) < item.sriov.now
    ]
    if wanting:
        notes.append(f"vCenter does not report which functions are the virtual functions of {', '.join(wanting)}")
    return notes
