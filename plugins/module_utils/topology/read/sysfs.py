# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read a Host from ``/sys`` and ``/proc`` of the machine itself or of a recording.

Formats: Linux Documentation/ABI/testing/sysfs-bus-pci, sysfs-devices-node, sysfs-kernel-iommu_groups.
No process is started and few files are opened: for a PCI function its ``uevent``, ``resource``, ``numa_node``
and the needed registers of ``config``.
"""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.checks import check
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import has_switches
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Cpu,
    Host,
    HugePages,
    Iommu,
    NumaNode,
    NvidiaSoftware,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.files import LIMIT_CPUS, Files
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.functions import read_functions
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.usage import find_usage

# A key of /proc/cpuinfo for each architecture. The first one that is present counts: s390x has a vendor_id, too.
# Source: Linux arch/{s390,riscv,x86,arm64,powerpc}, show_cpuinfo and the functions that it calls.
ARCHITECTURES = {
    "# processors": "s390x",
    "hart": "riscv64",
    "vendor_id": "x86_64",
    "CPU implementer": "aarch64",
    "cpu": "ppc64le",
}
# The programs that manage NVSwitches: Fabric Manager, and the subnet manager of NVLink 5.
PROGRAMS = ("nv-fabricmanager", "nvlsm")
# Names of the devices in /sys/class/iommu: drivers/iommu/intel/dmar.c and drivers/iommu/amd/init.c.
IOMMU_KINDS = {"dmar": "intel", "ivhd": "amd"}


def read_host(root: str = "/") -> Host:
    """Return the whole host below ``root``, which holds ``sys`` and ``proc``.

    Raises TopologyError naming the path of a file that is missing, malformed or contradicts itself.
    """
    files = Files(root)
    if not files.exists("sys/devices/system/cpu") and not files.exists("sys/devices/system/node"):
        raise TopologyError(
            f"{files.path('sys/devices/system')} has no cpu or node directory: /sys is not mounted there", "mount it"
        )
    root_complexes, functions, notes = read_functions(files)
    find_usage(files, functions)
    host = Host(
        numa_nodes=read_numa_nodes(files),
        root_complexes=root_complexes,
        functions=list(functions.values()),
        cpu=read_cpu(files),
        iommu=read_iommu(files),
        kernel_release=read_kernel_release(files),
        kernel_arguments=read_kernel_arguments(files),
        nvidia=read_nvidia(files, has_switches(functions.values())),
        notes=notes,
    )
    try:
        check(host)
    except TopologyError as error:
        raise TopologyError(f"{files.path('sys')}: {error.cause}", error.remedy) from error
    return host


def parse_list(text: str, path: str) -> list[int]:
    """Return a kernel list ("0-3,8") as numbers. Raises TopologyError naming ``path``."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        if match:
            first, last = int(match[1]), int(match[2] or match[1])
            if last - first + len(numbers) >= LIMIT_CPUS:
                raise TopologyError(f"{path}: {text.strip()!r:.60} has more than {LIMIT_CPUS} numbers")
            numbers.extend(range(first, last + 1))
        elif text.strip():
            raise TopologyError(f"{path}: {text.strip()!r:.60} is not a list of numbers")
    return numbers


def read_numa_nodes(files: Files) -> list[NumaNode]:
    """Return all NUMA nodes, ascending. A kernel built without NUMA has one node 0 with everything."""
    top = "sys/devices/system/node"
    ids = sorted(int(name[4:]) for name in files.names(top) if re.fullmatch(r"node\d+", name))
    if not ids:
        return [_only_node(files)]
    siblings: dict[int, list[int]] = {}
    return [_numa_node(files, node, ids, siblings) for node in ids]


def _only_node(files: Files) -> NumaNode:
    path = "sys/devices/system/cpu/online"
    online = files.text_or_none(path)
    if online is None:
        # Linux before 2.6.29 and partial copies have no such list.
        names = files.names("sys/devices/system/cpu")
        cpus = sorted(int(name[3:]) for name in names if re.fullmatch(r"cpu[0-9]{1,9}", name))
    else:
        cpus = parse_list(online, files.path(path))
    total, free = _memory(files, "proc/meminfo", "")
    pages = _huge_pages(files, "sys/kernel/mm/hugepages")
    return NumaNode(0, cpus, _siblings(files, cpus, {}), total, free, pages, socket=_socket(files, cpus))


def _numa_node(files: Files, node: int, ids: list[int], siblings: dict[int, list[int]]) -> NumaNode:
    top = f"sys/devices/system/node/node{node}"
    cpus = _cpus_of_node(files, top)
    total, free = _memory(files, f"{top}/meminfo", f"Node {node} ")
    distances = (files.text_or_none(f"{top}/distance") or "").split()
    distance_ids = ids
    if len(distances) != len(ids):
        # The copy was made while a node was offline.
        path = "sys/devices/system/node/possible"
        distance_ids = parse_list(files.text_or_none(path) or "", files.path(path))
    if distances and (
        len(distances) != len(distance_ids) or not all(re.fullmatch("[0-9]{1,9}", text) for text in distances)
    ):
        raise TopologyError(f"{files.path(top)}/distance: {distances} does not give one number for each node of {ids}")
    return NumaNode(
        id=node,
        cpus=cpus,
        siblings=_siblings(files, cpus, siblings),
        memory_bytes=total,
        memory_free_bytes=free,
        huge_pages=_huge_pages(files, f"{top}/hugepages"),
        distances={str(other_id): int(text) for other_id, text in zip(distance_ids, distances) if other_id in ids},
        socket=_socket(files, cpus),
    )


def _cpus_of_node(files: Files, top: str) -> list[int]:
    """Return the CPUs of a node; from the mask if there is no list (Linux before 2.6.26, partial copies)."""
    mask = files.text_or_none(f"{top}/cpumap")
    text = files.text_or_none(f"{top}/cpulist")
    if text is not None or mask is None:
        path = f"{top}/cpulist"
        return parse_list(files.text(path), files.path(path))
    numbers = mask.strip().split(",")
    if len(numbers) > LIMIT_CPUS // 32 or not all(re.fullmatch("[0-9a-f]{1,8}", word) for word in numbers):
        raise TopologyError(f"{files.path(top)}/cpumap: {mask.strip()!r:.60} is not a mask in words of up to 8 digits")
    number = int("".join(word.rjust(8, "0") for word in numbers), 16)
    return [bit for bit in range(number.bit_length()) if number >> bit & 1]


def _siblings(files: Files, cpus: list[int], core_of: dict[int, list[int]]) -> list[list[int]]:
    """Return the CPUs grouped by core, each core's file read once; one CPU per core if the files are missing."""
    for cpu in cpus:
        if cpu in core_of:
            continue
        path = f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        text = files.text_or_none(path)
        core = [cpu] if text is None else parse_list(text, files.path(path))
        if cpu not in core:
            raise TopologyError(f"{files.path(path)}: {core} does not include CPU {cpu} itself")
        core_of.update((sibling, core) for sibling in core)
    node_cpus = set(cpus)
    cores = {tuple(cpu for cpu in core_of[cpu] if cpu in node_cpus) for cpu in cpus}
    return [list(core) for core in sorted(cores)]


def _socket(files: Files, cpus: list[int]) -> int | None:
    """Return the package of all these CPUs (Documentation/ABI/stable/sysfs-devices-system-cpu); None if not known."""
    top = f"sys/devices/system/cpu/cpu{cpus[0] if cpus else None}/topology"
    package = files.text_or_none(f"{top}/physical_package_id") or ""
    of_package = files.text_or_none(f"{top}/core_siblings_list") or ""
    # The kernel writes -1 where the platform has no number for it.
    if not re.fullmatch("[0-9]{1,9}", package.strip()):
        return None
    path = files.path(f"{top}/core_siblings_list")
    return int(package) if set(cpus) <= set(parse_list(of_package, path)) else None


def _memory(files: Files, path: str, prefix: str) -> tuple[int, int | None]:
    """Return total and free bytes. The kernel writes kB and means KiB."""
    text = files.text(path)
    sizes = {}
    for name in ("MemTotal", "MemFree"):
        match = re.search(rf"^{prefix}{name}:\s+(\d+) kB$", text, re.MULTILINE)
        sizes[name] = int(match[1]) * 1024 if match else None
    if sizes["MemTotal"] is None:
        raise TopologyError(f"{files.path(path)} has no line MemTotal")
    return sizes["MemTotal"], sizes["MemFree"]


def _huge_pages(files: Files, top: str) -> list[HugePages]:
    sizes = []
    for name in files.names(top):
        match = re.fullmatch(r"hugepages-(\d+)kB", name)
        if match:
            total, free = files.number(f"{top}/{name}/nr_hugepages"), files.number(f"{top}/{name}/free_hugepages")
            sizes.append(HugePages(int(match[1]) * 1024, total, free))
    return sorted(sizes, key=lambda pages: pages.size_bytes)


def read_cpu(files: Files) -> Cpu:
    """Read the first processor of /proc/cpuinfo; the others are assumed to be the same."""
    text = files.text_or_none("proc/cpuinfo", limit=16384) or ""
    first = dict(re.findall(r"^([^:\n]+?)\s*:[ \t]*(.*)$", text.split("\n\n")[0], re.MULTILINE))
    flags = first.get("flags", "").split()
    bits = re.match(r"(\d+) bits physical", first.get("address sizes", ""))
    return Cpu(
        architecture=next((name for key, name in ARCHITECTURES.items() if key in first), None),
        vendor=first.get("vendor_id"),
        model=first.get("model name"),
        virtualization=next((flag for flag in ("vmx", "svm") if flag in flags), None),
        physical_address_bits=int(bits[1]) if bits else None,
    )


def read_iommu(files: Files) -> Iommu:
    """Read the IOMMU: kind, type of the groups' default domains ("mixed" if they differ), interrupt remapping."""
    names = files.names("sys/class/iommu")
    kinds = sorted({IOMMU_KINDS.get(name.rstrip("0123456789"), "other") for name in names})
    groups = files.names("sys/kernel/iommu_groups")
    types = {files.text_or_none(f"sys/kernel/iommu_groups/{group}/type") for group in groups} - {None}
    domains = sorted({text.strip() for text in types if text})
    return Iommu(
        kind=kinds[0] if kinds else None,
        default_domain=domains[0] if len(domains) == 1 else "mixed" if domains else None,
        interrupt_remapping=_interrupt_remapping(files),
        address_bits=_address_bits(files, names),
        unsafe_interrupts=_unsafe_interrupts(files),
    )


def _address_bits(files: Files, names: list[str]) -> int | None:
    """Return the fewest address bits of all IOMMUs; None if they are not known of one of them.

    Intel: the smaller of MGAW (bits 21:16, plus 1) and the widest of SAGAW (bits 12:8) in the capability register (VT-d
    specification, 10.4.2); without SAGAW, first-stage tables have 48 bits. AMD: HATS in the extended features (AMD I/O
    Virtualization Technology specification, 3.4.4) says 4 levels of pages or more: at least 48 bits.
    """
    widths = []
    for name in names:
        kind = IOMMU_KINDS.get(name.rstrip("0123456789"))
        if kind == "amd" and files.exists(f"sys/class/iommu/{name}/amd-iommu/features"):
            widths.append(48)
            continue
        text = files.text_or_none(f"sys/class/iommu/{name}/intel-iommu/cap") if kind == "intel" else None
        if text is None or not re.fullmatch("[0-9a-f]{1,16}", text.strip()):
            return None
        capability = int(text, 16)
        widest = (capability >> 8 & 0x1F).bit_length() - 1
        tables = 30 + 9 * widest if widest > 0 else 48
        widths.append(min((capability >> 16 & 0x3F) + 1, tables))
    return min(widths, default=None)


def _unsafe_interrupts(files: Files) -> bool | None:
    """Return the parameter of VFIO's modules for a group or for iommufd; None if neither module is loaded."""
    texts = [
        files.text_or_none(f"sys/module/{module}/parameters/allow_unsafe_interrupts")
        for module in ("vfio_iommu_type1", "iommufd")
    ]
    values = [text.strip() == "Y" for text in texts if text is not None]
    return any(values) if values else None


def _interrupt_remapping(files: Files) -> bool | None:
    """Return True if interrupts go through the IOMMU: Linux then names the chip "IR-IO-APIC" or "IR-PCI-MSI".

    Source: arch/x86/kernel/apic/io_apic.c, drivers/iommu/intel/irq_remapping.c, drivers/iommu/amd/iommu.c.
    """
    for number in files.names("sys/kernel/irq"):
        chip = (files.text_or_none(f"sys/kernel/irq/{number}/chip_name") or "").strip()
        if chip.startswith("IR-"):
            return True
        if chip.startswith(("IO-APIC", "PCI-MSI")):
            return False
    return None


def read_kernel_release(files: Files) -> str | None:
    """Return the kernel release ("6.1.0-18-amd64"); None in a recording without it."""
    text = files.text_or_none("proc/sys/kernel/osrelease")
    if text is not None:
        return text.strip()
    version = (files.text_or_none("proc/version") or "").split()
    return version[2] if len(version) > 2 else None


def read_kernel_arguments(files: Files) -> list[str]:
    """Read /proc/cmdline by the kernel's rule: blanks separate arguments, double quotes group words and are kept."""
    return re.findall(r'(?:[^\s"]|"[^"]*"?)+', files.text_or_none("proc/cmdline") or "")


def read_nvidia(files: Files, switches: bool) -> NvidiaSoftware | None:
    """Return NVIDIA's software as it runs; None without driver and NVSwitches. The programs are those with NVSwitches.

    Formats: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.91.07  Release Build ..."; /proc/PID/comm has
    the first 15 characters of a program's name (proc_pid_comm(5)).
    """
    text = files.text_or_none("proc/driver/nvidia/version") or ""
    version = re.search(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", text, re.MULTILINE)
    if not switches:
        return NvidiaSoftware(version[1]) if version else None
    running = set()
    for name in files.names("proc"):
        if name.isdecimal():
            try:
                running.add((files.text_or_none(f"proc/{name}/comm") or "").strip())
            except TopologyError:  # the process has ended
                continue
    programs = [program for program in PROGRAMS if program[:15] in running]
    return NvidiaSoftware(version[1] if version else None, programs)
