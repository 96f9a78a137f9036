# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Expand a blueprint into its site. Pure: the same blueprint gives the same site."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.addresses import (
    expand_networks,
    give_addresses,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.blocks import expand_blocks
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.cables import lay_cables
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.devices import expand_devices
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.spec import Blueprint


def expand(blueprint: Blueprint) -> Site:
    """Return the site of a blueprint. Raises SiteError where names, addresses or ports collide or run out."""
    root, blocks, racks = expand_blocks(blueprint)
    devices, by_kind = expand_devices(blueprint, blocks)
    site = Site(blueprint, root, racks, devices, by_kind, subnets=expand_networks(blueprint, blocks))
    give_addresses(site)
    lay_cables(site)
    return site
