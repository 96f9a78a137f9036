# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The report of an unknown machine: written by the inspection stage, and read as the data of a stranger. Pure.

Anybody on the boot network can send a report. So each text has a few harmless characters only: no braces or percent
signs, with which Ansible would run a template, and no quotes, line ends or control characters.
"""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import stored, values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import InvalidValueError
from ansible_collections.sailloft.fleet.plugins.module_utils.discovery.errors import DiscoveryError

FORMAT = "sailloft-inspection/1"
# The keeper of a boot server takes no larger one. The largest recorded topology has 52 KB; 512 virtual functions add
# 250 KB.
LIMIT_BYTES = 1 << 19
LONGEST_TEXT = 128
MOST_NICS = 256
# An identifier and a description.
MOST_PORT_NAMES = 2
HARMLESS = re.compile(r"[A-Za-z0-9 .,_:;/#+()@&*=-]*")
MOST_DIGITS = 18
AGAIN = "look at the machine, and boot it again"


@dataclass(frozen=True)
class ReportedNic:
    """A network interface that is a device; ``neighbour`` and its ``ports`` are what LLDP says, "" and none if nothing.

    The ports are all names that the neighbour has for its port.
    """

    name: str
    mac: str
    driver: str = ""
    link: bool = False
    neighbour: str = ""
    ports: tuple[str, ...] = ()


@dataclass(frozen=True)
class MachineReport:
    """A machine, known by the MAC address that it boots from.

    ``device_counts`` has the number of its PCI functions by kind, ``topology`` is a Host as its to_dict returns it, and
    ``problems`` are sentences on what could not be read.
    """

    mac: str
    vendor: str = ""
    product: str = ""
    serial: str = ""
    bmc_address: str = ""
    bmc_mac: str = ""
    memory_mib: int = 0
    cpus: int = 0
    device_counts: dict[str, int] = field(default_factory=dict)
    nics: tuple[ReportedNic, ...] = ()
    problems: tuple[str, ...] = ()
    topology: Any = None

    def summary(self) -> dict[str, Any]:
        """Return all but the topology, for a result of a module."""
        return {name: value for name, value in asdict(self).items() if name != "topology"}


def harmless(text: str) -> str:
    """Return the text with "_" in place of each character that a report may not have, shortened."""
    return "".join(character if HARMLESS.fullmatch(character) else "_" for character in text[:LONGEST_TEXT])


def dump(report: MachineReport) -> bytes:
    """Return the report as it is sent. One that would be too large is sent without its topology, and says so."""
    data = json.dumps({"format": FORMAT, **asdict(report)}, separators=(",", ":")).encode()
    if len(data) <= LIMIT_BYTES or report.topology is None:
        return data
    problem = f"its topology has more than {LIMIT_BYTES >> 10} KiB"
    return dump(MachineReport(**{**vars(report), "topology": None, "problems": (*report.problems, problem)}))


def load(data: bytes, mac: str) -> MachineReport:
    """Return the report of the machine with this MAC address. Raises DiscoveryError for anything else, and no other."""
    subject = f"report of {mac}"
    if len(data) > LIMIT_BYTES:
        raise DiscoveryError(f"has more than {LIMIT_BYTES >> 10} KiB", AGAIN, subject=subject)
    try:
        report: MachineReport = stored.load(
            MachineReport, json.loads(data, parse_int=_integer, parse_constant=_refuse), FORMAT, "report", AGAIN
        )
        _check(report, mac)
    except (ValueError, RecursionError) as error:
        raise DiscoveryError(f"is not JSON: {error!r:.80}", AGAIN, subject=subject) from None
    except (StoredError, InvalidValueError) as error:
        raise DiscoveryError(error.cause, AGAIN, subject=subject) from None
    return report


def _check(report: MachineReport, mac: str) -> None:
    """Raise InvalidValueError for a value that no machine has."""
    for address in (report.mac, *(nic.mac for nic in report.nics)):
        values.matching(values.MAC)(address)
    if report.mac != mac:
        raise InvalidValueError(f"it is of {report.mac}")
    if report.bmc_mac:
        values.matching(values.MAC)(report.bmc_mac)
    if report.bmc_address:
        ipaddress.ip_address(report.bmc_address)
    values.integer(report.memory_mib, 0, 1 << 32)
    values.integer(report.cpus, 0, 1 << 20)
    limits = [(len(entries), MOST_NICS) for entries in (report.nics, report.problems, report.device_counts)]
    for count, limit in (*limits, *((len(nic.ports), MOST_PORT_NAMES) for nic in report.nics)):
        if count > limit:
            raise InvalidValueError(f"it has {count} entries, where {limit} are possible")
    nic_texts = [text for nic in report.nics for text in (nic.name, nic.driver, nic.neighbour, *nic.ports)]
    for text in (report.vendor, report.product, report.serial, *report.problems, *report.device_counts, *nic_texts):
        if len(text) > LONGEST_TEXT or not HARMLESS.fullmatch(text):
            raise InvalidValueError(f"{text[:40]!r} is no text of a report")


def _integer(digits: str) -> int:
    """Return a number; Python takes very long to read a very long one, or refuses it."""
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits")
    return int(digits)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number")
