# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare measured with expected rates: the claims of an acceptance, the worst first. Pure.

The expected rate is what the link allows: for PCIe the rate of the link (``outlook.link_rate``), for a NIC the rate of
its port. The shares below are the parts of it that a tool can reach. If a tool did not run, its result is "not
measured", and never holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import measuring_tools
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.acceptance.run import MEASURED
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect import outlook
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import (
    BARE_METAL,
    VIRTUAL_MACHINES,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host

LAYER, BASELINE_LAYER = "acceptance", "against the baseline"
# Copies by PCIe: nvbandwidth's README shows 26.0 GB/s of a 4.0 x16 link's 31.5, 83%; packets of 256 bytes carry at most
# 256 of 280 bytes (PCI Express Base Specification: 24 bytes of header, sequence number, LCRC and framing).
COPY_SHARE = 0.8
# A NIC's port with one message size and one connection: users measure 99.7% (NVIDIA/nccl#2171).
PORT_SHARE = 0.95
# A collective's bus bandwidth, as a share of the rate of all NICs of a node together. A ring reaches this rate: 48 of
# 50 GB/s with correct ACS, 27 with wrong ACS (NVIDIA/nccl#949). NCCL's trees reach more, up to N (n-1) / ((N-1) n)
# times the rate with n ranks on N nodes, because a node sends only its reduced data: 320 GB/s with four NICs of 400
# Gbit/s (NVIDIA/nccl-tests#380). Only a baseline shows how much of that a virtual machine loses.
COLLECTIVE_SHARE = 0.75
# arXiv 2407.05467: virtual machines are within 5% of bare metal.
BASELINE_SHARE = 0.95
UNIT = "GB/s"
WITHIN_NODE = f"{measuring_tools.ALL_REDUCE} within the node"
# Counters of roce_counters_info that increase when RoCE loses packets on the way or in the NIC.
LOSSES = ("out_of_sequence", "roce_dropped", "dropped_by_port")


@dataclass(frozen=True)
class BandwidthResult:
    """One number. ``measured`` and ``limit`` are in GB/s, None: not measured, not known. ``basis`` names the limit."""

    what: str
    measured: float | None
    limit: float | None
    share: float
    basis: str
    source: str
    reason: str = ""
    causes: tuple[str, ...] = ()

    @property
    def wanted(self) -> float | None:
        """Return the lowest rate that holds."""
        return None if self.limit is None else self.share * self.limit

    @property
    def severity_key(self) -> tuple[int, float]:
        """Return the sort key, the worst first: too slow by its share, not measured, not judged, held."""
        if self.measured is None:
            return (1, 0.0)
        if self.wanted is None or self.limit is None:
            return (2, 0.0)
        ratio = self.measured / self.limit
        return (0, ratio) if self.measured < self.wanted else (3, ratio)


def of_nvbandwidth(run: dict[str, Any], node: Host | None) -> list[BandwidthResult]:
    """Return one result for each GPU and direction, and one for the slowest pair of GPUs."""
    source = "nvbandwidth"
    if run.get("status") != MEASURED:
        return [_not_measured("copies between host and GPUs", source, run)]
    try:
        read = measuring_tools.copies(run["output"])
    except measuring_tools.UnreadableError as error:
        return [
            _not_measured("copies between host and GPUs", source, {"reason": f"its output cannot be read: {error}"})
        ]
    results = []
    between: dict[str, list[measuring_tools.Copy]] = {}
    for copy in read.copies:
        if copy.test.startswith("device_to_device"):
            between.setdefault(copy.test, []).append(copy)
            continue
        gpu = read.gpus[copy.column] if copy.column < len(read.gpus) else ""
        rate, now = _rates(node, gpu)
        causes = (now,) if now else ()
        basis = f"{rate:.1f} {UNIT} of the PCIe link of {gpu}" if rate else f"the PCIe link of {gpu} is not known"
        claim_name = f"{source}, {gpu}" if gpu else source
        results.append(
            BandwidthResult(
                f"{copy.test}, GPU {copy.column}", copy.gb_per_s, rate, COPY_SHARE, basis, claim_name, "", causes
            )
        )
    for test, copies in between.items():
        worst = min(copies, key=lambda copy: copy.gb_per_s)
        name = f"{test}, the slowest of {len(copies)} pairs of GPUs"
        basis = "the rate of NVLink is not in the topology"
        results.append(
            BandwidthResult(name, worst.gb_per_s, None, 1, basis, f"{source}, GPU {worst.row} and {worst.column}")
        )
    results += [_not_measured(name, source, {"reason": "nvbandwidth waived it"}) for name in read.waived]
    return results


def of_nccl(run: dict[str, Any], ports_gb_per_s: float | None, causes: tuple[str, ...], name: str) -> BandwidthResult:
    """Return the result of all_reduce_perf.

    ``ports_gb_per_s``: the rate of a node's NICs; 0 if it is not known, None within one node.
    """
    source = "nccl-tests all_reduce_perf"
    if run.get("status") != MEASURED:
        return _not_measured(name, source, run)
    try:
        measured = measuring_tools.nccl_bus_gb_per_s(run["output"])
    except measuring_tools.UnreadableError as error:
        return _not_measured(name, source, {"reason": f"its output cannot be used: {error}"})
    if ports_gb_per_s:
        basis = f"{ports_gb_per_s:.1f} {UNIT} of a node's NICs"
        return BandwidthResult(name, measured, ports_gb_per_s, COLLECTIVE_SHARE, basis, source, "", causes)
    within = ports_gb_per_s is None
    basis = "the rate of NVLink is not in the topology" if within else "the rate of a NIC's port is not known"
    return BandwidthResult(name, measured, None, COLLECTIVE_SHARE, basis, source)


def of_rail(
    run: dict[str, Any], rail: dict[str, Any], nodes: tuple[Host | None, Host | None], causes: tuple[str, ...]
) -> BandwidthResult:
    """Return the result of ib_write_bw on a rail. ``rail`` is from ``rails.between``, with the names of both nodes."""
    memory = "GPU memory" if run.get("gpu_memory") else "host memory"
    title = f"ib_write_bw, rail {rail['number']}, {memory}"
    ends = f"{rail['from']} {rail['client']['device']} to {rail['to']} {rail['server']['device']}"
    if run.get("status") != MEASURED:
        return _not_measured(title, f"ib_write_bw, {ends}", run)
    try:
        measured = measuring_tools.perftest_gb_per_s(run["output"])
    except measuring_tools.UnreadableError as error:
        return _not_measured(title, f"ib_write_bw, {ends}", {"reason": f"its output cannot be read: {error}"})
    port = run.get("port_gbit_s")
    limits = {"port": port / 8} if port else {}
    for end, whose, node in zip(("client", "server"), (rail["from"], rail["to"]), nodes):
        for part in ("nic", "gpu") if run.get("gpu_memory") else ("nic",):
            rate = _rates(node, rail[end].get(part) or "")[0]
            if rate:
                # As for copies: the share of the link without packet headers.
                limits[f"PCIe link of {rail[end][part]} of {whose}"] = rate * COPY_SHARE
    name = min(limits, key=lambda item: limits[item], default="")
    limit = limits[name] if port else None
    basis = f"{limit:.1f} {UNIT} of the {name}" if limit else "the rate of the port is not known"
    return BandwidthResult(
        title, measured, limit, PORT_SHARE, basis, f"ib_write_bw, {ends}", "", causes if run.get("gpu_memory") else ()
    )


def of_counters(rails: list[dict[str, Any]], counters: list[dict[str, Any]]) -> list[Claim]:
    """Return a claim for each RoCE NIC of a rail that was measured: no packet was lost meanwhile.

    ``counters``: what the sending and the receiving node counted, by RDMA device; empty without a RoCE NIC.
    """
    claims_made = []
    for part in rails if len(counters) == 2 else []:
        rail = part["rail"]
        for node, end, differences in zip((rail["from"], rail["to"]), ("client", "server"), counters):
            counted = differences.get(rail[end]["device"])
            if counted is None or part["run"].get("status") != MEASURED:
                continue
            claim = f"RoCE of {node} {rail[end]['device']} loses no packets with traffic running"
            losses = {name: counted[name] for name in LOSSES if counted.get(name) is not None}
            wanted, source = dict.fromkeys(losses, 0), f"counters of {node} while all rails were measured"
            pauses = [number for number in counted.get("pause_received") or [] if number is not None]
            marks = counted.get("ecn_marked_received")
            congestion = (
                f"ECN marks received: {'not counted' if marks is None else marks}, "
                f"pauses received: {sum(pauses) if pauses else 'not counted'}"
            )
            if not losses:
                reason = "not measured: its driver counts no lost packets"
                claims_made.append(not_applicable(LAYER, claim, "0 packets", source, reason))
                continue
            holds = not any(losses.values())
            remedy = (
                "compare the fabric with its policy (playbooks/fabric_drift.yml), and look for errors of the cables"
            )
            reason = congestion if holds else f"{congestion}; {remedy}"
            claims_made.append(Claim(LAYER, claim, wanted, losses, holds, source, reason))
    return claims_made


def known_causes(host: Host | None, guest: bool) -> tuple[str, ...]:
    """Return the causes that make GPUDirect of this host slow, the worst first, each with its remedy.

    ``host`` is a bare-metal node, or the hypervisor of a guest, of which only the devices bound to vfio-pci count.
    """
    if host is None:
        return ()
    devices = [item for item in host.functions if item.kind in ("gpu", "nic")]
    if guest:
        devices = [item for item in devices if item.driver == "vfio-pci"]
    pairs = outlook.pairs(host, devices, purpose=VIRTUAL_MACHINES if guest else BARE_METAL)
    causes = {cause for pair in pairs for cause in pair.causes}
    ordered = sorted(causes, key=lambda cause: (-cause.severity, cause.what))
    return tuple(f"{cause.what}, which costs: {cause.cost}; remedy: {cause.remedy}" for cause in ordered)


def claims(results: list[BandwidthResult], baseline: dict[str, float] | None = None) -> list[Claim]:
    """Return the claims, the worst first; ``baseline`` are earlier numbers by name (``measured``)."""
    judged = [_claim(result) for result in sorted(results, key=lambda result: (result.severity_key, result.what))]
    if baseline is not None:
        judged += _against(results, baseline)
    return judged


def measured(claims_before: list[Claim]) -> dict[str, float]:
    """Return the numbers of an earlier acceptance by name."""
    return {
        claim.claim: float(claim.seen[UNIT])
        for claim in claims_before
        if claim.layer == LAYER and isinstance(claim.seen, dict) and UNIT in claim.seen
    }


def accepted_rates(claims_before: list[Claim]) -> dict[str, float]:
    """Return the rates in GB/s that a node reaches by itself, by tool: those that a deep health check measures again.

    "host_to_device_memcpy_ce 0000:4b:00.0" for each GPU, "device_to_device_memcpy_read_ce" and "all_reduce_perf" for
    the node.
    """
    # A rate that was too low on the first day says nothing of a healthy node.
    slow = {claim.claim for claim in claims_before if claim.holds is False}
    fast_claims = [claim for claim in claims_before if claim.claim not in slow]
    sources = {claim.claim: claim.source for claim in fast_claims if claim.layer == LAYER}
    rates = {}
    for name, rate in measured(fast_claims).items():
        test, address = name.partition(",")[0], sources[name].partition("nvbandwidth, ")[2]
        if test in (measuring_tools.TO_GPU, measuring_tools.FROM_GPU) and address:
            rates[f"{test} {address}"] = rate
        elif test == measuring_tools.BETWEEN_GPUS or name == WITHIN_NODE:
            rates[test.partition(" ")[0]] = rate
    return rates


def _claim(result: BandwidthResult) -> Claim:
    wanted = "a number" if result.wanted is None else {f"at least {UNIT}": round(result.wanted, 2)}
    if result.measured is None:
        return not_applicable(LAYER, result.what, wanted, result.source, f"not measured: {result.reason}")
    seen = {UNIT: round(result.measured, 2)}
    if result.wanted is None:
        return not_applicable(LAYER, result.what, wanted, result.source, f"measured, not judged: {result.basis}", seen)
    holds = result.measured >= result.wanted
    ratio = f"{result.measured / (result.limit or 1):.0%} of {result.basis}"
    causes = "; ".join(result.causes) or "no known cause was found on this host"
    return Claim(LAYER, result.what, wanted, seen, holds, result.source, ratio if holds else f"{ratio}; {causes}")


def _against(results: list[BandwidthResult], baseline: dict[str, float]) -> list[Claim]:
    """Return a claim for each number that was measured, the worst share of the baseline first."""
    judged: list[tuple[float, Claim]] = []
    unknown = []
    for result in results:
        if result.measured is None:
            continue
        reference = baseline.get(result.what)
        if not reference:
            reason = "the baseline did not measure it"
            unknown.append(not_applicable(BASELINE_LAYER, result.what, "a number", result.source, reason))
            continue
        share = result.measured / reference
        holds = share >= BASELINE_SHARE
        ratio = f"{share:.0%} of the baseline's {reference:.2f} {UNIT}"
        claim = Claim(
            BASELINE_LAYER,
            result.what,
            {f"at least {UNIT}": round(BASELINE_SHARE * reference, 2)},
            {UNIT: round(result.measured, 2)},
            holds,
            result.source,
            ratio if holds else "; ".join([ratio, *result.causes]),
        )
        judged.append((share, claim))
    return [*(claim for _share, claim in sorted(judged, key=lambda item: (item[0], item[1].claim))), *unknown]


def _not_measured(name: str, source: str, run: dict[str, Any]) -> BandwidthResult:
    return BandwidthResult(name, None, None, 1, "", source, run.get("reason") or "the tool did not run")


def _rates(node: Host | None, address: str) -> tuple[float | None, str]:
    """Return the highest rate of a device's link, and the current fault of the link as text."""
    function = node.by_address().get(address) if node else None
    if function is None or function.link is None:
        return None, ""
    link = function.link
    narrow = link.width is not None and link.max_width is not None and link.width < link.max_width
    wrong = (
        f"the link of {address} has {link.width} of {link.max_width} lanes; seat the card or riser again"
        if narrow
        else ""
    )
    return outlook.link_rate(link), wrong
