# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The REST API of a NetBox 4.1 that has nothing but what playbooks/netbox.yml writes of a site."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.netbox import netbox, slug

KINDS = {"sites": "sites", "racks": "racks", "device_roles": "device-roles", "manufacturers": "manufacturers"}
NONE = ("platform", "tenant", "cluster", "location", "serial", "asset_tag")
# A page has at most as many objects as NetBox's administrator allows.
MOST = 7


def api(site: Site) -> dict[str, list[dict[str, Any]]]:
    """Return NetBox's objects by path, from what netbox.yml writes; each has an id, and refers to others by id."""
    written = netbox(site, "various")
    number = {
        kind: {each.get("name", each.get("model")): index for index, each in enumerate(objects, 1)}
        for kind, objects in written.items()
    }
    paths = {f"/api/dcim/{path}/": [dict(each) for each in written[kind]] for kind, path in KINDS.items()}
    paths["/api/dcim/device-types/"] = [
        {**each, "manufacturer": {"id": number["manufacturers"][each["manufacturer"]]}}
        for each in written["device_types"]
    ]
    paths["/api/ipam/ip-addresses/"] = [dict(each) for each in written["addresses"]]
    primary = {each["name"]: each for each in written["primary_addresses"]}
    paths["/api/dcim/devices/"] = [
        {
            **dict.fromkeys(NONE),
            "name": each["name"],
            "display": each["name"],
            "site": {"id": number["sites"][each["site"]]},
            "rack": {"id": number["racks"][each["rack"]], "name": each["rack"]},
            "role": {"id": number["device_roles"][each["device_role"]], "slug": slug(each["device_role"])},
            "device_type": {"id": number["device_types"][each["device_type"]]},
            "status": {"value": "active", "label": "Active"},
            "position": each["position"],
            "primary_ip": {"address": primary[each["name"]]["primary_ip4"]},
            "primary_ip4": {"address": primary[each["name"]]["primary_ip4"]},
            "primary_ip6": None,
            "tags": [],
            "custom_fields": {},
            "config_context": {},
            "local_context_data": None,
        }
        for each in written["devices"]
    ]
    paths["/api/dcim/interfaces/"], paths["/api/dcim/cables/"] = _connected(written)
    for objects in paths.values():
        for index, each in enumerate(objects, 1):
            each["id"] = index
    for each in paths["/api/dcim/sites/"]:
        each.update(region=None, group=None, time_zone=None, facility="", prefix_count=0)
    return paths


def _connected(written: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return interfaces and cables, in the form of InterfaceSerializer and CableSerializer."""
    at = {(each["device"], each["name"]): index for index, each in enumerate(written["interfaces"], 1)}
    devices = {each["name"]: index for index, each in enumerate(written["devices"], 1)}
    far: dict[tuple[str, str], Any] = {}
    cables = []
    for index, each in enumerate(written["cables"], 1):
        ends = [(each[end]["device"], each[end]["name"]) for end in ("termination_a", "termination_b")]
        far[ends[0]], far[ends[1]] = (ends[1], index, "A"), (ends[0], index, "B")
        unit = {"value": each["length_unit"], "label": "Meters"}
        cables.append({"label": each["label"], "length": float(each["length"]), "length_unit": unit})
    interfaces = []
    for each in written["interfaces"]:
        other, cable, end = far.get((each["device"], each["name"]), (None, None, None))
        brief = other and {"id": at[other], "device": {"id": devices[other[0]], "name": other[0]}, "name": other[1]}
        interfaces.append(
            {
                "device": {"id": devices[each["device"]], "name": each["device"]},
                "name": each["name"],
                "label": each.get("label", ""),
                "type": {"value": each["type"], "label": each["type"]},
                "speed": each.get("speed"),
                "mgmt_only": each.get("mgmt_only", False),
                "cable": cable and {"id": cable},
                "cable_end": end,
                "link_peers": [brief] if brief else [],
                "link_peers_type": "dcim.interface" if brief else None,
                "connected_endpoints": [brief] if brief else None,
                "connected_endpoints_type": "dcim.interface" if brief else None,
            }
        )
    return interfaces, cables


@contextmanager
def served(paths: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Serve the objects. Yields the URL."""
    lists = {"get": {"parameters": []}}
    fixed = {
        "/api/status/": {"netbox-version": "4.1.0"},
        "/api/schema/": {
            "info": {"version": "4.1.0"},
            "paths": {"/api/dcim/devices/": lists, "/api/virtualization/virtual-machines/": lists},
        },
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlparse(self.path)
            path = asked.path if asked.path.endswith("/") else f"{asked.path}/"
            allowed = self.headers.get("Authorization") == "Token token"
            self.send_response(200 if allowed else 403)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            if allowed:
                self.wfile.write(json.dumps(fixed.get(path) or _page(path, parse_qs(asked.query))).encode())

        def log_message(self, *arguments: Any) -> None:
            pass

    def _page(path: str, query: dict[str, list[str]]) -> dict[str, Any]:
        found = paths.get(path, [])
        # limit=0 of nb_inventory is all that a page may have; it follows "next", which this NetBox does not need.
        if "offset" not in query:
            return {"count": len(found), "next": None, "previous": None, "results": found}
        start = int(query["offset"][0])
        many = min(int(query["limit"][0]), MOST)
        return {"count": len(found), "next": "unused", "previous": None, "results": found[start : start + many]}

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
