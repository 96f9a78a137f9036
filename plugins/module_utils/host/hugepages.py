# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Huge pages by NUMA node and size, and a mounted hugetlbfs of every size that is used.

Sources: Linux Documentation/admin-guide/mm/hugetlbpage.rst (the files, and that a write to nr_hugepages may
give fewer pages than requested) and sysctl/vm.rst (compact_memory).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

NODES = "/sys/devices/system/node"
# Page sizes of x86_64: Intel SDM volume 3, 4.5 (pages of a page directory and of a page-directory-pointer table).
SIZES_MIB = (2, 1024)
# Linux on x86 has at most 1024 nodes (CONFIG_NODES_SHIFT is 10 at most, arch/x86/Kconfig).
NODE_MAX = 1023
# 2^40 pages of 2 MiB are more than 52 bits can address.
COUNT_MAX = 1 << 40


@dataclass(frozen=True, order=True)
class Pool:
    """The pages of one size on one node."""

    node: int
    size_mib: int

    def __str__(self) -> str:
        return f"node{self.node} {self.size_mib} MiB"

    @property
    def directory(self) -> str:
        """Return the kernel's directory of the pool."""
        return f"{NODES}/node{self.node}/hugepages/hugepages-{self.size_mib * 1024}kB"


@dataclass(frozen=True)
class Count:
    """Counts of pages of a pool."""

    total: int
    free: int


def wanted(data: Any) -> dict[Pool, int]:
    """Return ``{"pages": [{"node": 0, "size_mib": 1024, "count": 8}]}`` as counts by pool. Raises HostError."""
    request = Settings(RequestError, "hugepages", data)
    request.only("pages")
    request.need("pages")
    counts: dict[Pool, int] = {}
    for page in request.parts("pages"):
        page.only("node", "size_mib", "count")
        page.need("node", "size_mib", "count")
        pool = Pool(page.value("node", values.within(0, NODE_MAX)), page.value("size_mib", values.among(*SIZES_MIB)))
        if pool in counts:
            raise page.refuse(f"{pool} is given twice", "give it once")
        counts[pool] = page.value("count", values.within(0, COUNT_MAX))
    return counts


def observe(system: System) -> dict[Pool, Count]:
    """Return every pool that the kernel has."""
    pools = {}
    for name in system.names(NODES):
        node = re.fullmatch(r"node(\d+)", name)
        if not node:
            continue
        for directory in system.names(f"{NODES}/{name}/hugepages"):
            size = re.fullmatch(r"hugepages-(\d+)kB", directory)
            # Pages under 1 MiB (64 KiB on aarch64) are not used for guests.
            if size and int(size[1]) >= 1024:
                pool = Pool(int(node[1]), int(size[1]) // 1024)
                pools[pool] = _count(system, pool)
    return pools


def plan(seen: dict[Pool, Count], memory_mib: dict[int, int], want: dict[Pool, int]) -> list[tuple[Pool, int]]:
    """Return the writes, in order: first those that free memory, then the largest pages.

    ``memory_mib`` is the total memory of each node. Raises HostError for a size or node that does not exist, for more
    pages than a node has memory for, and for removing pages that are in use.
    """
    for pool, count in want.items():
        if pool.node not in memory_mib:
            raise HostError(
                f"hugepages: there is no NUMA node {pool.node}", f"this host has the nodes {sorted(memory_mib)}"
            )
        if pool not in seen:
            sizes = sorted(candidate.size_mib for candidate in seen if candidate.node == pool.node)
            raise HostError(
                f"hugepages: node{pool.node} has no pages of {pool.size_mib} MiB",
                f"this CPU and kernel support {sizes} MiB",
            )
        used = seen[pool].total - seen[pool].free
        if count < used:
            raise HostError(
                f"hugepages: {used} pages of {pool} are in use, so they cannot become {count}",
                "stop the guests that use them first",
            )
    for node, memory in memory_mib.items():
        total = sum(pool.size_mib * want.get(pool, seen[pool].total) for pool in seen if pool.node == node)
        if total > memory and any(pool.node == node for pool in want):
            raise HostError(
                f"hugepages: node{node} has {memory} MiB of memory, but {total} MiB of huge pages are requested there",
                "request fewer",
            )
    writes = [(pool, count) for pool, count in want.items() if count != seen[pool].total]
    return sorted(writes, key=lambda write: (write[1] > seen[write[0]].total, -write[0].size_mib, write[0].node))


def ensure(system: System, data: Any, check: bool = False) -> Outcome:
    """Set the pools in ``data`` (see ``wanted``) to their counts; others stay as they are.

    Raises HostError, with the reason, if the kernel gave fewer pages. The pages that it gave are kept, so that a later
    run continues from there.
    """
    want = wanted(data)
    seen = observe(system)
    outcome = Outcome()
    writes = plan(seen, {node: _memory_mib(system, node, "MemTotal") for node in _nodes(system)}, want)
    for pool, count in writes:
        outcome.differ(str(pool), seen[pool].total, count)
    mounts = _missing_mounts(system, {pool.size_mib for pool, count in want.items() if count})
    for size_mib, target in mounts:
        outcome.differ(f"mount {target}", None, f"hugetlbfs pagesize={size_mib}M")
    outcome.facts = {"hugepages": _report(seen, want), "hugetlbfs_mounted": [target for _size, target in mounts]}
    if check:
        return outcome
    for pool, count in writes:
        _write(system, pool, count)
    for size_mib, target in mounts:
        system.run(["mkdir", "-p", target])
        system.run(["mount", "-t", "hugetlbfs", "-o", f"pagesize={size_mib}M", "hugetlbfs", target])
    if mounts:
        _tell_libvirt(system)
    outcome.facts["hugepages"] = _report({pool: _count(system, pool) for pool in want}, want)
    return outcome


def _write(system: System, pool: Pool, count: int) -> None:
    system.poke(f"{pool.directory}/nr_hugepages", str(count))
    got = _count(system, pool).total
    if got < count:
        # Compaction moves used pages together; one run is enough to distinguish fragmentation from lack of memory.
        system.poke("/proc/sys/vm/compact_memory", "1")
        system.poke(f"{pool.directory}/nr_hugepages", str(count))
        got = _count(system, pool).total
    if got != count:
        free_mib = _memory_mib(system, pool.node, "MemFree")
        missing_mib = (count - got) * pool.size_mib
        if free_mib < missing_mib:
            cause = f"only {free_mib} MiB are free on that node, but {missing_mib} MiB more are needed"
            remedy = "stop what uses its memory, or request fewer"
        elif reserved_at_boot(system, pool.size_mib):
            # mm/hugetlb.c allocates with memblock_alloc_try_nid_raw, which falls back to other nodes silently.
            cause = (
                "this boot's kernel arguments reserve pages of this size, but the node had no free block of that size "
                "so early, so the kernel took them from another node"
            )
            remedy = "request fewer on this node, or reboot to try again"
        else:
            cause = f"{free_mib} MiB are free on that node, but not in one block of {pool.size_mib} MiB (fragmentation)"
            arguments = f"hugepagesz={pool.size_mib}M hugepages={pool.node}:{count}"
            remedy = f"reserve them at boot with the kernel arguments {arguments}"
        raise HostError(f"hugepages: the kernel gave {got} of {count} pages of {pool}: {cause}", remedy)


def reserved_at_boot(system: System, size_mib: int) -> bool:
    """Return True if the kernel's arguments reserve pages of this size."""
    sizes = re.findall(r"\bhugepagesz=(\d+)([KMG])", system.read("/proc/cmdline") or "")
    return any(int(number) * {"K": 1 / 1024, "M": 1, "G": 1024}[unit] == size_mib for number, unit in sizes)


def _missing_mounts(system: System, sizes_mib: set[int]) -> list[tuple[int, str]]:
    """Return the mounts that are missing: libvirt uses only mounted sizes; systemd mounts only the default size."""
    mounted = set()
    default_mib = _default_size_mib(system)
    for line in (system.read("/proc/mounts") or "").splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[2] == "hugetlbfs":
            size = re.search(r"pagesize=(\d+)([KMG])", fields[3])
            mounted.add(int(size[1]) * {"K": 1 / 1024, "M": 1, "G": 1024}[size[2]] if size else default_mib)
    return [(size, f"/dev/hugepages-{size}M") for size in sorted(sizes_mib) if size not in mounted]


def _tell_libvirt(system: System) -> None:
    """Restart libvirt, which looks for mounts only at start; its guests keep running, and at boot it is not yet up."""
    units = [
        unit for unit in ("libvirtd.service", "virtqemud.service") if system.exists(f"/usr/lib/systemd/system/{unit}")
    ]
    if units:
        system.run(["systemctl", "--no-block", "try-restart", *units])


def _default_size_mib(system: System) -> int | None:
    match = re.search(r"Hugepagesize:\s+(\d+) kB", system.read("/proc/meminfo") or "")
    return int(match[1]) // 1024 if match else None


def _nodes(system: System) -> list[int]:
    return [int(name[4:]) for name in system.names(NODES) if re.fullmatch(r"node\d+", name)]


def _memory_mib(system: System, node: int, key: str) -> int:
    match = re.search(rf"{key}:\s+(\d+) kB", system.read(f"{NODES}/node{node}/meminfo") or "")
    if not match:
        raise HostError(f"hugepages: {NODES}/node{node}/meminfo has no {key}", "check that /sys is complete")
    return int(match[1]) // 1024


def _count(system: System, pool: Pool) -> Count:
    total, free = (system.read(f"{pool.directory}/{name}") for name in ("nr_hugepages", "free_hugepages"))
    if total is None or free is None:
        raise HostError(f"hugepages: {pool.directory} cannot be read", "check that /sys is complete")
    return Count(int(total), int(free))


def _report(seen: dict[Pool, Count], want: dict[Pool, int]) -> list[dict[str, int]]:
    return [
        {
            "node": pool.node,
            "size_mib": pool.size_mib,
            "wanted": want[pool],
            "total": seen[pool].total,
            "free": seen[pool].free,
        }
        for pool in sorted(want)
    ]
