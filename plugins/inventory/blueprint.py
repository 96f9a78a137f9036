# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Build the inventory of a site from its blueprint."""

from __future__ import annotations

DOCUMENTATION = r"""
name: blueprint
short_description: Return all hosts, groups and variables of a site from one description
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Reads a YAML file that describes blocks, models, networks, kinds of devices and links, and expands it into an
    inventory. Each kind of device is a group.
  - Host names, rack positions, addresses, links with both ends, and the lengths of their cables follow from the
    description. C(host_vars) and C(group_vars) override it, as with each inventory.
  - docs/reference/blueprint.md describes all settings.
  - An error names file, line and the rule that is broken.
extends_documentation_fragment:
  - ansible.builtin.constructed
  - ansible.builtin.inventory_cache
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [sailloft.fleet.blueprint]
  site:
    description: The name of the site, which is a group with all of its hosts.
    type: str
    required: true
  domain:
    description: The domain of the host names, for DNS.
    type: str
  floor:
    description: The positions of racks and the route of cables.
    type: dict
  blocks:
    description: The kinds of blocks, from the outermost to the racks.
    type: dict
    required: true
  models:
    description: The types of devices, with their ports, height and power.
    type: dict
  media:
    description: The site's own types of cables, besides those that are known.
    type: dict
  networks:
    description: The networks by name.
    type: dict
  devices:
    description: The kinds of devices, each a group.
    type: dict
    required: true
  links:
    description: The rules by which ports are connected.
    type: dict
  checks:
    description: The required properties of each fabric.
    type: dict
notes:
  - With O(cache=true), the expanded inventory is kept under a digest of the file and the version of the collection. A
    change of the file is always seen.
"""

EXAMPLES = r"""
plugin: sailloft.fleet.blueprint
site: small
blocks:
  rack: {units: 42}
models:
  server: {units: 8, watts: 6500, ports: {nic: {names: "mlx5_[0:1]", speed_gbit_s: 400}}}
  switch: {units: 1, watts: 700, ports: {down: {names: "swp[1:32]", speed_gbit_s: 400}}}
networks:
  management: {network: 10.0.0.0/24, gateway: 1}
devices:
  gpu_hosts: {model: server, per: rack, count: 4, name: "gpu{n:02}", addresses: {management: 11}}
  leaf: {model: switch, per: rack, count: 2, unit: 40, name: "leaf{n}", addresses: {management: 2}}
links:
  fabric: {from: gpu_hosts, ports: nic, to: leaf, to_ports: down, medium: aoc, roce: true}
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible.utils.display import Display

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.site import expand
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.inventory import inventory as make_inventory
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.read import read
from ansible_collections.sailloft.fleet.plugins.plugin_utils.blueprint_file import ANSIBLES, load

NAME = "sailloft.fleet.blueprint"

display = Display()


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """The inventory plugin."""

    NAME = NAME

    def verify_file(self, path: str) -> bool:
        """Return True for a YAML file that names this plugin; other YAML files are inventories of other plugins."""
        if not super().verify_file(path) or not path.endswith((".yml", ".yaml")):
            return False
        with open(path, encoding="utf-8", errors="replace") as file:
            return any(line.startswith("plugin:") and NAME in line for line in file)

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Fill ``inventory``. Raises AnsibleParserError, with file, line and rule."""
        super().parse(inventory, loader, path, cache)
        config = self._read_config_data(path)
        self.load_cache_plugin()
        text = Path(path).read_text(encoding="utf-8")
        key = f"{self.get_cache_key(path)}_{_digest(text)}"
        use_cache = cache and self.get_option("cache")
        site = self._cache.get(key) if use_cache else None
        if not site:
            try:
                site = self._expanded(text, path, config)
            except SiteError as error:
                # Ansible then ends with an error that only names the file; the cause is in one of several warnings.
                if constants.INVENTORY_ANY_UNPARSED_IS_FAILED:
                    display.error(str(error), wrap_text=False)
                raise AnsibleParserError(str(error)) from error
            if self.get_option("cache"):
                self._cache[key] = site
        self._populate(site)
        inventory.set_variable("all", "site_blueprint", str(Path(path).resolve()))

    def _expanded(self, text: str, path: str, config: Any) -> dict[str, Any]:
        data, source = load(text, path)
        blueprint = read({name: value for name, value in data.items() if name not in ANSIBLES}, source)
        site = make_inventory(expand(blueprint))
        # Ansible trusts only templates in values that it has read itself.
        for kind in blueprint.kinds:
            site["groups"][kind]["vars"] = dict((config["devices"][kind] or {}).get("vars") or {})
        return site

    def _populate(self, site: dict[str, Any]) -> None:
        groups, hosts = site["groups"], site["hosts"]
        for group in groups:
            self.inventory.add_group(group)
        for group, entry in groups.items():
            for child in entry["children"]:
                self.inventory.add_child(group, child)
            for name, value in entry["vars"].items():
                self.inventory.set_variable(group, name, value)
        for host, entry in hosts.items():
            self.inventory.add_host(host, entry["group"])
            inventory_host = self.inventory.hosts[host]
            # set_variable of the inventory would search all groups for the host, for each variable.
            for name, value in entry["vars"].items():
                inventory_host.set_variable(name, value)
        self._construct(hosts)

    def _construct(self, hosts: dict[str, Any]) -> None:
        strict = self.get_option("strict")
        compose, groups, keyed = (self.get_option(name) for name in ("compose", "groups", "keyed_groups"))
        if not (compose or groups or keyed):
            return
        for host in hosts:
            variables = self.inventory.hosts[host].get_vars()
            self._set_composite_vars(compose, variables, host, strict=strict)
            self._add_host_to_composed_groups(groups, variables, host, strict=strict)
            self._add_host_to_keyed_groups(keyed, variables, host, strict=strict)


def _digest(text: str) -> str:
    """Return a digest of the file and of the collection's version, which is the cache's key for an expansion."""
    galaxy = Path(__file__).parents[2]
    version = ""
    for name in ("MANIFEST.json", "galaxy.yml"):
        file = galaxy / name
        if file.is_file():
            content = file.read_text(encoding="utf-8")
            version = json.loads(content)["collection_info"]["version"] if name == "MANIFEST.json" else content
            break
    return hashlib.sha256(f"{version}\n{text}".encode()).hexdigest()[:16]
