# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cables that are recorded in NetBox: planned cables, and the ports of the RoCE policy. Pure.

``Interface`` and ``Cable`` of NetBox's REST API are documented at /api/schema/ of each NetBox.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from math import ceil
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import (
    Planned,
    PlannedCable,
    PlannedEnd,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError

# NetBox: dcim/choices.py, CableLengthUnitChoices, in metres.
METRES = {"km": 1000, "m": 1, "cm": 0.01, "mi": 1609.344, "ft": 0.3048, "in": 0.0254}
# NetBox: dcim/choices.py, InterfaceTypeChoices; the speeds of InfiniBand generations in Gbit/s, with four lanes.
INFINIBAND_GBIT_S = {"edr": 100, "hdr": 200, "ndr": 400, "xdr": 800}


def read_links(interfaces: Iterable[Mapping[str, Any]], cables: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return ``links``, ``interfaces`` (device -> name -> ``label``, ``management``) and ``left_out`` (lines).

    A link has both ends with the end A first, ``speed_gbit_s`` (0: not known), ``infiniband`` and ``length_m``. The
    length of a path through patch panels is not known (None). Raises SiteError for data that is no answer of NetBox.
    """
    try:
        return _links(list(interfaces), {cable["id"]: cable for cable in cables})
    except (AttributeError, KeyError, TypeError) as error:
        raise SiteError(
            f"its response has no {error}",
            "check that the URL is a NetBox URL, and that its version is 4.0 or later",
            subject="NetBox",
        ) from None


def _links(interfaces: list[Mapping[str, Any]], cables: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    by_id = {interface["id"]: interface for interface in interfaces}
    devices: dict[str, dict[str, Any]] = {}
    links, left_out = [], []
    cable_ids: set[int] = set()
    for interface in interfaces:
        device = interface["device"]["name"]
        if device:
            devices.setdefault(device, {})[interface["name"]] = {
                "label": interface["label"] or interface["name"],
                "management": interface["mgmt_only"],
            }
        far = interface["connected_endpoints"] or []
        if not far or interface["connected_endpoints_type"] != "dcim.interface" or interface["id"] in cable_ids:
            continue
        if len(far) > 1:
            left_out.append(f"{device} {interface['name']}: its cable has {len(far)} far ends")
            continue
        far_interface = by_id.get(far[0]["id"], far[0])
        cable_ids.update((interface["id"], far_interface["id"]))
        if not device or not far_interface["device"]["name"]:
            left_out.append(f"{device or 'a device'} {interface['name']}: a device on its cable has no name")
            continue
        ends = (far_interface, interface) if interface["cable_end"] == "B" else (interface, far_interface)
        peers = [peer["id"] for peer in interface["link_peers"]]
        links.append(
            {
                "ends": [[end["device"]["name"], end["name"]] for end in ends],
                "speed_gbit_s": _speed_gbit_s(interface)
                or (_speed_gbit_s(far_interface) if "type" in far_interface else 0),
                "infiniband": interface["type"]["value"].startswith("infiniband"),
                "length_m": _length_m(cables.get(interface["cable"]["id"], {}))
                if peers == [far_interface["id"]]
                else None,
            }
        )
    return {"links": links, "interfaces": devices, "left_out": left_out}


def _speed_gbit_s(interface: Mapping[str, Any]) -> float:
    """Return an interface's own speed (kbit/s in NetBox), or the speed in the name of its type, or 0."""
    kind = interface["type"]["value"]
    if interface["speed"]:
        speed = interface["speed"] / 1_000_000
    elif kind.startswith("infiniband-"):
        speed = INFINIBAND_GBIT_S.get(kind[len("infiniband-") :], 0)
    else:
        match = re.match(r"(\d+(?:\.\d+)?)gbase-", kind)
        speed = float(match[1]) if match else 1 if kind.startswith("1000base-") else 0
    # The RoCE policy requires whole numbers.
    return int(speed) if speed == int(speed) else speed


def _length_m(cable: Mapping[str, Any]) -> float | None:
    if not cable.get("length") or not cable.get("length_unit"):
        return None
    return round(float(cable["length"]) * METRES[cable["length_unit"]["value"]], 2)


def planned_in_netbox(netbox: Mapping[str, Any]) -> Planned:
    """Return the planned cables in a result of ``read_links``."""
    interfaces = netbox["interfaces"]
    planned = Planned(interfaces={device: set(names) for device, names in interfaces.items()})
    planned.hidden = {
        PlannedEnd(device, name)
        for device, names in interfaces.items()
        for name, interface in names.items()
        if interface["management"]
    }
    for interface in netbox["links"]:
        end_a, end_b = (PlannedEnd(*end) for end in interface["ends"])
        names = (_label(netbox, end_a), _label(netbox, end_b))
        planned.add(PlannedCable(end_a, end_b, interface["speed_gbit_s"], interface["infiniband"]), names)
    return planned


def roce_variables(netbox: Mapping[str, Any], switches: Collection[str], hosts: Collection[str]) -> dict[str, Any]:
    """Return ``roce_switch_ports`` or ``roce_host_nics`` by device, for Ethernet among ``switches`` and to ``hosts``.

    Management ports are left out. Lengths are rounded up to whole metres. A length or speed that is not known is
    left out, and the policy reports where it needs one.
    """
    variables: dict[str, Any] = {}
    for link in netbox["links"]:
        ends = [PlannedEnd(*end) for end in link["ends"]]
        of_switches = [end.device in switches for end in ends]
        are_known = all(end.device in switches or end.device in hosts for end in ends)
        if link["infiniband"] or not are_known or not any(of_switches) or any(_management(netbox, end) for end in ends):
            continue
        port: dict[str, Any] = {"speed_gbit_s": link["speed_gbit_s"]} if link["speed_gbit_s"] else {}
        if link["length_m"] is not None:
            port["cable_m"] = ceil(link["length_m"])
        for (near_end, far), near_is, far_is in zip((ends, ends[::-1]), of_switches, of_switches[::-1]):
            host_variables = variables.setdefault(near_end.device, {})
            if near_is:
                peer = {"switch": far.device, "port": far.interface} if far_is else _host(netbox, far)
                host_variables.setdefault("roce_switch_ports", {})[near_end.interface] = {**port, "peer": peer}
            else:
                host_variables.setdefault("roce_host_nics", {})[_label(netbox, near_end)] = port
    return variables


def _host(netbox: Mapping[str, Any], end: PlannedEnd) -> dict[str, str]:
    return {"host": end.device, "port": _label(netbox, end)}


def _label(netbox: Mapping[str, Any], end: PlannedEnd) -> str:
    """Return an interface's label, which is the RDMA device of a host's NIC; without a label, its name."""
    return str(netbox["interfaces"].get(end.device, {}).get(end.interface, {}).get("label", end.interface))


def _management(netbox: Mapping[str, Any], end: PlannedEnd) -> bool:
    return bool(netbox["interfaces"].get(end.device, {}).get(end.interface, {}).get("management"))
