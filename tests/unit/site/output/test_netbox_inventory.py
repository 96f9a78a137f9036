# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Output of netbox.yml, read by nb_inventory, is the inventory of the blueprint: the same hosts and groups."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlparse

import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.netbox import netbox, slug

# As docs/blueprint.md has it.
INVENTORY = """
plugin: netbox.netbox.nb_inventory
api_endpoint: http://127.0.0.1:PORT
token: token
group_by: [device_roles]
group_names_raw: true
compose:
  site_rack: rack.name
groups:
  nodes: role.slug == 'node'
  roce_switches: role.slug in ['leaf', 'spine']
keyed_groups: [{key: site_rack, separator: ""}]
"""
KINDS = {"sites": "sites", "racks": "racks", "device_roles": "device-roles", "manufacturers": "manufacturers"}
NONE = ("platform", "tenant", "cluster", "primary_ip", "primary_ip4", "primary_ip6", "location", "serial", "asset_tag")


def api():
    """Return NetBox's objects by path, from what netbox.yml writes; each has an id, and refers to others by id."""
    written = netbox(sites.site(), "various")
    number = {
        kind: {each.get("name", each.get("model")): index for index, each in enumerate(objects, 1)}
        for kind, objects in written.items()
    }
    paths = {f"/api/dcim/{path}/": [dict(each) for each in written[kind]] for kind, path in KINDS.items()}
    paths["/api/dcim/device-types/"] = [
        {**each, "manufacturer": {"id": number["manufacturers"][each["manufacturer"]]}}
        for each in written["device_types"]
    ]
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
            "tags": [],
            "custom_fields": {},
            "config_context": {},
            "local_context_data": None,
        }
        for each in written["devices"]
    ]
    for objects in paths.values():
        for index, each in enumerate(objects, 1):
            each["id"] = index
    for each in paths["/api/dcim/sites/"]:
        each.update(region=None, group=None, time_zone=None, facility="", prefix_count=0)
    return paths


@pytest.fixture
def port():
    """Serve the API of a NetBox that has nothing but what was written."""
    paths = api()
    lists = {"get": {"parameters": []}}
    fixed = {
        "/api/status/": {"netbox-version": "4.1.0"},
        "/api/schema/": {
            "info": {"version": "4.1.0"},
            "paths": {"/api/dcim/devices/": lists, "/api/virtualization/virtual-machines/": lists},
        },
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = urlparse(self.path).path
            found = paths.get(path if path.endswith("/") else f"{path}/", [])
            answer = fixed.get(path, {"count": len(found), "next": None, "previous": None, "results": found})
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()


@pytest.mark.fleet  # Ansible reads an inventory over HTTP
def test_nb_inventory_has_the_hosts_groups_and_racks_of_the_blueprint(port, tmp_path):
    (tmp_path / "netbox.yml").write_text(INVENTORY.replace("PORT", str(port)))
    done = subprocess.run(
        ["ansible-inventory", "-i", "netbox.yml", "--list"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "ANSIBLE_HOME": str(tmp_path), "no_proxy": "127.0.0.1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    site = sites.site()
    physical = [device for device in site.devices.values() if device.kind.model]
    names = {group: set(found.get("hosts", [])) for group, found in listed.items()}
    for kind in {device.kind.name for device in physical}:
        assert names[kind] == {device.name for device in physical if device.kind.name == kind}
    assert names["nodes"] == names["node"]
    assert names["roce_switches"] == names["leaf"] | names["spine"]
    assert names["rack_1"] == {device.name for device in physical if device.rack.name == "rack-1"}
    racks = {name: values["site_rack"]["__ansible_unsafe"] for name, values in listed["_meta"]["hostvars"].items()}
    assert racks == {device.name: device.rack.name for device in physical}
