# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare the links that a UFM has with the planned ones, and its own comparison with its master topology.

The requests and answers are those of the guide's "Links REST API", "Reports REST API" and "Topology Compare REST API";
report_id is from NVIDIA's example (Mellanox/ufm_sdk_3.0, scripts/ufm_fabric_health). By default UFM's master topology
is the fabric as UFM found it at its start, so its comparison says nothing about the plan.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm.api import Api, digits, not_as_documented
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm.ports import PortNames, UfmPort

LINKS = "resources/links"
REPORT, LAST_REPORT = "reports/Topology_Compare", "reports/last_report/Topology_Compare"
# Every planned link has four lanes.
WIDTH = "IB_4x"
PAUSE_S = 3.0
_READY = 200


class Compared(NamedTuple):
    """Faults as lines, and how many planned links UFM has, lacks, and cannot be judged by without their GUIDs."""

    faults: list[str]
    right: int
    missing: int
    unknown: int


def links(api: Api) -> dict[frozenset[UfmPort], str]:
    """Return the width of each link of a UFM, by its ports. Raises InfinibandError."""
    try:
        return {
            frozenset(
                (
                    UfmPort(digits(row["source_guid"]), int(row["source_port"])),
                    UfmPort(digits(row["destination_guid"]), int(row["destination_port"])),
                )
            ): str(row["width"])
            for row in api.rows(LINKS)
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise not_as_documented(LINKS) from None


def compare(plan: FabricPlan, names: PortNames, seen: Mapping[frozenset[UfmPort], str]) -> Compared:
    """Return how the links of a UFM differ from the planned ones."""
    faults: list[str] = []
    right = unknown = missing = 0
    planned: set[frozenset[UfmPort]] = set()
    for ends in plan.fabric.links:
        ports = [names.port_of(end) for end in ends]
        planned_link = frozenset(port for port in ports if port)
        if len(planned_link) < len(ports):
            unknown += 1
            continue
        planned.add(planned_link)
        name = " - ".join(names.name_of(port) for port in ports if port)
        if planned_link not in seen:
            missing += 1
            faults.append(f"{name}: UFM has no such link; connect the cable")
        elif seen[planned_link] != WIDTH:
            faults.append(f"{name}: its width is {seen[planned_link]}, not {WIDTH}; check the cable")
        else:
            right += 1
    # A link of a planned device without a known GUID is not called unplanned: it may be planned.
    unplanned = [] if unknown else sorted(sorted(link) for link in seen if link not in planned)
    faults += [f"{_link(ports, names)}: no such link is planned; move the cable" for ports in unplanned]
    return Compared(faults, right, missing, unknown)


def _link(ports: list[UfmPort], names: PortNames) -> str:
    return " - ".join(names.name_of(port) for port in ports)


def differences_from_master(api: Api, names: PortNames, limit_s: float) -> list[str]:
    """Let UFM compare its fabric with its master topology, and return the differences as lines.

    Raises InfinibandError, also if the report is not ready after ``limit_s``.
    """
    end = time.monotonic() + limit_s
    try:
        number = json.loads(api.ask("POST", REPORT).text)["report_id"]
    except (KeyError, TypeError, ValueError):
        raise not_as_documented(REPORT) from None
    while api.ask("GET", f"reports/{number}").status != _READY:
        if time.monotonic() > end:
            raise InfinibandError(
                cause=f"its topology report {number} is not ready after {limit_s:g} s",
                remedy="raise limit_s",
                subject="UFM",
            )
        time.sleep(PAUSE_S)
    report = api.read(LAST_REPORT)
    try:
        return [line for kind in ("added", "removed") for line in _differences(kind, report[kind], names)]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise not_as_documented(LAST_REPORT) from None


def _differences(kind: str, part: Mapping[str, Any], names: PortNames) -> list[str]:
    lines = [f"{node['type']} {node['system_name']} (0x{digits(node['guid'])}) was {kind}" for node in part["nodes"]]
    for link in part["links"]:
        # The name is GUID_PORT:GUID_PORT.
        texts = [text.rpartition("_") for text in link["name"].split(":")]
        ports = [UfmPort(digits(guid), int(number)) for guid, _line, number in texts]
        lines.append(f"the link {_link(ports, names)} was {kind}")
    return lines
