# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The outlook for GPUDirect: the known causes that slow it down between each GPU and the NICs nearest to it. Pure.

Each cause has a cost, as users have measured it, and a remedy. The figures are from the threads that the cost names;
this project measured none of them. A value that could not be read is a cause, too: unknown never counts as fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap

from ansible_collections.sailloft.fleet.plugins.module_utils.pci.registers import PCI_CFG_SPACE_EXP_SIZE
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import atomic_ops
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect import acs_rules as rules
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_plan import AcsPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import (
    LARGE_BARS,
    unreachable_memory_reason,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host, Link
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import PATH_CLASSES, Paths

NEAREST_FIRST = list(PATH_CLASSES)
BELOW_ONE_SWITCH = ("PIX", "PXB")
NOT_NEEDED, UNKNOWN = "-", "not known"
READ_AS_ROOT = "read or record the host as root"
# The columns of ``lines``; the guest's path is the one that NCCL finds in the guest. Values of SETTINGS that are equal
# for all pairs are in a line above the table, which so fits 80 columns. "ordering" is relaxed ordering.
COLUMNS = ("GPU", "NIC", "host", "guest", "verdict")
SETTINGS = ("ATS", "ACS", "ordering", "MaxReadReq", "huge pages", "GB/s")
# PCI Express Base Specification: 8b/10b up to 5 GT/s, 128b/130b from 8 GT/s on, and FLITs from 64 GT/s on (of 256 bytes
# 242 are data: 236 of the transaction layer and 6 of the data link layer).
ENCODINGS = ((5.0, 8 / 10), (32.0, 128 / 130), (64.0, 242 / 256))


@dataclass(frozen=True)
class Cause:
    """A cause that makes GPUDirect slower, with its cost and remedy. ``severity`` 0 is not known, 2 is the worst."""

    severity: int
    what: str
    cost: str
    remedy: str


SMALL_PAGES = Cause(
    1, "the guest's memory is not in huge pages", "misses in the IOMMU's cache of translations", "huge_page_mib: 1024"
)


@dataclass(frozen=True)
class Facts:
    """The settings of a pair that are judged, as text; NOT_NEEDED and UNKNOWN are possible values."""

    ats: str
    acs: str  # the bits of the port where the NIC's requests turn to the GPU
    relaxed_ordering: str
    read_bytes: str
    huge_pages: str

    def words(self) -> str:
        """Return the settings in one line."""
        return (
            f"ATS {self.ats}, ACS {self.acs}, relaxed ordering {self.relaxed_ordering}, "
            f"MaxReadReq {self.read_bytes}, huge pages {self.huge_pages}"
        )


@dataclass(frozen=True)
class Pair:
    """A GPU and a NIC: their path on the host and in the guest, the links' rate (None: not known), and the causes."""

    gpu: str
    nic: str
    host_path: str
    guest_path: str
    link_gb_per_s: float | None
    causes: tuple[Cause, ...]
    facts: Facts

    @property
    def verdict(self) -> str:
        """Return "direct", "not known", or "slow"."""
        if not self.causes:
            return "direct"
        return "slow" if any(cause.severity for cause in self.causes) else "not known"


def pairs(
    host: Host,
    devices: list[Function],
    guest_paths: dict[tuple[str, str], str] | None = None,
    huge_pages: bool = True,
    tuned: bool = False,
    purpose: str = rules.VIRTUAL_MACHINES,
    guest_causes: tuple[Cause, ...] = (),
) -> list[Pair]:
    """Return each GPU of ``devices`` with its nearest NICs, the worst first, for one of ``rules.PURPOSES``.

    ``guest_paths`` are path classes in the guest by GPU and NIC; None: as on the host. ``tuned``: judge ACS and
    MaxReadReq as the role gpu_host sets them (of ACS the bits that the ports have), not as they are now.
    ``guest_causes`` are those of the virtual machine as a whole.
    """
    plan, paths = AcsPlan(host, devices, purpose), Paths(host)
    outlooks = []
    for gpu in plan.gpus:
        classes = {nic: paths.path_class(gpu, nic) for nic in plan.nics}
        nearest = min(classes.values(), key=NEAREST_FIRST.index, default="")
        for nic in (nic for nic, path in classes.items() if path == nearest):
            guest = nearest if guest_paths is None else guest_paths.get((gpu, nic), "not known")
            causes = [
                *_tree(host.function(gpu), nearest, guest),
                *_nic(host, plan, gpu, nic),
                *_ports(plan, gpu, nic, tuned),
            ]
            causes += [*_registers(host, nic, tuned), *_links(host, gpu, nic), *_memory(host, gpu), *guest_causes]
            if not huge_pages:
                causes.append(SMALL_PAGES)
            rates = [link_rate(host.function(address).link) for address in (gpu, nic)]
            rate = None if None in rates else min(link_gb_per_s for link_gb_per_s in rates if link_gb_per_s is not None)
            facts = _facts(plan, gpu, nic, tuned, huge_pages)
            outlooks.append(Pair(gpu, nic, nearest, guest, rate, tuple(causes), facts))
    return sorted(outlooks, key=lambda pair: (-sum(3**cause.severity for cause in pair.causes), pair.gpu, pair.nic))


def lines(outlooks: list[Pair]) -> list[str]:
    """Return the outlook as text: a summary, a table of the pairs (worst first), and each cause once with its pairs."""
    if not outlooks:
        return ["GPUDirect: no GPU with a NIC"]
    direct = sum(pair.verdict == "direct" for pair in outlooks)
    rates = sorted({pair.link_gb_per_s for pair in outlooks if pair.link_gb_per_s is not None})
    speed = f", {rates[0]:.2g} GB/s by their links" if rates else ""
    report = [f"GPUDirect: {direct} of {len(outlooks)} pairs of GPU and NIC are direct{speed}", *_table(outlooks)]
    by_cause: dict[Cause, list[Pair]] = {}
    for pair in outlooks:
        for cause in pair.causes:
            by_cause.setdefault(cause, []).append(pair)
    for cause in sorted(by_cause, key=lambda item: (-item.severity, item.what)):
        pairs_of_cause = by_cause[cause]
        further = f" and {len(pairs_of_cause) - 1} more" if len(pairs_of_cause) > 1 else ""
        report.append(f"  {cause.what} (GPU {pairs_of_cause[0].gpu} and NIC {pairs_of_cause[0].nic}{further})")
        report.append(f"    costs: {cause.cost}; remedy: {cause.remedy}")
    return report


def _table(outlooks: list[Pair]) -> list[str]:
    values = [_settings(pair) for pair in outlooks]
    differing = [name for name in SETTINGS if len({settings[name] for settings in values}) > 1]
    equal = ", ".join(f"{name} {values[0][name]}" for name in SETTINGS if name not in differing)
    shared = wrap(f"every pair: {equal}", 80, initial_indent="  ", subsequent_indent="    ") if equal else []
    rows = [(*COLUMNS, *differing)]
    for pair, settings in zip(outlooks, values):
        paths = (pair.gpu, pair.nic, pair.host_path, pair.guest_path, pair.verdict)
        rows.append((*paths, *(settings[name] for name in differing)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return shared + ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _settings(pair: Pair) -> dict[str, str]:
    """Return the values of SETTINGS of a pair."""
    rate = UNKNOWN if pair.link_gb_per_s is None else f"{pair.link_gb_per_s:.2g}"
    facts = pair.facts
    values = (facts.ats, facts.acs, facts.relaxed_ordering, facts.read_bytes, facts.huge_pages, rate)
    return dict(zip(SETTINGS, values))


def _facts(plan: AcsPlan, gpu: str, nic: str, as_set: bool, huge_pages: bool) -> Facts:
    """Return the settings of a pair; ``as_set``: ACS and MaxReadReq as the role gpu_host sets them."""
    function = _set_in(plan.host, nic)
    ordering = function.relaxed_ordering
    reads = 4096 if as_set else function.max_read_request_bytes
    return Facts(
        _ats_fact(plan, gpu, nic),
        _acs_fact(plan, gpu, nic, as_set),
        UNKNOWN if ordering is None else "on" if ordering else "off",
        UNKNOWN if reads is None else str(reads),
        "yes" if huge_pages else "no",
    )


def _ats_fact(plan: AcsPlan, gpu: str, nic: str) -> str:
    function = plan.host.function(nic)
    if plan.purpose == rules.BARE_METAL or plan.topology(gpu, nic) != rules.INLINE:
        return NOT_NEEDED
    if function.ats is not None:
        return "yes"
    return "no" if function.config_bytes >= PCI_CFG_SPACE_EXP_SIZE else UNKNOWN


def _acs_fact(plan: AcsPlan, gpu: str, nic: str, as_set: bool) -> str:
    turn = plan.turns(nic, gpu)
    if not turn or plan.topology(gpu, nic) != rules.INLINE:
        return NOT_NEEDED
    port = next(item for item in plan.ports if item.address == turn[0])
    function = plan.host.function(port.address)
    if function.acs is None:
        return "none" if function.config_bytes >= PCI_CFG_SPACE_EXP_SIZE else UNKNOWN
    acs = function.acs
    return f"{port.mask.applied(acs.control, acs.capability) if as_set else acs.control:07b}"


def _tree(gpu: Function, host_path: str, guest_path: str) -> list[Cause]:
    if host_path not in BELOW_ONE_SWITCH:
        return [
            Cause(
                1,
                "GPU and NIC share no switch on the host",
                "all traffic goes through the root complex, on bare metal too",
                "choose a NIC below the GPU's switch, if the server has one",
            )
        ]
    if guest_path == host_path:
        return []
    return [
        Cause(
            2 if guest_path != "not known" else 0,
            f"GPU and NIC share a switch on the host ({host_path}), but in the guest they are {guest_path}",
            "NCCL sends their traffic through the CPU (NVIDIA/nccl#1674)",
            "mirror_topology: true" + (", which takes PCIe AtomicOps from the GPU" if atomic_ops.needed(gpu) else ""),
        )
    ]


def _nic(host: Host, plan: AcsPlan, gpu: str, nic: str) -> list[Cause]:
    function = host.function(nic)
    # On bare metal, requests carry physical addresses, which need no translation.
    if plan.purpose == rules.BARE_METAL or plan.topology(gpu, nic) != rules.INLINE or function.ats is not None:
        return []
    functions = function.config_bytes >= PCI_CFG_SPACE_EXP_SIZE
    return [
        Cause(
            2 if functions else 0,
            "the NIC has no ATS capability" if functions else "it is not known whether the NIC has the ATS capability",
            "its requests to the GPU go through the IOMMU: about half (NVIDIA/nccl-tests#156, #256)",
            "ATS_ENABLED in the NIC's firmware and a reboot (gpu_host_nic_firmware_by_family: true)",
        )
    ]


def _ports(plan: AcsPlan, gpu: str, nic: str, as_set: bool) -> list[Cause]:
    turn = plan.turns(nic, gpu)
    if not turn or plan.topology(gpu, nic) != rules.INLINE:
        return []
    port = next(item for item in plan.ports if item.address == turn[0])
    acs = plan.host.function(port.address).acs
    cost = "translated requests go to the root complex and back: 27 instead of 50 GB/s (NVIDIA/nccl#949)"
    if acs is None:
        was_read = plan.host.function(port.address).config_bytes >= PCI_CFG_SPACE_EXP_SIZE
        state = "has no ACS: GPU and NIC are in one IOMMU group" if was_read else "was not read"
        return [Cause(0, f"port {port.address} {state}", "unknown", "turn ACS on in the BIOS, read the host as root")]
    if port.mask.lacking(acs.capability):
        remedy = "none on this switch; use a GPU and NIC below another one"
        return [Cause(2, f"ACS of port {port.address} cannot pass translated requests directly", cost, remedy)]
    control = port.mask.applied(acs.control, acs.capability) if as_set else acs.control
    if port.mask.holds(control, acs.capability):
        return []
    state = f"ACS of port {port.address} is {control:07b}, wanted {port.mask.text}"
    remedy = "gpu_host_acs: auto" if plan.purpose == rules.VIRTUAL_MACHINES else "gpu_node_pci.acs: bare_metal"
    return [Cause(2, state, cost, remedy)]


def _registers(host: Host, nic: str, tuned: bool) -> list[Cause]:
    function = _set_in(host, nic)
    causes = []
    read_bytes = 4096 if tuned else function.max_read_request_bytes
    if read_bytes is None or read_bytes < 4096:
        was_read = read_bytes is not None
        causes.append(
            Cause(
                1 if was_read else 0,
                f"MaxReadReq of the NIC is {read_bytes} bytes" if was_read else "MaxReadReq of the NIC is not known",
                "more and smaller reads of GPU memory",
                "gpu_host_pci, max_read_request_bytes: 4096" if was_read else READ_AS_ROOT,
            )
        )
    if not function.relaxed_ordering:
        was_read = function.relaxed_ordering is not None
        causes.append(
            Cause(
                1 if was_read else 0,
                "relaxed ordering is off in the NIC"
                if was_read
                else "it is not known whether the NIC has relaxed ordering on",
                "its writes wait for each other; it matters most with ACS and ATS (NVIDIA/nccl#1205)",
                "gpu_host_pci, relaxed_ordering: true" if was_read else READ_AS_ROOT,
            )
        )
    return causes


def _set_in(host: Host, nic: str) -> Function:
    """Return the function that has MaxReadReq and relaxed ordering of a NIC; for a VF this is its physical function.

    Source: PCI Express Base Specification 9.3.5.4.
    """
    function = host.function(nic)
    bits = host.by_address()
    return bits.get(function.physical_function or "", function)


def _links(host: Host, gpu: str, nic: str) -> list[Cause]:
    causes = []
    for address in (gpu, nic):
        link = host.function(address).link
        if link and link.width is not None and link.max_width is not None and link.width < link.max_width:
            causes.append(
                Cause(
                    2,
                    f"the link of {address} has {link.width} of {link.max_width} lanes",
                    f"{link.width / link.max_width:.0%} of its bandwidth",
                    "seat the card or riser again, see the BIOS's bifurcation",
                )
            )
    return causes


def _memory(host: Host, gpu: str) -> list[Cause]:
    function = host.function(gpu)
    reason = unreachable_memory_reason(function)
    if not reason and not any(item.kind == "memory" for item in function.bars):
        unknown = f"the BARs of GPU {gpu} are not known, or have no address"
        return [Cause(0, unknown, "without them the NIC cannot reach its memory", READ_AS_ROOT)]
    if not reason:
        return []
    return [Cause(2, f"GPU {gpu}: {reason}", "the NIC reaches the host's memory only, not the GPU's", LARGE_BARS)]


def link_rate(link: Link | None) -> float | None:
    """Return the highest rate of a link in GB/s (10^9 bytes per second), before the overhead of packets."""
    if link is None or not link.max_speed_gt_s or not link.max_width:
        return None
    share = next(share for max_speed_gt_s, share in ENCODINGS if link.max_speed_gt_s <= max_speed_gt_s)
    return link.max_speed_gt_s * link.max_width * share / 8
