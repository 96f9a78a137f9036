# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read NICs from the plain data that roce_nic_info returns. Pure.

Each field is checked. A reading of now has all of them: one that was not read would look like a setting that is off.
A saved one may be of a version that did not read them all, or read more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import Check, InvalidValueError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES, DSCPS, Nic, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import SeenNic, VirtualFunction

NUMBER, PRIORITY = values.within(0, (1 << 63) - 1), values.within(0, CLASSES - 1)


@dataclass(frozen=True)
class NicReading:
    """A NIC as roce_nic_info returned it.

    ``seen``: its QoS and GIDs, one object for NICs that are alike. The other fields are those of Seen.
    """

    seen: SeenNic
    speed_gbit_s: int | None
    mac: str | None
    vfs: tuple[VirtualFunction, ...]
    vfs_unread: str
    uncovered: tuple[str, ...]


def nic_of(subject: str, reading: Any, nics: dict[str, Nic] | None = None) -> Nic:
    """Return a NIC's QoS from roce_nic_info's result, also a saved one; other data is ignored. Raises FabricError.

    Hosts of a fleet are alike, so equal NICs share one object. ``nics`` has the objects by the NICs' text.
    """
    _fields(subject, reading, ["name", "interface"])
    settings = {name: reading[name] for name in NIC_FIELDS if name in reading}
    text = repr(settings)
    read = {} if nics is None else nics
    if text not in read:
        read[text] = Nic(**_checked(subject, settings, {name: NIC_FIELDS[name] for name in settings}))
    return read[text]


def seen_of(subject: str, reading: Any, nics: dict[str, SeenNic], shared_buffer_reason: str | None = None) -> SeenNic:
    """Return a NIC from roce_nic_info's result: its QoS, and why some of it is not shown. Raises FabricError.

    ``shared_buffer_reason``: the reason why its lossless priorities need no buffer of their own, or None. Equal NICs
    share one object, as in ``nic_of``.
    """
    settings = _fields(subject, reading, [*NIC_FIELDS, *SEEN_FIELDS])
    text = repr((settings, shared_buffer_reason))
    if text not in nics:
        fields = _checked(subject, settings, SEEN_FIELDS)
        buffer_reason = {"own_buffer": shared_buffer_reason} if shared_buffer_reason else {}
        nics[text] = SeenNic(
            nic_of(subject, reading), cannot={**fields["cannot"], **buffer_reason}, gids=fields["gids"]
        )
    return nics[text]


def reading_of(
    subject: str, reading: Any, nics: dict[str, SeenNic], shared_buffer_reason: str | None = None
) -> NicReading:
    """Return a NIC from roce_nic_info's result, and what identifies its port and VFs, as ``seen_of``."""
    fields = _checked(subject, _fields(subject, reading, PORT_FIELDS), PORT_FIELDS)
    return NicReading(seen_of(subject, reading, nics, shared_buffer_reason), **fields)


def check_name(subject: str, nic: Nic, name: str) -> None:
    """Refuse the reading of another NIC. Raises FabricError for ``subject``."""
    if nic.name != name:
        raise _invalid_nic(subject, f"it is that of {nic.name}")


def _fields(subject: str, reading: Any, names: Mapping[str, Check] | list[str]) -> dict[str, Any]:
    """Return these fields of a reading, each of which it must have."""
    if not isinstance(reading, Mapping):
        raise _invalid_nic(subject, "not a dictionary")
    missing = [name for name in names if name not in reading]
    if missing:
        raise _invalid_nic(subject, f"{', '.join(missing)} is missing")
    return {name: reading[name] for name in names}


def _checked(subject: str, fields: Mapping[str, Any], checks: Mapping[str, Check]) -> dict[str, Any]:
    checked = {}
    for name, check in checks.items():
        try:
            checked[name] = check(fields[name])
        except InvalidValueError as error:
            raise _invalid_nic(subject, f"{name}: {error.cause}") from error
    return checked


def _invalid_nic(subject: str, problem: str) -> FabricError:
    return FabricError(
        f"not a NIC as roce_nic_info returns it ({problem})", "give its result unchanged", subject=subject
    )


def _or_none(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _tuple(check: Check, length: int | None = None) -> Check:
    """Return the check for a list, of ``length`` entries where it is given; it returns a tuple."""
    of_list = values.each(check)

    def checked(value: Any) -> tuple[Any, ...]:
        entries = of_list(value)
        if length is not None and len(entries) != length:
            raise InvalidValueError(f"it has {len(entries)} entries, not {length}", f"give {length}")
        return tuple(entries)

    return checked


def _any_text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidValueError(f"{value!r} is not text", "write it in quotes")
    return value


def _record(kind: type, checks: Mapping[str, Check]) -> Check:
    """Return the check for a dictionary with these fields, others are ignored; it returns a ``kind``."""

    def checked(value: Any) -> Any:
        missing = [name for name in checks if name not in value] if isinstance(value, Mapping) else [*checks]
        if missing:
            raise InvalidValueError(f"{value!r} has no {', '.join(missing)}", "give them")
        return kind(**{name: check(value[name]) for name, check in checks.items()})

    return checked


def _reasons(value: Any) -> dict[str, str]:
    return {name: values.text(reason) for name, reason in values.by_name(value).items()}


OCTET = _tuple(_or_none(PRIORITY), CLASSES)
QUEUE = _record(Queue, {"strict": values.flag, "bandwidth_percent": _or_none(values.within(0, 100))})
NIC_FIELDS: dict[str, Check] = {
    "name": values.text,
    "interface": values.text,
    "is_vf": values.flag,
    "trust": _or_none(values.text),
    "dscp_to_priority": _tuple(_or_none(PRIORITY), DSCPS),
    "priority_to_class": OCTET,
    "queues": _tuple(_or_none(QUEUE), CLASSES),
    "pfc": _tuple(PRIORITY),
    "notification": _or_none(_tuple(PRIORITY)),
    "reaction": _or_none(_tuple(PRIORITY)),
    "cnp_dscp": _or_none(NUMBER),
    "cm_tos": _or_none(NUMBER),
    "forced_tos": _or_none(NUMBER),
    "ip_mtu_bytes": _or_none(NUMBER),
    "may_mark": _or_none(values.flag),
    "dcbx_by_host": _or_none(values.flag),
    "priority_to_buffer": OCTET,
    "buffer_bytes": _tuple(_or_none(NUMBER), CLASSES),
    "cable_m": _or_none(NUMBER),
}
SEEN_FIELDS: dict[str, Check] = {"cannot": _reasons, "gids": _or_none(_tuple(_or_none(values.text)))}
PORT_FIELDS: dict[str, Check] = {
    "speed_gbit_s": _or_none(NUMBER),
    "mac": _or_none(_any_text),
    "vfs": _tuple(
        _record(
            VirtualFunction,
            {
                "index": NUMBER,
                "mac": _or_none(values.text),
                "vlan": NUMBER,
                "qos": NUMBER,
                "mode": _or_none(values.text),
                "representor": _or_none(values.text),
            },
        )
    ),
    "vfs_unread": _any_text,
    "uncovered": _tuple(values.text),
}
