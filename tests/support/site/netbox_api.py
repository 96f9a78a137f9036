# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A simulated NetBox: the part of NetBox 4.4.10's REST API that a site needs, with the answers of a real one."""

from __future__ import annotations

import copy
import ipaddress
import json
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urlparse

from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.api import NetboxApi
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.objects import netbox
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.write import Writer

# Fields that are another object's id when written, and the object itself when read.
NESTED = {
    "manufacturer": "dcim/manufacturers",
    "site": "dcim/sites",
    "rack": "dcim/racks",
    "device": "dcim/devices",
    "device_type": "dcim/device-types",
    "role": "dcim/device-roles",
    "primary_ip4": "ipam/ip-addresses",
    "primary_ip6": "ipam/ip-addresses",
    "oob_ip": "ipam/ip-addresses",
    "primary_mac_address": "dcim/mac-addresses",
}
# Fields that are a word when written; the type of a cable is also a word when read.
CHOICES = {"type", "face", "length_unit"}
SHOWN = ("label", "name", "model", "prefix", "address", "mac_address")
BRIEF = ("id", "display", "name", "slug", "device", "address", "mac_address")
# The fields in which an object is unique.
UNIQUE = {
    "dcim/sites": ("slug",),
    "dcim/manufacturers": ("slug",),
    "dcim/device-types": ("manufacturer", "slug"),
    "dcim/device-roles": ("slug",),
    "dcim/racks": ("site", "name"),
    "dcim/devices": ("site", "name"),
    "dcim/interfaces": ("device", "name"),
    "ipam/prefixes": ("prefix",),
    "ipam/ip-addresses": ("address",),
    "dcim/cables": ("id",),
    "dcim/mac-addresses": ("id",),
}
NONE = (
    "platform",
    "tenant",
    "cluster",
    "location",
    "asset_tag",
    "rack",
    "primary_ip",
    "primary_ip4",
    "primary_ip6",
    "oob_ip",
)
DEFAULTS = {
    "dcim/sites": {"region": None, "group": None, "time_zone": None, "facility": "", "prefix_count": 0},
    "dcim/devices": {
        **dict.fromkeys(NONE),
        "serial": "",
        "status": {"value": "active", "label": "Active"},
        "tags": [],
        "custom_fields": {},
        "config_context": {},
        "local_context_data": None,
    },
    "dcim/interfaces": {
        "label": "",
        "speed": None,
        "mgmt_only": False,
        "primary_mac_address": None,
        "cable": None,
        "cable_end": None,
        "link_peers": [],
        "link_peers_type": None,
        "connected_endpoints": None,
        "connected_endpoints_type": None,
    },
    "dcim/cables": {"type": None, "label": "", "length": None, "length_unit": None},
    "ipam/prefixes": {"vrf": None},
    "ipam/ip-addresses": {"vrf": None, "assigned_object_type": None, "assigned_object_id": None},
}
RIGHTS = {"POST": "add", "PATCH": "change"}


class RefusedError(Exception):
    """NetBox refuses an object: {field: causes}."""


class _Ids(Sequence[int]):
    """The ids of a list of objects; bisect has no ``key`` in Python 3.9."""

    def __init__(self, objects: list[dict[str, Any]]) -> None:
        self.objects = objects

    def __len__(self) -> int:
        return len(self.objects)

    def __getitem__(self, at: Any) -> Any:
        return self.objects[at]["id"]


class NetBox:
    """The objects of NetBox by path. ``most`` is its MAX_PAGE_SIZE; ``asked`` lists the requests.

    ``forbidden`` has what the token may not do: (POST or PATCH, path).
    """

    def __init__(self, most: int = 1000) -> None:
        self.paths: dict[str, list[dict[str, Any]]] = {path: [] for path in UNIQUE}
        self.most = most
        self.url = "https://netbox.example.com"
        self.asked: list[tuple[str, str]] = []
        self.forbidden: set[tuple[str, str]] = set()
        self._unique: set[tuple[Any, ...]] = set()
        self._places: dict[tuple[Any, Any], int] = {}

    def open_url(self, url: str, method: str = "GET", data: str | None = None, **_others: Any) -> BytesIO:
        """Answer like ``ansible.module_utils.urls.open_url``."""
        asked = urlparse(url)
        status, answer = self.answer(method, asked.path, asked.query, data)
        body = BytesIO(json.dumps(answer).encode())
        if status >= 400:
            raise HTTPError(url, status, {400: "Bad Request", 403: "Forbidden"}[status], None, body)  # type: ignore[arg-type]
        return body

    def answer(self, method: str, path: str, query: str, data: str | None) -> tuple[int, Any]:
        """Return (status, answer)."""
        name = path.strip("/").removeprefix("api/")
        self.asked.append((method, name))
        if method == "GET":
            return self._list(name, parse_qs(query))
        if method == "OPTIONS":
            # As the class BulkOperationMetadata of NetBox: PUT stands for PATCH, and without any right there is no key.
            shown = [{"PATCH": "PUT"}.get(one, one) for one in RIGHTS if (one, name) not in self.forbidden]
            return 200, {"name": name, **({"actions": {one: {} for one in shown}} if shown else {})}
        if (method, name) in self.forbidden:
            return 403, {"detail": "You do not have permission to perform this action."}
        many = len(self.paths[name])
        faults: list[dict[str, Any]] = []
        written = []
        for each in json.loads(data or ""):
            try:
                written.append(self.store(name, each))
                faults.append({})
            except RefusedError as error:
                # Devices are written one after the other, and the answer is that of the first fault.
                if name == "dcim/devices":
                    del self.paths[name][many:]
                    return 400, error.args[0]
                faults.append(error.args[0])
        if any(faults):
            del self.paths[name][many:]
            return 400, faults
        return {"POST": 201, "PATCH": 200}[method], written

    def by_id(self, path: str, number: int) -> dict[str, Any]:
        """Return an object; the list is in the order of ids."""
        objects = self.paths[path]
        return objects[bisect_left(_Ids(objects), number)]

    def _list(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        found = self.paths.get(path, [])
        for name, values in query.items():
            if name == "site":
                sites = [each["id"] for each in self.paths["dcim/sites"] if each["slug"] in values]
                if not sites:
                    return 400, {name: [f"Select a valid choice. {values[0]} is not one of the available choices."]}
                found = [each for each in found if self._sites(path, each) & set(sites)]
            elif name == "site_id":
                found = [each for each in found if self._sites(path, each) & set(map(int, values))]
            elif name == "manufacturer_id":
                found = [each for each in found if str(each["manufacturer"]["id"]) in values]
            elif name in ("slug", "prefix", "name"):
                found = [each for each in found if each[name] in values]
            elif name == "mac_address":
                found = [each for each in found if each[name] in map(str.upper, values)]
            elif name == "device_id":
                found = [each for each in found if str(each["device"]["id"]) in values]
            elif name == "address":
                found = [each for each in found if each[name].partition("/")[0] in values]
            elif name == "contains":
                found = [each for each in found if _inside(values[0], ipaddress.ip_network(each["prefix"]))]
            elif name == "parent":
                nets = [ipaddress.ip_network(value) for value in values]
                found = [each for each in found if any(_inside(each["address"], net) for net in nets)]
        count = len(found)
        # limit=0 requests as many as a page may have.
        start = int(query.get("offset", ["0"])[0])
        many = min(int(query.get("limit", ["0"])[0]) or self.most, self.most)
        page = found[start : start + many]
        if "fields" in query:
            names = query["fields"][0].split(",")
            page = [{name: each[name] for name in names if name in each} for each in page]
        following = urlencode({**query, "limit": [str(many)], "offset": [str(start + many)]}, doseq=True)
        more = f"{self.url}/api/{path}/?{following}" if start + many < count else None
        return 200, {"count": count, "next": more, "previous": None, "results": page}

    def _sites(self, path: str, raw: dict[str, Any]) -> set[int]:
        if path == "dcim/interfaces":
            return self._sites("dcim/devices", self.by_id("dcim/devices", raw["device"]["id"]))
        if path == "dcim/cables":
            ends = raw["a_terminations"] + raw["b_terminations"]
            return {
                site
                for each in ends
                for site in self._sites("dcim/interfaces", self.by_id("dcim/interfaces", each["object_id"]))
            }
        return {raw["site"]["id"]}

    def store(self, path: str, given: dict[str, Any]) -> dict[str, Any]:
        """Store an object of a POST or PATCH, and return it."""
        objects = self.paths[path]
        old = self.by_id(path, given["id"]) if "id" in given else None
        following = objects[-1]["id"] + 1 if objects else 1
        new = {**(old or {"id": following, **copy.deepcopy(DEFAULTS.get(path, {}))}), **given}
        for name in given:
            if name in NESTED and new[name] is not None:
                new[name] = _brief(self.by_id(NESTED[name], new[name]))
            elif name in CHOICES and (path, name) != ("dcim/cables", "type"):
                new[name] = {"value": new[name], "label": new[name].upper()}
        new["display"] = next(new[name] for name in SHOWN if new.get(name))
        if old is None:
            self._refuse_second(path, new)
        if path == "dcim/devices":
            self._check_device(new)
        if path == "dcim/mac-addresses":
            new["mac_address"] = new["mac_address"].upper()
        if path == "dcim/interfaces" and given.get("primary_mac_address"):
            mac = self.by_id("dcim/mac-addresses", given["primary_mac_address"])
            if mac["assigned_object_id"] != new["id"]:
                raise RefusedError({"primary_mac_address": ["It is not assigned to this interface."]})
        new.update({name: float(new[name]) for name in ("position", "u_height", "length") if new.get(name)})
        if old is None:
            objects.append(new)
        else:
            old.update(new)
            for interface in self.paths["dcim/interfaces"] if path == "dcim/mac-addresses" else ():
                if interface["primary_mac_address"] and interface["primary_mac_address"]["id"] == old["id"]:
                    interface["primary_mac_address"] = _brief(old)
        if path == "dcim/cables" and old is None:
            self._connect(new)
        return old or new

    def _refuse_second(self, path: str, new: dict[str, Any]) -> None:
        key = [new[name]["id"] if isinstance(new[name], dict) else new[name] for name in UNIQUE[path]]
        if (path, *key) in self._unique:
            raise RefusedError({"__all__": ["It already exists."]})
        self._unique.add((path, *key))

    def _check_device(self, new: dict[str, Any]) -> None:
        place = (new["rack"] and new["rack"]["id"], new["position"])
        if self._places.setdefault(place, new["id"]) != new["id"]:
            raise RefusedError({"position": [f"U{new['position']} is already occupied"]})
        for name in ("primary_ip4", "primary_ip6", "oob_ip"):
            if new[name]:
                address = self.by_id("ipam/ip-addresses", new[name]["id"])
                if self.by_id("dcim/interfaces", address["assigned_object_id"])["device"]["id"] != new["id"]:
                    raise RefusedError({name: ["The specified IP address is not assigned to this device."]})
        new["primary_ip"] = new["primary_ip4"] or new["primary_ip6"]

    def _connect(self, cable: dict[str, Any]) -> None:
        ends = [self.by_id("dcim/interfaces", cable[f"{end}_terminations"][0]["object_id"]) for end in "ab"]
        for near in ends:
            if near["cable"]:
                raise RefusedError({"__all__": [f"Duplicate termination found for dcim.interface {near['id']}"]})
        for near, far, end in ((*ends, "A"), (*ends[::-1], "B")):
            near.update(cable=_brief(cable), cable_end=end)
            near.update(link_peers=[_brief(far)], link_peers_type="dcim.interface")
            near.update(connected_endpoints=[_brief(far)], connected_endpoints_type="dcim.interface")


def _brief(raw: dict[str, Any]) -> dict[str, Any]:
    return {name: raw[name] for name in BRIEF if name in raw}


def _inside(address: str, net: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    one = ipaddress.ip_interface(address).ip
    return one.version == net.version and one in net


def write(box: NetBox, site: Site, check: bool = False, manufacturer: str = "various") -> dict[str, Any]:
    """Write a site as ``netbox_write`` does, and return its result."""
    given = {"netbox_url": "https://netbox.example.com/", "netbox_token": "token", "validate_certs": True}
    return Writer(NetboxApi(given, box.open_url), netbox(site, manufacturer), check).write()


def filled(site: Site, most: int = 1000) -> NetBox:
    """Return a NetBox that contains a site."""
    box = NetBox()
    write(box, site)
    box.most = most
    return box


@contextmanager
def served(box: NetBox) -> Iterator[str]:
    """Serve a NetBox; yield its URL."""
    lists = {"get": {"parameters": []}}
    fixed = {
        "/api/status/": {"netbox-version": "4.4.10"},
        "/api/schema/": {
            "info": {"version": "4.4.10"},
            "paths": {"/api/dcim/devices/": lists, "/api/virtualization/virtual-machines/": lists},
        },
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlparse(self.path)
            path = asked.path if asked.path.endswith("/") else f"{asked.path}/"
            length = int(self.headers.get("Content-Length") or 0)
            data = self.rfile.read(length).decode() if length else None
            if self.headers.get("Authorization") != "Token token":
                status, answer = 403, {"detail": "Invalid token"}
            elif path in fixed:
                status, answer = 200, fixed[path]
            else:
                status, answer = box.answer(self.command, path, asked.query, data)
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def do_OPTIONS(self) -> None:
            self.do_GET()

        def do_PATCH(self) -> None:
            self.do_GET()

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    box.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield box.url
    server.shutdown()
    server.server_close()
