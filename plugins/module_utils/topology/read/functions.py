# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The PCI tree of ``/sys``: root complexes and functions."""

from __future__ import annotations

import os
import re

from ansible_collections.sailloft.fleet.plugins.module_utils.pci import capabilities, vpd
from ansible_collections.sailloft.fleet.plugins.module_utils.pci import registers as r
from ansible_collections.sailloft.fleet.plugins.module_utils.pci.config import ConfigSpace, PciError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import function_roles
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.kinds import PORT_TYPES, kind
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Acs,
    AtomicOps,
    Ats,
    Bar,
    Function,
    Link,
    RootComplex,
    Sriov,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.files import Files
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.places import (
    ROOT_COMPLEX,
    FunctionPlace,
    find_places,
    linked_address,
)

# Bits of the third column of "resource": IORESOURCE_* of Linux include/linux/ioport.h.
IORESOURCE_IO = 0x00000100
IORESOURCE_MEM = 0x00000200
IORESOURCE_PREFETCH = 0x00002000
IORESOURCE_MEM_64 = 0x00100000
IORESOURCE_ROM_SHADOW = 0x00000002  # a copy of a ROM in memory; no BAR requests it
IORESOURCE_UNSET = 0x20000000  # no address was assigned
# Lines of "resource": Linux include/linux/pci.h PCI_STD_RESOURCES, PCI_ROM_RESOURCE, PCI_IOV_RESOURCES.
ROM_INDEX = 6
FIRST_VF_BAR = 7
VF_BARS = 6
# The sizes of AtomicOps in bits, by the bit that says that a function completes them.
ATOMIC_COMPLETERS = {
    32: r.PCI_EXP_DEVCAP2_ATOMIC_COMP32,
    64: r.PCI_EXP_DEVCAP2_ATOMIC_COMP64,
    128: r.PCI_EXP_DEVCAP2_ATOMIC_COMP128,
}


def read_functions(files: Files) -> tuple[list[RootComplex], dict[str, Function], list[str]]:
    """Return all root complexes, all functions by address, both in the order of their addresses, and notes."""
    places, notes = find_places(files)
    functions = {address: _function(files, address, place, notes) for address, place in places.items()}
    for function in functions.values():
        if function.sriov is not None and len(function.sriov.vfs) != function.sriov.now:
            path = f"{files.path(places[function.address].directory)}/sriov_numvfs"
            raise TopologyError(
                f"{path} says {function.sriov.now}, but {len(function.sriov.vfs)} VFs are there", "read again"
            )
    _read_management(files, functions, places, notes)
    return _root_complexes(files, functions), functions, notes


def _read_management(
    files: Files, functions: dict[str, Function], places: dict[str, FunctionPlace], notes: list[str]
) -> None:
    """Find the functions that manage NVSwitches, where there are GPUs with NVLink 5: reading VPD takes milliseconds."""
    if not any(function_roles.has_nvlink5(function) for function in functions.values()):
        return
    for address, function in functions.items():
        if function.kind != "nic" or function.vendor_id != function_roles.MELLANOX or function.physical_function:
            continue
        path = f"{places[address].directory}/vpd"
        try:
            data = files.bytes_or_none(path, vpd.VPD_BYTES_MAX)
        except TopologyError as error:
            data = None
            notes.append(f"whether {address} manages NVSwitches is not known: {error.cause}")
        function.manages_nvswitches = function_roles.manages_nvswitches(data or b"")
    function_roles.mark_management(functions.values())


def _root_complexes(files: Files, functions: dict[str, Function]) -> list[RootComplex]:
    """Return the root complexes with functions, and the empty ones in /sys/devices."""
    names = {function.root_complex for function in functions.values()}
    names.update(name for name in files.names("sys/devices") if ROOT_COMPLEX.fullmatch(name))
    complexes = []
    for name in names:
        match = ROOT_COMPLEX.fullmatch(name)
        if match is None:
            raise TopologyError(f"{name} is not the name of a root complex")
        nodes = {function.numa_node for function in functions.values() if function.root_complex == name} - {None}
        # All functions below a root complex have its node; if a quirk says otherwise, the complex has no node.
        complexes.append(
            RootComplex(name, int(match[1], 16), int(match[2], 16), nodes.pop() if len(nodes) == 1 else None)
        )
    return sorted(complexes, key=lambda item: (item.domain, item.bus))


def _function(files: Files, address: str, place: FunctionPlace, notes: list[str]) -> Function:
    directory, path = place.directory, files.path(place.directory)
    uevent = _identity(files, directory)
    try:
        class_code = int(uevent["PCI_CLASS"], 16)
        vendor_id, device_id = (int(part, 16) for part in uevent["PCI_ID"].split(":"))
        subsystem = [int(part, 16) for part in uevent.get("PCI_SUBSYS_ID", "").split(":") if part]
        subsystem_vendor_id, subsystem_device_id = subsystem or (None, None)
    except (KeyError, ValueError) as error:
        raise TopologyError(f"{path}/uevent has no usable PCI_CLASS, PCI_ID, PCI_SUBSYS_ID: {error}") from error
    if not vendor_id:
        notes.append(f"vendor and device of {address} were not copied, so its kind is not known")
    names = files.names(directory)
    numa_node = files.number(f"{directory}/numa_node") if "numa_node" in names else -1
    bars, vf_bars, unassigned = _bars(files, f"{directory}/resource") if "resource" in names else ([], [], [])
    function = Function(
        address=address,
        root_complex=place.root_complex,
        parent=place.parent,
        class_code=class_code,
        vendor_id=vendor_id,
        device_id=device_id,
        kind=kind(class_code, vendor_id, device_id),
        port_type=None,
        subsystem_vendor_id=subsystem_vendor_id,
        subsystem_device_id=subsystem_device_id,
        driver=uevent.get("DRIVER"),
        numa_node=numa_node if numa_node >= 0 else None,
        iommu_group=_iommu_group(files, directory) if "iommu_group" in names else None,
        bars=bars,
        unassigned_bars=unassigned,
        sriov=_sriov(files, directory, names, vf_bars) if "sriov_totalvfs" in names else None,
        physical_function=linked_address(files, f"{directory}/physfn") if "physfn" in names else None,
    )
    if "config" in names:
        try:
            _read_config(files, f"{directory}/config", function)
        except PciError as error:
            raise TopologyError(f"{path}/config: {error.cause}", error.remedy) from error
    if function.sriov is not None and function.config_bytes < r.PCI_CFG_SPACE_EXP_SIZE:
        function.sriov.vf_bars = []  # the kernel gives the size of all VFs together, without their number
    if function.config_bytes < r.PCI_CFG_SPACE_SIZE and "current_link_speed" in names:
        function.link = _link_of_files(files, directory)
    return function


def _identity(files: Files, directory: str) -> dict[str, str]:
    """Return the lines of ``uevent``, or their equivalent from ``class``, ``vendor`` and ``device`` if it is missing.

    Ids that are missing too are 0, which no vendor has. Raises TopologyError if there is no class either.
    """
    text = files.text_or_none(f"{directory}/uevent")
    if text is not None:
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if not files.exists(f"{directory}/class"):
        files.text(f"{directory}/uevent")
    ids = {
        name: (files.text_or_none(f"{directory}/{name}") or "0").strip()
        for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")
    }
    subsystem = f"{ids['subsystem_vendor']}:{ids['subsystem_device']}"
    return {
        "PCI_CLASS": files.text(f"{directory}/class").strip(),
        "PCI_ID": f"{ids['vendor']}:{ids['device']}",
        **({} if subsystem == "0:0" else {"PCI_SUBSYS_ID": subsystem}),
    }


def _iommu_group(files: Files, directory: str) -> int | None:
    """Return the number of the group; None if a copy has a directory in place of the link."""
    target = files.link(f"{directory}/iommu_group")
    if target is None:
        return None
    group = target.rsplit("/", 1)[-1]
    if not re.fullmatch("[0-9]{1,9}", group):
        raise TopologyError(f"{files.path(directory)}/iommu_group leads to {group!r}, which is not a number")
    return int(group)


def _bars(files: Files, path: str) -> tuple[list[Bar], list[Bar], list[int]]:
    """Return a function's own BARs, its VF BARs, and the indexes of its own memory BARs that have no address.

    The size of a VF BAR is that of all VFs together. A BAR without an address has its size if the kernel kept it.
    """
    physical: list[Bar] = []
    virtual: list[Bar] = []
    unassigned: list[int] = []
    for index, line in enumerate(files.text(path).splitlines()):
        try:
            start, end, flags = (int(word, 16) for word in line.split())
        except ValueError as error:
            raise TopologyError(f"{files.path(path)}: line {index + 1}, {line!r}, is not three numbers") from error
        if index >= FIRST_VF_BAR + VF_BARS or not flags & (IORESOURCE_IO | IORESOURCE_MEM):
            continue
        if index < ROM_INDEX and flags & IORESOURCE_MEM and (start == end == 0 or flags & IORESOURCE_UNSET):
            unassigned.append(index)
        if start == end == 0:
            continue
        if flags & IORESOURCE_ROM_SHADOW and index == ROM_INDEX:
            continue
        if end < start:
            raise TopologyError(f"{files.path(path)}: line {index + 1}, {line!r}, ends before it starts")
        region = Bar(
            index=index if index < FIRST_VF_BAR else index - FIRST_VF_BAR,
            size_bytes=end - start + 1,
            kind="io" if flags & IORESOURCE_IO else "memory",
            width_bits=64 if flags & IORESOURCE_MEM_64 else 32,
            prefetchable=bool(flags & IORESOURCE_PREFETCH),
        )
        (physical if index < FIRST_VF_BAR else virtual).append(region)
    return physical, virtual, unassigned


def _sriov(files: Files, directory: str, names: list[str], vf_bars: list[Bar]) -> Sriov:
    indexes = sorted(int(name[6:]) for name in names if re.fullmatch(r"virtfn\d+", name))
    vfs = [linked_address(files, f"{directory}/virtfn{index}") or "" for index in indexes]
    total = files.number(f"{directory}/sriov_totalvfs")
    now = files.number(f"{directory}/sriov_numvfs") if "sriov_numvfs" in names else len(vfs)
    return Sriov(total, now, vfs, vf_bars)


def _link_of_files(files: Files, directory: str) -> Link:
    """Read the link from the kernel's files, which need no privilege: "16.0 GT/s PCIe", "8 GT/s", "Unknown".

    A value is None if the file does not say it, or if the kernel (before 4.13) or the copy has no such file.
    """

    def speed(name: str) -> float | None:
        match = re.match(r"(\d+(?:\.\d+)?) GT/s", files.text_or_none(f"{directory}/{name}") or "")
        return float(match[1]) if match else None

    def width(name: str) -> int | None:
        path = f"{directory}/{name}"
        return files.number(path) or None if files.exists(path) else None

    return Link(
        speed("current_link_speed"), width("current_link_width"), speed("max_link_speed"), width("max_link_width")
    )


def _read_config(files: Files, path: str, function: Function) -> None:
    """Set the fields of ``function`` that only config space has, if it could be read."""
    descriptor = files.open(path)
    if descriptor is None:
        raise TopologyError(f"{files.path(path)} disappeared while it was being read", "read again")
    try:
        head = os.pread(descriptor, r.PCI_CFG_SPACE_SIZE, 0)
        is_complete = len(head) == r.PCI_CFG_SPACE_SIZE
        size = os.fstat(descriptor).st_size if is_complete else len(head)
        config = ConfigSpace(head, size, lambda offset, count: os.pread(descriptor, count, offset))
        if config.answers:
            _fill(function, config)
    except OSError as error:
        raise TopologyError(f"{files.path(path)} cannot be read: {error.strerror}", "read it as root") from error
    finally:
        os.close(descriptor)


def _atomic_ops(express: capabilities.Express) -> AtomicOps:
    """Return the AtomicOps of a function; version 1 of the capability, without these registers, has none."""
    capability, control = express.device_capabilities_2 or 0, express.device_control_2 or 0
    return AtomicOps(
        [bits for bits, flag in ATOMIC_COMPLETERS.items() if capability & flag],
        bool(capability & r.PCI_EXP_DEVCAP2_ATOMIC_ROUTE),
        bool(control & r.PCI_EXP_DEVCTL2_ATOMIC_REQ),
        bool(control & r.PCI_EXP_DEVCTL2_ATOMIC_EGRESS_BLOCK),
    )


def _fill(function: Function, config: ConfigSpace) -> None:
    function.config_bytes = config.size
    if config.header_type == r.PCI_HEADER_TYPE_BRIDGE:
        function.secondary_bus = config.read(r.PCI_SECONDARY_BUS, 1)
        function.subordinate_bus = config.read(r.PCI_SUBORDINATE_BUS, 1)
    express = capabilities.express(config)
    if express is not None:
        function.port_type = PORT_TYPES.get(express.port_type)
        function.link = Link(**express.link._asdict()) if express.link else None
        function.atomic_ops = _atomic_ops(express)
        # These bits are reserved in a VF, which uses its PF's settings (PCI Express Base Specification 9.3.5.4).
        if function.physical_function is None:
            function.max_read_request_bytes = express.max_read_request_bytes
            function.max_payload_bytes = express.max_payload_bytes
            function.relaxed_ordering = express.relaxed_ordering
    virtual = capabilities.sriov(config)
    if function.sriov is not None and virtual is not None:
        for region in function.sriov.vf_bars:
            # Linux reserves space for TotalVFs of the capability, even if the driver allows fewer VFs.
            region.size_bytes //= max(virtual.total_vfs, 1)
    acs, ats = capabilities.acs(config), capabilities.ats(config)
    function.acs = Acs(acs.capability, acs.control) if acs else None
    function.ats = Ats(ats.enabled, ats.smallest_translation_unit) if ats else None
