# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build NICs from the plain data that roce_nic_info returns. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Nic, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import Seen, VirtualFunction

NIC_FIELDS = [nic_field.name for nic_field in fields(Nic)]


def nic_of(subject: str, reading: Any, nics: dict[str, Nic] | None = None) -> Nic:
    """Return a NIC's QoS from roce_nic_info's result; other data in it is ignored. Raises FabricError.

    Hosts of a fleet are alike, so equal NICs share one object. ``nics`` has the objects by the NICs' text.
    """
    record = Settings(FabricError, subject, reading)
    record.need("name", "interface")
    values = {name: record.data[name] for name in NIC_FIELDS if name in record.data}
    if nics is None:
        return _read(subject, values)
    text = repr(values)
    if text not in nics:
        nics[text] = _read(subject, values)
    return nics[text]


def seen_of(subject: str, reading: Any, nics: dict[str, Seen], shared_buffer_reason: str | None = None) -> Seen:
    """Return a NIC from roce_nic_info's result: its QoS, and why some of it is not shown. Raises FabricError.

    ``shared_buffer_reason``: the reason why its lossless priorities need no buffer of their own, or None. Equal NICs
    share one object, as in ``nic_of``.
    """
    record = Settings(FabricError, subject, reading)
    cannot = record.data.get("cannot", {})
    if not isinstance(cannot, Mapping) or not all(isinstance(reason, str) and reason for reason in cannot.values()):
        raise _invalid_nic(subject, "'cannot' is not a dictionary of reasons by setting")
    values = {name: record.data[name] for name in NIC_FIELDS if name in record.data}
    gids = record.data.get("gids")
    if gids is not None and not (isinstance(gids, (list, tuple)) and all(isinstance(gid or "", str) for gid in gids)):
        raise _invalid_nic(subject, "'gids' is not a list of kinds of GIDs")
    text = repr((values, cannot, shared_buffer_reason, gids))
    if text not in nics:
        buffer_reason = {"own_buffer": shared_buffer_reason} if shared_buffer_reason else {}
        nics[text] = Seen(
            nic_of(subject, reading), cannot={**cannot, **buffer_reason}, gids=None if gids is None else tuple(gids)
        )
    return nics[text]


def vfs_of(subject: str, reading: Any) -> list[VirtualFunction]:
    """Return the VFs of a physical function from roce_nic_info's result. Raises FabricError."""
    try:
        return [VirtualFunction(**vf) for vf in Settings(FabricError, subject, reading).data.get("vfs") or ()]
    except TypeError as error:
        raise _invalid_nic(subject, error) from error


def _read(subject: str, values: dict[str, Any]) -> Nic:
    try:
        values["queues"] = tuple(queue and Queue(**queue) for queue in values.get("queues", ()))
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, (list, tuple))}
        nic = Nic(**{**values, **lists})
    except TypeError as error:
        raise _invalid_nic(subject, error) from error
    empty = Nic("", "")
    for name in NIC_FIELDS:
        wanted, value = getattr(empty, name), getattr(nic, name)
        if isinstance(wanted, tuple) and wanted and (not isinstance(value, tuple) or len(value) != len(wanted)):
            raise _invalid_nic(subject, f"{name} does not have {len(wanted)} entries")
    return nic


def _invalid_nic(subject: str, problem: object) -> FabricError:
    return FabricError(subject, f"not a NIC as roce_nic_info returns it ({problem})", "give its result unchanged")
