# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Select devices: by kind ("gpu"), by vendor ("15b3:*", "10de:2330") or by address ("0000:3b:00.0").

Functions that manage NVSwitches have the vendor and device of a NIC, but are selected by their kind or address only.
"""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import MANAGEMENT
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

# The kinds of topology/model/kinds.py that can be requested.
KINDS = tuple(kind.name for kind in kinds.KINDS if kind.name != "other")
ADDRESS = re.compile(r"^(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
VENDOR = re.compile(r"^([0-9a-f]{4}):([0-9a-f]{4}|\*)$")


class SelectorError(SailloftError):
    """A selector that matches no device of a host or is malformed; the message begins with the name of the option."""


def full_address(text: str) -> str:
    """Return "3b:00.0" as "0000:3b:00.0"."""
    return text if text.count(":") == 2 else "0000:" + text


def select(host: Host | None, selectors: list[str], option: str) -> list[Function]:
    """Return the functions that any of ``selectors`` names, in the order of the host, each once.

    Without a host (an image is for hosts that are not read yet) only the form is checked, and nothing is selected.
    A kind or a whole vendor may match nothing, because the servers of a fleet differ. An address or a vendor:device
    that matches nothing is an error. Raises SelectorError, whose message begins with ``option``.
    """
    chosen: set[str] = set()
    for selector in selectors:
        text = selector.strip().lower()
        _check_form(text, option)
        if host is None:
            continue
        matched = {function.address for function in host.functions if _matches(function, text)}
        if not matched and text not in KINDS and not text.endswith(":*"):
            raise SelectorError(
                f"{option}: no device {selector} on this host", "see the functions that host_topology_info returns"
            )
        chosen |= matched
    return [function for function in host.functions if function.address in chosen] if host else []


def is_address(selector: str) -> bool:
    """Return True if a selector names one device by its address."""
    return bool(ADDRESS.match(selector.strip().lower()))


def is_vendor(selector: str) -> bool:
    """Return True if a selector names devices by vendor ("10de:2330", "10de:*")."""
    return bool(VENDOR.match(selector.strip().lower()))


def _check_form(text: str, option: str) -> None:
    if text not in KINDS and not ADDRESS.match(text) and not VENDOR.match(text):
        raise SelectorError(
            f"{option}: {text!r} is not a kind, vendor:device or PCI address",
            f"use one of {', '.join(KINDS)}, or write it like 15b3:101d, 15b3:* or 0000:3b:00.0",
        )


def _matches(function: Function, text: str) -> bool:
    if text in KINDS:
        return function.kind == text
    if ADDRESS.match(text):
        return function.address == full_address(text)
    vendor = VENDOR.match(text)
    return bool(
        vendor
        and function.kind != MANAGEMENT
        and function.vendor_id == int(vendor[1], 16)
        and (vendor[2] == "*" or function.device_id == int(vendor[2], 16))
    )
