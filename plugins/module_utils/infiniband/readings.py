# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The readings of a fabric: what one host gave, packed into one file, and those of several hosts together. Pure.

A file is JSON in gzip, whose checksum and length show whether it is whole.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.common import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError

_FORMAT = "sailloft-infiniband/1"
_REMEDY = "read the fabric again with ib_fabric_info"


@dataclass
class ManagerReadings:
    """The texts of one host; ``subnet`` is False where it gave only ``files``. The other fields: ``SubnetReadings``."""

    subnet: bool
    files: dict[str, str] = field(default_factory=dict)
    found: str = ""
    links: str = ""
    forwarding: str = ""
    order: str = ""
    log: str = ""
    pkeys: dict[str, str] = field(default_factory=dict)
    managers: str = ""
    counters: str = ""
    read_at_s: float = 0.0
    disabled: str = ""


class SubnetReadings(NamedTuple):
    """All that was read of a fabric, as texts; each is "" where there is none.

    ``found``: ibnetdiscover -p. ``links``, ``forwarding``, ``order``, ``log``: opensm-subnet.lst, opensm-lfts.dump,
    opensm-ftree-ca-order.dump and the lines of opensm.log about routing, of the master. ``pkeys``: smpquery pkeys by
    node description. ``managers``: saquery SMInfoRecord, and sminfo of each LID there. ``counters``: both streams of
    ibqueryerrors, at a Unix time in seconds; ``disabled``: the lines of iblinkinfo -l with disabled ports. ``files``:
    host of a manager -> name -> text of its files.
    """

    found: str = ""
    links: str = ""
    forwarding: str = ""
    order: str = ""
    log: str = ""
    pkeys: Mapping[str, str] = {}
    managers: str = ""
    counters: str = ""
    read_at_s: float = 0.0
    disabled: str = ""
    files: Mapping[str, Mapping[str, str]] = {}


def pack(readings: ManagerReadings) -> bytes:
    """Return the content of a file; the same readings always give the same bytes."""
    data = {"format": _FORMAT, **asdict(readings)}
    return gzip.compress(json.dumps(data, sort_keys=True).encode(), 6, mtime=0)


def unpack(name: str, content: bytes) -> ManagerReadings:
    """Return the readings in a file of this name. Raises InfinibandError, StoredError."""
    try:
        data = json.loads(gzip.decompress(content))
    except (EOFError, OSError, zlib.error, ValueError) as error:
        cause = f"it is no whole file of ib_fabric_info: {error}"
        raise InfinibandError(cause=cause, remedy=_REMEDY, subject=name) from None
    readings: ManagerReadings = stored.load(ManagerReadings, data, _FORMAT, f"file of ib_fabric_info: {name}", _REMEDY)
    return readings


def together(by_host: Mapping[str, ManagerReadings]) -> SubnetReadings:
    """Return the readings of several hosts as one. Raises InfinibandError if two have read the subnet."""
    readers = [host for host, readings in by_host.items() if readings.subnet]
    if len(readers) > 1:
        readers_text = f"{readers[0]} and {readers[1]}"
        remedy = "read it on the master's host only"
        raise InfinibandError(cause="both have read the subnet", remedy=remedy, subject=readers_text)
    files = {host: readings.files for host, readings in by_host.items()}
    if not readers:
        return SubnetReadings(files=files)
    subnet_reader = by_host[readers[0]]
    texts = {name: getattr(subnet_reader, name) for name in SubnetReadings._fields}
    return SubnetReadings(**{**texts, "files": files})
