# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Claims about links: one for each fault, and one for each device whose links have none. Pure.

A claim for each healthy link of a large fabric would make a file of megabytes that says no more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim

LAYER, UNREAD = "links", "unread"
PLANNED = "as planned"


class FaultyLink(NamedTuple):
    """A link, "gpu01 ens1np0 - leaf1 Ethernet0", with its fault."""

    link: str
    seen: str  # "missing"
    reason: str


def link_claims(
    links: Iterable[str], faults: Iterable[FaultyLink], unread: Collection[str], source: str
) -> list[Claim]:
    """Return the claims. ``unread``: those of ``links`` that are not known; their devices are not known, either."""
    faults = list(faults)
    claims = [
        Claim(LAYER, f"{fault.link}: the link", PLANNED, fault.seen, False, source, fault.reason) for fault in faults
    ]
    sick = {device for fault in faults for device in devices_of(fault.link)}
    by_device: dict[str, list[str]] = {}
    for link in links:
        for device in devices_of(link):
            by_device.setdefault(device, []).append(link)
    unknown = set(unread)
    for device, device_links in by_device.items():
        silent = [link for link in device_links if link in unknown]
        if silent:
            reason = f"{device}: {len(silent)} of its {len(device_links)} links were not read: {excerpt(silent)}"
            claims.append(Claim(UNREAD, f"{device}: its links", PLANNED, None, False, source, reason))
        elif device not in sick:
            claims.append(Claim(LAYER, f"{device}: its links", PLANNED, PLANNED, True, source))
    return claims


def devices_of(link: str) -> list[str]:
    """Return the devices at the two ends of a link."""
    return list(dict.fromkeys(end.split(" ")[0] for end in link.split(" - ")))
