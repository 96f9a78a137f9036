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

from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import End, Link, Planned
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
            "NetBox",
            f"its response has no {error}",
            "check that the URL is a NetBox URL, and that its version is 4.0 or later",
        ) from None


def _links(interfaces: list[Mapping[str, Any]], cables: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    by_id = {each["id"]: each for each in interfaces}
    devices: dict[str, dict[str, Any]] = {}
    links, left_out = [], []
    done: set[int] = set()
    for each in interfaces:
        device = each["device"]["name"]
        if device:
            devices.setdefault(device, {})[each["name"]] = {
                "label": each["label"] or each["name"],
                "management": each["mgmt_only"],
            }
        far = each["connected_endpoints"] or []
        if not far or each["connected_endpoints_type"] != "dcim.interface" or each["id"] in done:
            continue
        if len(far) > 1:
            left_out.append(f"{device} {each['name']}: its cable has {len(far)} far ends")
            continue
        other = by_id.get(far[0]["id"], far[0])
        done.update((each["id"], other["id"]))
        if not device or not other["device"]["name"]:
            left_out.append(f"{device or 'a device'} {each['name']}: a device on its cable has no name")
            continue
        ends = (other, each) if each["cable_end"] == "B" else (each, other)
        peers = [peer["id"] for peer in each["link_peers"]]
        links.append(
            {
                "ends": [[end["device"]["name"], end["name"]] for end in ends],
                "speed_gbit_s": _speed_gbit_s(each) or (_speed_gbit_s(other) if "type" in other else 0),
                "infiniband": each["type"]["value"].startswith("infiniband"),
                "length_m": _length_m(cables.get(each["cable"]["id"], {})) if peers == [other["id"]] else None,
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
        found = re.match(r"(\d+(?:\.\d+)?)gbase-", kind)
        speed = float(found[1]) if found else 1 if kind.startswith("1000base-") else 0
    # The RoCE policy requires whole numbers.
    return int(speed) if speed == int(speed) else speed


def _length_m(cable: Mapping[str, Any]) -> float | None:
    if not cable.get("length") or not cable.get("length_unit"):
        return None
    return round(float(cable["length"]) * METRES[cable["length_unit"]["value"]], 2)


def planned_in_netbox(found: Mapping[str, Any]) -> Planned:
    """Return the planned cables in a result of ``read_links``."""
    interfaces = found["interfaces"]
    planned = Planned(interfaces={device: set(names) for device, names in interfaces.items()})
    planned.hidden = {
        End(device, name) for device, names in interfaces.items() for name, each in names.items() if each["management"]
    }
    for each in found["links"]:
        one, other = (End(*end) for end in each["ends"])
        names = (_label(found, one), _label(found, other))
        planned.add(Link(one, other, each["speed_gbit_s"], each["infiniband"]), names)
    return planned


def roce_variables(found: Mapping[str, Any], switches: Collection[str], hosts: Collection[str]) -> dict[str, Any]:
    """Return ``roce_switch_ports`` or ``roce_host_nics`` by device, for Ethernet among ``switches`` and to ``hosts``.

    Management ports are left out. Lengths are rounded up to whole metres. A length or speed that is not known is
    left out, and the policy reports where it needs one.
    """
    variables: dict[str, Any] = {}
    for each in found["links"]:
        ends = [End(*end) for end in each["ends"]]
        of_switches = [end.device in switches for end in ends]
        known = all(end.device in switches or end.device in hosts for end in ends)
        if each["infiniband"] or not known or not any(of_switches) or any(_management(found, end) for end in ends):
            continue
        port: dict[str, Any] = {"speed_gbit_s": each["speed_gbit_s"]} if each["speed_gbit_s"] else {}
        if each["length_m"] is not None:
            port["cable_m"] = ceil(each["length_m"])
        for (near, far), near_is, far_is in zip((ends, ends[::-1]), of_switches, of_switches[::-1]):
            own = variables.setdefault(near.device, {})
            if near_is:
                peer = {"switch": far.device, "port": far.interface} if far_is else _host(found, far)
                own.setdefault("roce_switch_ports", {})[near.interface] = {**port, "peer": peer}
            else:
                own.setdefault("roce_host_nics", {})[_label(found, near)] = port
    return variables


def _host(found: Mapping[str, Any], end: End) -> dict[str, str]:
    return {"host": end.device, "port": _label(found, end)}


def _label(found: Mapping[str, Any], end: End) -> str:
    """Return an interface's label, which is the RDMA device of a host's NIC; without a label, its name."""
    return str(found["interfaces"].get(end.device, {}).get(end.interface, {}).get("label", end.interface))


def _management(found: Mapping[str, Any], end: End) -> bool:
    return bool(found["interfaces"].get(end.device, {}).get(end.interface, {}).get("management"))
