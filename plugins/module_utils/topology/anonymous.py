# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Remove from a recording what identifies its host: serial numbers, MACs, GUIDs, addresses, names of places.

Two rules apply. Numbers, enumerations and PCI addresses of the model stay. Text that the host's owner could have
chosen, or that could contain an identifier of the hardware, stays only if it has a form listed here:

- names of interfaces and block devices: the kernel's, systemd's and rdma-core's names by place and by number; any
  other (``enx001122334455``, ``rocex0c42a1...``) becomes ``net-1``, ``block-1``, ``rdma-1``, the same one each time;
- kernel arguments: those of ``KEPT_ARGUMENTS``; any other is removed, name and value (UUIDs, ``ip=``, passwords);
- reasons why the host uses a function: the kind of use and the mount points of ``KEPT_MOUNTS`` stay; other paths,
  networks and addresses are removed.

The kernel release, the name of the CPU model and the names of drivers stay as they are. Nothing that planning reads
is changed. Pure; a second pass changes nothing.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

# Names by place: systemd.net-naming-scheme(7) writes them after two letters, rdma_rename of rdma-core after its own.
_PLACE = (
    r"(P\d{1,5})?(p\d{1,3}s\d{1,2}|s\d{1,5}|o\d{1,5})(f\d)?(np\d{1,3}(s\d{1,3})?|npf\d{1,2}vf\d{1,3})?"
    r"(d\d{1,3})?(v\d{1,3})?"
)
# The forms of names that no person chooses, by kind of interface: names by place, and the kernel's names by number.
NAMES = {
    # Names of drivers, bonding, teaming, bridges and VLANs as in their documentation; Slingshot's are hsi and hsn.
    "net": re.compile(rf"(eth|ib|hsi|hsn|wlan|usb|bond|team|br|vlan|virbr|docker)\d{{1,4}}|(en|ib|sl|wl|ww){_PLACE}"),
    # Linux Documentation/admin-guide/devices.txt and drivers/nvme/host/multipath.c: sda, md127, dm-3, nvme0c1n1.
    "block": re.compile(
        r"(sd|vd|xvd|hd)[a-z]{1,3}|(sr|md|pmem|loop|ram|zd|nbd|rbd|mmcblk|dm-)\d{1,3}|nvme\d{1,3}(c\d{1,3})?n\d{1,3}"
    ),
    # Names in Linux drivers/infiniband, and rdma-core's by place.
    "rdma": re.compile(
        r"(mlx4_|mlx5_|mlx5_bond_|hfi1_|bnxt_re|cxgb4_|efa_|erdma_|hns_|irdma|mana_|mthca|ocrdma|qedr|qib|rxe|siw|usnic_"
        rf"|vmw_pvrdma)\d{{1,3}}|(ib|iw|opa|rdma|roce|usnic){_PLACE}"
    ),
}
# Linux Documentation/admin-guide/kernel-parameters.txt: the arguments that affect IOMMU, PCI, memory, CPUs and drivers.
KEPT_ARGUMENTS = frozenset(
    {
        "amd_iommu",
        "amd_iommu_intr",
        "default_hugepagesz",
        "hugepages",
        "hugepagesz",
        "hugetlb_cma",
        "idle",
        "intel_idle.max_cstate",
        "intel_iommu",
        "intel_pstate",
        "intremap",
        "iommu",
        "iommu.forcedac",
        "iommu.passthrough",
        "iommu.strict",
        "irqaffinity",
        "isolcpus",
        "kvm.nx_huge_pages",
        "kvm_amd.avic",
        "kvm_amd.nested",
        "kvm_intel.nested",
        "maxcpus",
        "mem",
        "mitigations",
        "modprobe.blacklist",
        "module_blacklist",
        "nohz_full",
        "nomodeset",
        "nosmt",
        "nr_cpus",
        "numa",
        "numa_balancing",
        "pci",
        "pcie_acs_override",
        "pcie_aspm",
        "pcie_port_pm",
        "pcie_ports",
        "processor.max_cstate",
        "quiet",
        "rcu_nocbs",
        "rd.driver.blacklist",
        "rd.driver.pre",
        "ro",
        "rw",
        "skew_tick",
        "swiotlb",
        "transparent_hugepage",
        "tsc",
        "vfio-pci.disable_idle_d3",
        "vfio-pci.disable_vga",
        "vfio-pci.ids",
        "vfio_iommu_type1.allow_unsafe_interrupts",
        "vfio_pci.ids",
        "video",
        "x2apic_phys",
    }
)
# Filesystem Hierarchy Standard 3.0, and systemd's places of the boot partitions.
KEPT_MOUNTS = frozenset(
    {
        "/",
        "/boot",
        "/boot/efi",
        "/efi",
        "/home",
        "/opt",
        "/srv",
        "/tmp",
        "/usr",
        "/var",
        "/var/lib",
        "/var/log",
        "/var/tmp",
    }
)

# (reason as topology/read/usage.py writes it, reason without the name). The group's name selects the check of the name
# that it matches.
_REASONS = (
    (r"holds the mounted file system (?P<mount>/.*)", "holds a mounted file system"),
    (r"holds the swap space .*", "holds swap space"),
    (r"is part of the block device (?P<block>.*)", "is part of a block device"),
    (r"carries the default route( through (?P<net>.*))?", "carries the default route"),
    (r"carries the IPv6 default route( through (?P<net>.*))?", "carries the IPv6 default route"),
    (r"carries the route to .*", "carries a route"),
    (r"has the address .*", "has an address"),
    (r"is under the interface (?P<net>.*)", "is under another interface"),
    (r"is the parent of the (mediated|vDPA) device .*", "is the parent of a device for guests"),
)
USED = "is in use by the host"


def anonymous(host: Host) -> Host:
    """Return a copy of ``host`` without what could identify it; ``host`` itself is not changed."""
    names: dict[tuple[str, str], str] = {}
    kinds_and_names = [
        (kind, name)
        for function in host.functions
        for kind in sorted(function.interfaces)
        for name in function.interfaces[kind]
    ]
    # Names that stay come first: their numbers are not given to other names.
    names.update({(kind, name): name for kind, name in kinds_and_names if _stays(kind, name)})
    for kind, name in kinds_and_names:
        if (kind, name) not in names:
            names[kind, name] = _number(names, kind)
    return replace(
        host,
        functions=[_function(function, names) for function in host.functions],
        kernel_arguments=[
            argument for argument in host.kernel_arguments if argument.partition("=")[0] in KEPT_ARGUMENTS
        ],
    )


def _stays(kind: str, name: str) -> bool:
    """Return True if ``name`` has one of the listed forms, or was assigned by an earlier pass."""
    return bool(NAMES[kind].fullmatch(name) or re.fullmatch(rf"{kind}-\d{{1,4}}", name))


def _number(names: dict[tuple[str, str], str], kind: str) -> str:
    """Return the first numbered name that nothing of the kind has."""
    number = 1
    while (new_name := f"{kind}-{number}") in names.values():
        number += 1
    return new_name


def _function(function: Function, names: dict[tuple[str, str], str]) -> Function:
    interfaces = {kind: [names[kind, name] for name in kind_names] for kind, kind_names in function.interfaces.items()}
    reasons = list(dict.fromkeys(_reason(text) for text in function.used_by_host))
    return replace(function, interfaces=interfaces, used_by_host=reasons)


def _reason(text: str) -> str:
    """Return the reason why the host uses a function; the object's name stays only if it has one of the kept forms."""
    for pattern, shortened in _REASONS:
        match = re.fullmatch(pattern, text)
        if match is None:
            continue
        groups = match.groupdict()
        is_known = any(
            value in KEPT_MOUNTS if name_kind == "mount" else NAMES[name_kind].fullmatch(value)
            for name_kind, value in groups.items()
            if value
        )
        return text if is_known or text == shortened else shortened
    return text if text == USED or text in {shortened for _pattern, shortened in _REASONS} else USED
