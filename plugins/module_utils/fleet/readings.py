# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read what the modules' results of one run say about hosts: health, image, differences from the inventory. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.datum import (
    DIFFERS,
    DRIFT,
    FAULT,
    HEALTH,
    IMAGE,
    NOTED,
    OK,
    UNKNOWN,
    Datum,
    cut,
    datum,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet import answers
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.answers import Complaint
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.table import (
    RUNBOOKS,
    is_serious,
    unknown_reason,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.checker import UNKNOWN as OF_CHECKER

SHORT_DIGEST = 12


@dataclass(frozen=True)
class HostReading:
    """The data that were read of a host, and a person's words about it."""

    data: list[Datum] = field(default_factory=list)
    seen_s: float | None = None  # when it answered last, in seconds since 1970
    drain: str = ""
    maintenance: str = ""


def of_health(host: str, result: Any, earlier: HostReading, now_s: float) -> HostReading:
    """Return the reading with the health in a result of fleet_node_info.

    What a person said is kept from ``earlier`` if the host does not answer.
    """
    answer = answers.read(result)
    seen_s = round(now_s) if isinstance(result, Mapping) and not result.get("unreachable") else earlier.seen_s
    reason = unknown_reason(host, answer)
    if reason:
        health = datum(HEALTH, UNKNOWN, reason, now_s)
        source = earlier if answer.error else answer
        return HostReading([health], seen_s, cut(source.drain), cut(source.maintenance))
    serious = [fault for fault in answer.faults if is_serious(fault)]
    if serious:
        state = UNKNOWN if all(fault.check in OF_CHECKER for fault in serious) else FAULT
    else:
        state = NOTED if answer.faults else OK
    titles = list(dict.fromkeys(fault.title for fault in serious or answer.faults))
    health = datum(
        HEALTH,
        state,
        "; ".join(titles) or "no fault",
        now_s - (answer.age_s or 0.0),
        [line for fault in answer.faults for line in _lines(fault)]
        + ([f"{answer.unmeasured} checks were not measured"] if answer.unmeasured else []),
    )
    return HostReading([health], seen_s, cut(answer.drain), cut(answer.maintenance))


def _lines(fault: Complaint) -> list[str]:
    part = fault.part or f"{fault.kind} {fault.place}"
    seen = f"{fault.seen}, expected {fault.expected}" if fault.expected else fault.seen
    action = fault.action.replace("_", " ")
    return [
        f"{part}: {fault.title}{f': {seen}' if seen else ''}",
        f"{action}: {RUNBOOKS}#{fault.runbook}",
    ]


def image_datum(result: Any, image: Any, channels: Mapping[str, set[str]] | None, now_s: float) -> Datum:
    """Return whether a node runs the image that the inventory names.

    ``image`` is the node's node_boot_image. ``channels`` are the digests by channel on the boot servers, None if one of
    these was not read.
    """
    if not isinstance(result, Mapping) or "image" not in result:
        text = (result.get("reason") or result.get("msg")) if isinstance(result, Mapping) else ""
        return datum(IMAGE, UNKNOWN, f"no answer: {text}" if text else "it was not asked", now_s)
    settings = image if isinstance(image, Mapping) else {}
    digest, channel = str(settings.get("digest") or ""), str(settings.get("channel") or "")
    named_digests = {digest} if digest else (channels or {}).get(channel, set())
    running = str(result["image"] or "")
    if not running:
        return datum(IMAGE, DIFFERS, f"it runs no image: {result.get('reason') or 'no report'}", now_s)
    details = [f"it runs {running}"]
    if not digest and channels is None:
        return datum(IMAGE, UNKNOWN, "its boot servers were not read", now_s, details)
    if len(named_digests) != 1:
        names = " and ".join(sorted(candidate[:SHORT_DIGEST] for candidate in named_digests)) or "nothing"
        return datum(IMAGE, UNKNOWN, f"the channel {channel} names {names} on the boot servers", now_s, details)
    (wanted,) = named_digests
    of_channel = f" of {channel}" if not digest else ""
    if running != wanted:
        text = f"it runs {running[:SHORT_DIGEST]}, not {wanted[:SHORT_DIGEST]}{of_channel}"
        return datum(IMAGE, DIFFERS, text, now_s, [*details, f"wanted is {wanted}"])
    return datum(IMAGE, OK, f"it runs {running[:SHORT_DIGEST]}{of_channel}", now_s)


def channels_of(results: Sequence[Any]) -> dict[str, set[str]] | None:
    """Return the digests by channel in the boot servers' results of node_image_store; None if one has no channels."""
    channels: dict[str, set[str]] = {}
    for result in results:
        if not isinstance(result, Mapping) or "channels" not in result:
            return None
        for channel in result["channels"]:
            channels.setdefault(str(channel["name"]), set()).add(str(channel["digest"]))
    return channels


def drift_data(host: str, result: Any, guests: Sequence[str], now_s: float) -> dict[str, Datum]:
    """Return the differences of a hypervisor and of each of its guests, from a result of gpu_host's comparison."""
    differences = result.get("differences") if isinstance(result, Mapping) else None
    if not isinstance(differences, Mapping):
        text = result.get("msg") if isinstance(result, Mapping) else ""
        unread = f"not compared: {text}" if text else "it was not compared"
    else:
        unread = f"not compared: {result['unread']}" if result.get("unread") else ""
    if unread or differences is None:
        return {name: datum(DRIFT, UNKNOWN, unread, now_s) for name in (host, *guests)}
    lines = [str(line) for role in differences for line in differences[role]]
    of_guests = {guest: [line for line in lines if line.startswith(f"{guest}: ")] for guest in guests}
    by_host = {host: [line for line in lines if not any(line in texts for texts in of_guests.values())], **of_guests}
    return {name: _drift(name, differing, now_s) for name, differing in by_host.items()}


def _drift(name: str, lines: Sequence[str], now_s: float) -> Datum:
    if not lines:
        return datum(DRIFT, OK, "as the inventory says", now_s)
    first = lines[0][len(name) + 2 :] if lines[0].startswith(f"{name}: ") else lines[0]
    remainder = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return datum(DRIFT, DIFFERS, f"{first}{remainder}", now_s, lines)
