# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Claims from what switches and NICs counted while traffic ran: RoCE's packets are marked, and none is lost. Pure.

A claim holds only where packets were marked: without congestion, no loss says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, not_applicable

LAYER, SOURCE, WANTED = "traffic", "roce_counters_info", {"marked": "some", "lost": 0}
# The systems whose counters were seen on a device. What others show is never a failure.
SEEN = ("linux",)
# The counters of a NIC that grow when RoCE loses packets on the way or in the NIC, and when its packets were marked.
LOSSES = ("out_of_sequence", "roce_dropped", "dropped_by_port")
MARKS = ("ecn_marked_received", "cnp_handled")
IDLE = "no packet was marked: too little traffic for a queue, or ECN has no effect; repeat it under load"
MOST_LINES = 20


def traffic_claims(policy: Policy, switches: Mapping[str, Any], counted: Mapping[str, Any]) -> Iterator[Claim]:
    """Yield a claim for each switch and class, and for each NIC.

    ``switches``: the inventory's settings by name. ``counted``: the second result of roce_counters_info by device.
    """
    for device, result in sorted(counted.items()):
        differences, unknown = _by_place(result, "differences"), _by_place(result, "unknown")
        if not differences:
            message = result.get("msg") if isinstance(result, Mapping) else None
            reason = next(filter(None, [message, *unknown.values()]), "no answer")
            claim = f"{device}: with traffic running, RoCE loses no packets"
            yield not_applicable(LAYER, claim, WANTED, SOURCE, f"{device}: not measured: {reason}")
        elif device in switches:
            yield from _of_switch(device, switches[device], policy, differences, unknown)
        else:
            for nic, counts in differences.items():
                yield _of_nic(f"{device} {nic}", counts, str(unknown.get(nic, "")))


def _by_place(result: Any, name: str) -> dict[str, Any]:
    """Return the counters by port or NIC, or why some are not known; nothing of a result that has none."""
    by_place = result.get(name) if isinstance(result, Mapping) else None
    if not isinstance(by_place, Mapping):
        return {}
    kind = Mapping if name == "differences" else str
    return {place: of_place for place, of_place in by_place.items() if isinstance(of_place, kind)}


def _of_switch(
    name: str,
    settings: Mapping[str, Any],
    policy: Policy,
    differences: Mapping[str, Any],
    unknown: Mapping[str, str],
) -> Iterator[Claim]:
    system, ports = str(settings.get("system")), settings.get("ports") or {}
    counts = {port: differences.get(port, {}) for port in ports}
    for rdma in policy.classes:
        lost = {port: _at(of_port, "dropped", rdma.queue) for port, of_port in counts.items()}
        marked = _sum(_at(of_port, "ecn_marked", rdma.queue) for of_port in counts.values())
        seen = {
            "marked": marked,
            "lost": _sum(lost.values()),
            "pauses sent": _sum(_at(of_port, "pause_sent", rdma.priority) for of_port in counts.values()),
            "storms": _sum(_at(of_port, "watchdog", rdma.queue) for of_port in counts.values()),
        }
        missing = [unknown[counter] for counter in ("dropped", "ecn_marked") if counter in unknown]
        silent = [port for port, number in lost.items() if number is None]
        if silent and not missing:
            missing = [f"queue {rdma.queue} is not counted on {fold(silent)}"]
        if system not in SEEN:
            missing.append(
                f"what {system} counts was never seen on a switch, so that it is not judged: read the numbers"
            )
        claim = f"{name}: {rdma.name}: with traffic running, queue {rdma.queue} drops no packets"
        losing = [port for port, number in lost.items() if number]
        yield _claim(claim, seen, system in SEEN and losing, f"by {fold(losing)}", "; ".join(missing))


def _of_nic(place: str, counts: Mapping[str, Any], unknown: str) -> Claim:
    lost = {counter: counts.get(counter) for counter in LOSSES}
    seen = {
        "marked": _sum(counts.get(counter) for counter in MARKS),
        **lost,
        "pauses received": _sum(counts.get("pause_received") or ()),
    }
    missing = unknown
    if lost["out_of_sequence"] is None:
        missing = "its driver does not count packets out of sequence"
    elif seen["marked"] is None:
        missing = "its driver does not count marks"
    losing = [counter for counter, number in lost.items() if number]
    claim = f"{place}: with traffic running, RoCE loses no packets"
    return _claim(claim, seen, losing, ", ".join(losing), missing)


def _claim(claim: str, seen: Mapping[str, int | None], fails: Any, places: str, missing: str) -> Claim:
    """Return the claim, which fails, or does not apply because of what is ``missing`` or because nothing was marked."""
    known = {name: number for name, number in seen.items() if number is not None} or None
    if fails:
        remedy = "compare the fabric with its policy, and look for faulty cables and for senders without ECN"
        return Claim(LAYER, claim, WANTED, known, False, SOURCE, f"packets are lost ({places}); {remedy}")
    if missing or not seen["marked"]:
        return not_applicable(LAYER, claim, WANTED, SOURCE, missing or IDLE, known)
    return Claim(LAYER, claim, WANTED, known, True, SOURCE)


def _at(counts: Mapping[str, Any], counter: str, number: int) -> int | None:
    values = counts.get(counter)
    value = values[number] if isinstance(values, list) and number < len(values) else None
    return value if isinstance(value, int) else None


def _sum(numbers: Iterable[Any]) -> int | None:
    """Return the sum of the numbers that are known; None without any."""
    known = [number for number in numbers if isinstance(number, int)]
    return sum(known) if known else None


def counted_lines(counted: Mapping[str, Any]) -> list[str]:
    """Return what ports and NICs counted, those with drops first; a list by its priorities or queues above 0."""
    ranked = []
    for device, result in counted.items():
        for place, counts in _by_place(result, "differences").items():
            numbers = {
                counter: {str(at): number for at, number in enumerate(value) if number}
                if isinstance(value, list)
                else {"": value if isinstance(value, int) else 0}
                for counter, value in counts.items()
            }
            totals = {counter: sum(each.values()) for counter, each in numbers.items()}
            words = [f"{counter} {_words(numbers[counter])}" for counter, total in totals.items() if total]
            if words:
                losses = sum(totals.get(counter, 0) for counter in ("dropped", *LOSSES))
                ranked.append((-losses, f"  {device} {place}: {', '.join(words)}"))
    lines = [line for _losses, line in sorted(ranked)]
    more = [f"  and {len(lines) - MOST_LINES} others"] if len(lines) > MOST_LINES else []
    return ["counted with traffic running:", *lines[:MOST_LINES], *more] if lines else []


def _words(numbers: Mapping[str, int]) -> str:
    """Return "7" of a counter without parts, else its parts: "[3] 7 [4] 1"."""
    return " ".join(f"[{at}] {number}" if at else str(number) for at, number in numbers.items() if number)
