# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the neighbours that devices see: by LLDP on Linux and on switch systems, and in the InfiniBand subnet."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError


class Neighbour(NamedTuple):
    """The neighbour of an interface: the far device, and every name that it reports for its port."""

    device: str
    ports: tuple[str, ...]


# Nominal Gbit/s of a lane: InfiniBand architecture volume 1, PortInfo.LinkSpeedActive and its extensions.
LANE_GBIT_S = {
    "SDR": 2.5,
    "DDR": 5,
    "QDR": 10,
    "FDR10": 10,
    "FDR": 14,
    "EDR": 25,
    "HDR": 50,
    "NDR": 100,
    "XDR": 200,
}
# The description of the node in a Quantum switch that computes for SHARP. It has a port of the switch and no cable.
AGGREGATION_NODE = "Mellanox Technologies Aggregation Node"
# A line of ``ibnetdiscover -p`` for a port with a cable.
_PORT = re.compile(
    r"(?:CA|SW|RT)\s+\d+\s+(\d+)\s+(0x[0-9a-f]+)\s+(\d+)x\s+(\S+)\s+-\s+(?:CA|SW|RT)\s+\d+\s+(\d+)\s+(0x[0-9a-f]+)\s+"
    r"\(\s*'(.*)'\s+-\s+'(.*)'\s*\)"
)


def _loaded(text: str, title: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SiteError(
            f"{title} is not JSON: {error}", "provide the complete output of the command", subject="neighbours"
        ) from None


def _listed(value: Any) -> list[Any]:
    """Return the value as a list: systems return a single element without a list around it."""
    return value if isinstance(value, list) else [] if value in (None, "") else [value]


def _data(entry: Mapping[str, Any], name: str) -> str:
    """Return a leaf of Junos's JSON, "" where there is none."""
    values = _listed(entry.get(name))
    return str(values[0].get("data", "")) if values and isinstance(values[0], Mapping) else ""


def read_lldpd(text: str) -> dict[str, Neighbour]:
    """Read ``lldpcli -f json0 show neighbors``, of Linux, Cumulus and SONiC."""
    neighbours = {}
    for top in _listed(_loaded(text, "lldpcli's output").get("lldp")):
        for interface in _listed(top.get("interface")):
            chassis, port = _first(interface.get("chassis")), _first(interface.get("port"))
            ident = _first(port.get("id"))
            ports = [str(_first(port.get("descr")).get("value", ""))]
            # A MAC address says nothing about the port's place.
            if ident.get("type") != "mac":
                ports.insert(0, str(ident.get("value", "")))
            neighbours[interface["name"]] = Neighbour(
                str(_first(chassis.get("name")).get("value", "")), tuple(filter(None, ports))
            )
    return neighbours


def _first(value: Any) -> Mapping[str, Any]:
    listed = _listed(value)
    return listed[0] if listed and isinstance(listed[0], Mapping) else {}


def read_eos(text: str) -> dict[str, Neighbour]:
    """Read ``show lldp neighbors | json``."""
    rows = _listed(_loaded(text, "the table").get("lldpNeighbors"))
    return {row["port"]: Neighbour(row["neighborDevice"], (row["neighborPort"],)) for row in rows}


def read_nxos(text: str) -> dict[str, Neighbour]:
    """Read ``show lldp neighbors detail | json``. NX-OS shortens the names of its own ports."""
    table = _loaded(text, "the table").get("TABLE_nbor_detail") or {}
    return {
        re.sub(r"^Eth(?=\d)", "Ethernet", row["l_port_id"]): Neighbour(
            row.get("sys_name", ""), tuple(filter(None, (row.get("port_id"), row.get("port_desc"))))
        )
        for row in _listed(table.get("ROW_nbor_detail"))
    }


def read_junos(text: str) -> dict[str, Neighbour]:
    """Read ``show lldp neighbors | display json``."""
    neighbours = {}
    for top in _listed(_loaded(text, "the table").get("lldp-neighbors-information")):
        for row in _listed(top.get("lldp-neighbor-information")):
            ports = (_data(row, "lldp-remote-port-id"), _data(row, "lldp-remote-port-description"))
            local = _data(row, "lldp-local-port-id") or _data(row, "lldp-local-interface")
            neighbours[local] = Neighbour(_data(row, "lldp-remote-system-name"), tuple(filter(None, ports)))
    return neighbours


READERS: dict[str, Callable[[str], dict[str, Neighbour]]] = {
    # These four run lldpd.
    "linux": read_lldpd,
    "cumulus": read_lldpd,
    "sonic": read_lldpd,
    "dell_sonic": read_lldpd,
    "eos": read_eos,
    "junos": read_junos,
    "nxos": read_nxos,
}


def read_neighbours(system: str, text: str) -> dict[str, Neighbour]:
    """Return the neighbours in a system's LLDP table by interface. Raises SiteError for text that is no such table."""
    try:
        return READERS[system](text)
    except (AttributeError, KeyError, TypeError) as error:
        raise SiteError(
            f"this is not an LLDP table of {system}: {error!r}",
            "provide the complete output of the command",
            subject="neighbours",
        ) from None


class InfinibandLink(NamedTuple):
    """A link of the subnet: node description and port of both ends, and its speed."""

    one: tuple[str, int]
    other: tuple[str, int]
    speed_gbit_s: float


def _subnet_ports(text: str) -> Iterator[tuple[str, ...]]:
    """Return the fields of each port with a cable in the output of ``ibnetdiscover -p``."""
    for line in text.splitlines():
        match = _PORT.match(line.strip())
        if match and AGGREGATION_NODE not in match.groups()[-2:]:
            yield match.groups()


def read_infiniband(text: str) -> list[InfinibandLink]:
    """Return the links in the output of ``ibnetdiscover -p``, each once, in order, with the speed of the slower end.

    A speed that is not known is 0.
    """
    links: dict[tuple[tuple[str, int], tuple[str, int]], float] = {}
    for near_name, _guid, width, speed, far, _far_guid, end_a, end_b in _subnet_ports(text):
        ends = sorted(((end_a, int(near_name)), (end_b, int(far))))
        gbit_s = int(width) * LANE_GBIT_S.get(speed, 0)
        links[ends[0], ends[1]] = min(gbit_s, links.get((ends[0], ends[1]), gbit_s))
    return [InfinibandLink(end_a, end_b, speed) for (end_a, end_b), speed in sorted(links.items())]


def read_guids(text: str) -> dict[str, set[str]]:
    """Return the GUIDs by node description in the output of ``ibnetdiscover -p``: an HCA's port's, a switch's own.

    A description has several GUIDs if several nodes have it.
    """
    guids: dict[str, set[str]] = {}
    for _near, guid, _width, _speed, _far, far_guid, end_a, end_b in _subnet_ports(text):
        guids.setdefault(end_a, set()).add(guid)
        guids.setdefault(end_b, set()).add(far_guid)
    return guids


def infiniband_device(description: str) -> tuple[str, str]:
    """Return the device and the HCA of a node description; a switch has no HCA.

    Linux writes "HOST mlx5_0" (rdma-core, rdma-ndd), managed NVIDIA switches "MF0;NAME:MODEL/U1".
    """
    managed = re.fullmatch(r"MF0;([^:]+):.*", description)
    if managed:
        return managed[1], ""
    name, _space, hca = description.partition(" ")
    return name, hca
