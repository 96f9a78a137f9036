# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read a fabric on the host of its subnet manager: opensm's dumps and files, what infiniband-diags find."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.manager_files import (
    CONF,
    NAMES,
    PARTITIONS,
    ROOTS,
    TOPOCONFIG,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.opensm_options import values
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import ManagerReadings
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.routes.tables import routing_lines
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import AGGREGATION_NODE
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.diags import Diags

# opensm's own defaults.
DUMPS, LOG = "/var/log", "/var/log/opensm.log"
# The files in the directory of the dumps, by the field of the readings.
DUMP_FILES = {
    "links": "opensm-subnet.lst",
    "forwarding": "opensm-lfts.dump",
    "order": "opensm-ftree-ca-order.dump",
}
# Of a log only the end is read: the last sweeps are there.
LOG_BYTES = 64 << 20
PAUSE_S = 1.0
AT_A_TIME = 8
TOLD_EVERY = 512
_CA = re.compile(r"CA\s+(\d+)\s+\d+\s+0x[0-9a-f]+ .*\(\s*'(.*)'\s+-\s+'.*'\s*\)")
_COMMENT = re.compile(r"(?m)^(0x[0-9a-f]+ \d+ )#.*$")
_ROUTED = re.compile(r"(?m)^(\w{3} \d\d \d\d:\d\d:\d\d) .* tables configured on all switches")
_LOG_TIME = "%Y %b %d %H:%M:%S"
_NOT_ZERO = re.compile(r"0x(?!0000)")

Tell = Callable[[str], None]


def manager_files(folder: Path) -> dict[str, str]:
    """Return the texts of the files of a subnet manager by name, without those that are missing."""
    names = (CONF, PARTITIONS, ROOTS, NAMES, TOPOCONFIG)
    return {name: _text(folder / name) for name in names if (folder / name).is_file()}


def read_fabric(diags: Diags, folder: Path, tell: Tell, limit_s: float) -> tuple[ManagerReadings, list[str]]:
    """Return the readings of a subnet, and lines about what could not be read.

    ``folder`` has the files of the host's subnet manager. Raises InfinibandError if the dumps still change
    after ``limit_s``.
    """
    files = manager_files(folder)
    options = values(files.get(CONF, ""))
    unread: list[str] = []
    place = Path(options.get("dump_files_dir", DUMPS))
    dumps = _dumps(place, unread, limit_s)
    tell("opensm's dumps are read")
    log = routing_lines(_end_of(Path(options.get("log_file", LOG)), unread))
    for name in ("links", "forwarding"):
        file = place / DUMP_FILES[name]
        if dumps[name] and routed_since(log, file.stat().st_mtime):
            dumps[name] = ""
            unread.append(f"{file}: opensm has routed again since it was written; let opensm run with log_flags 0x43")
    names = folder / NAMES
    mapped = ["--node-name-map", str(names)] if names.is_file() else []
    discovered = _output(unread, diags, "ibnetdiscover", "-p", *mapped)
    tell("the links are read")
    pkeys = _pkeys(diags, discovered, tell, unread)
    managers = _managers(diags, unread)
    links, forwarding, order = (dumps[name] for name in DUMP_FILES)
    return ManagerReadings(True, files, discovered, links, forwarding, order, log, pkeys, managers), unread


def routed_since(log: str, written_s: float) -> bool:
    """Return True if the log's last routing is later than a time (seconds since 1970). The log's times have no year."""
    times = _ROUTED.findall(log)
    if not times:
        return False
    year = time.localtime(written_s).tm_year
    # Around New Year the log may be of the year before or after.
    routed = (
        time.mktime(time.strptime(f"{log_year} {times[-1]}", _LOG_TIME)) for log_year in (year - 1, year, year + 1)
    )
    return min(routed, key=lambda second: abs(second - written_s)) > written_s


def _dumps(folder: Path, unread: list[str], limit_s: float) -> dict[str, str]:
    """Return the dumps when two readings are equal: a sweep may be writing them."""
    end = time.monotonic() + limit_s
    previous: dict[str, str] = {}
    while True:
        texts = {name: _text(folder / file) for name, file in DUMP_FILES.items()}
        # The comments of the forwarding tables are most of a large fabric's dump.
        texts["forwarding"] = _COMMENT.sub(r"\1", texts["forwarding"])
        if texts == previous or not any(texts.values()):
            break
        if time.monotonic() > end:
            raise InfinibandError(
                f"opensm's dumps still change after {limit_s:g} s",
                "look in its log for the cause of sweeps",
                subject=str(folder),
            )
        previous = texts
        time.sleep(PAUSE_S)
    for name in ("links", "forwarding"):
        if not texts[name]:
            unread.append(f"{folder / DUMP_FILES[name]}: it is missing or empty; let opensm run with log_flags 0x43")
    return texts


def _end_of(file: Path, unread: list[str]) -> str:
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - LOG_BYTES))
            return stream.read().decode(errors="replace")
    except OSError as error:
        unread.append(f"{file}: {error.strerror}; correct log_file")
        return ""


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def hca_lids(discovered: str) -> dict[str, str]:
    """Return the LID of each HCA by its node description in the output of ``ibnetdiscover -p``."""
    matches = (_CA.match(line.strip()) for line in discovered.splitlines())
    return {match[2]: match[1] for match in matches if match and match[2] != AGGREGATION_NODE}


def _pkeys(diags: Diags, discovered: str, tell: Tell, unread: list[str]) -> dict[str, str]:
    """Return the P_Keys that the ports themselves have, by node description."""
    lids = hca_lids(discovered)
    tables: dict[str, str] = {}
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for count, (name, text) in enumerate(zip(lids, pool.map(lambda lid: _answer(diags, lid), lids.values())), 1):
            if isinstance(text, InfinibandError):
                unread.append(f"{name}: {text}")
            else:
                tables[name] = text
            if count % TOLD_EVERY == 0 or count == len(lids):
                tell(f"the P_Keys of {count} of {len(lids)} HCAs are read")
    return tables


def _answer(diags: Diags, lid: str) -> str | InfinibandError:
    """Return the table of a port, without the lines that have no P_Key."""
    try:
        lines = diags.run("smpquery", "pkeys", lid).splitlines(keepends=True)
    except InfinibandError as error:
        return error
    return "".join(line for index, line in enumerate(lines) if index == 0 or "0x" not in line or _NOT_ZERO.search(line))


def _managers(diags: Diags, unread: list[str]) -> str:
    """Return the master's records of all subnet managers, and what each says of itself."""
    text = _output(unread, diags, "saquery", "SMInfoRecord")
    lids = re.findall(r"LID\.+(\d+)", text)
    return text + "".join(_output(unread, diags, "sminfo", lid) for lid in lids)


def _output(unread: list[str], diags: Diags, *command: str) -> str:
    """Return what a program prints, "" if it fails."""
    try:
        return diags.run(*command)
    except InfinibandError as error:
        unread.append(str(error))
        return ""
