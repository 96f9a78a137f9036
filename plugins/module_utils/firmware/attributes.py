# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check BIOS settings against the attribute registry of a node's firmware, before anything is sent. Pure.

Source: DMTF DSP0268, AttributeRegistry (Type, Value, ReadOnly, Immutable, LowerBound, UpperBound, ScalarIncrement,
MinLength, MaxLength, ValueExpression).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.baseline import AttributeValue

QUOTE = "; write it in quotes, as YAML reads On, Off, Yes and No as true and false"


def refusals(
    wanted: Mapping[str, AttributeValue], shown: Mapping[str, Any], registry: Mapping[str, Any] | None
) -> dict[str, str]:
    """Return why values cannot be set, by attribute.

    ``shown``: the attributes as the BMC shows them. ``registry``: the AttributeRegistry; None if the BMC has none, and
    then only the type is checked, against the value that is shown.
    """
    entries = {} if registry is None else _entries(registry)
    causes = {}
    for name, value in wanted.items():
        if name not in shown:
            cause: str | None = "the firmware has no such attribute"
        elif registry is None:
            cause = _other_type(value, shown[name])
        elif name not in entries:
            cause = "the attribute registry does not have it"
        else:
            cause = _cause(value, entries[name])
        if cause:
            causes[name] = cause
    return causes


def _entries(registry: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    listed = (registry.get("RegistryEntries") or {}).get("Attributes") or []
    return {str(entry.get("AttributeName")): entry for entry in listed if isinstance(entry, dict)}


def _other_type(value: AttributeValue, shown: Any) -> str | None:
    if shown is None or type(value) is type(shown):
        return None
    return f"{_show(value)} is not of the type of {_show(shown)}, which it has{_hint(value)}"


def _cause(value: AttributeValue, entry: Mapping[str, Any]) -> str | None:
    if entry.get("ReadOnly") or entry.get("Immutable"):
        return "it is read-only"
    kind = str(entry.get("Type"))
    check = CHECKS.get(kind)
    return check(value, entry) if check else f"attributes of the type {kind} are not set by a baseline"


def _enumeration(value: AttributeValue, entry: Mapping[str, Any]) -> str | None:
    possible = [str(item.get("ValueName")) for item in entry.get("Value") or [] if isinstance(item, dict)]
    if isinstance(value, str) and value in possible:
        return None
    return (
        f"{_show(value)} is none of {', '.join(possible) or 'its values, of which the registry has none'}{_hint(value)}"
    )


def _integer(value: AttributeValue, entry: Mapping[str, Any]) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{_show(value)} is no integer"
    lowest, highest, step = (entry.get(key) for key in ("LowerBound", "UpperBound", "ScalarIncrement"))
    if (lowest is not None and value < lowest) or (highest is not None and value > highest):
        return f"{value} is not within {_bound(lowest)} to {_bound(highest)}"
    if step and (value - (lowest or 0)) % step:
        return f"{value} is no step of {step} from {lowest or 0}"
    return None


def _string(value: AttributeValue, entry: Mapping[str, Any]) -> str | None:
    if not isinstance(value, str):
        return f"{_show(value)} is no text; write it in quotes"
    shortest, longest, form = (entry.get(key) for key in ("MinLength", "MaxLength", "ValueExpression"))
    if (shortest is not None and len(value) < shortest) or (longest is not None and len(value) > longest):
        return f"{_show(value)} has {len(value)} characters, not {_bound(shortest)} to {_bound(longest)}"
    try:
        is_other = bool(form) and not re.search(str(form), value)
    except re.error:  # a form that Python does not know: the BMC checks it
        is_other = False
    return f"{_show(value)} does not have the form {form}" if is_other else None


def _boolean(value: AttributeValue, _entry: Mapping[str, Any]) -> str | None:
    return None if isinstance(value, bool) else f"{_show(value)} is neither true nor false"


CHECKS: dict[str, Callable[[AttributeValue, Mapping[str, Any]], str | None]] = {
    "Enumeration": _enumeration,
    "Integer": _integer,
    "String": _string,
    "Boolean": _boolean,
}


def _hint(value: AttributeValue) -> str:
    return QUOTE if isinstance(value, bool) else ""


def _show(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _bound(value: Any) -> str:
    return "any" if value is None else str(value)
