#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: site_plan
short_description: Plan a site from its blueprint, without access to its machines
version_added: 0.1.0
description:
  - Expands a blueprint, checks it, and writes the resulting files. It runs on the controller and contacts no host.
  - The files are C(cables.csv) (both ends, labels, lengths), C(materials.csv), C(hosts) (all addresses, for DNS),
    C(boot_nodes.json) (the nodes as C(boot_server_nodes), without MAC addresses), C(neighbours.json) (the far end of
    each interface), C(topology.conf) (Slurm, if links are RoCE or InfiniBand) and C(site.svg).
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  blueprint:
    description: The file of the blueprint.
    type: path
    required: true
  before:
    description: The previous blueprint, with which O(blueprint) is compared.
    type: path
  path:
    description: Directory for the files, created if it is missing. Without it, nothing is written.
    type: path
"""

EXAMPLES = r"""
- name: Plan the site
  sailloft.fleet.site_plan:
    blueprint: inventories/vela/blueprint.yml
    path: plans/vela
"""

RETURN = r"""
summary:
  description: The devices, cables and power of the site, as lines of text.
  returned: success
  type: list
  elements: str
difference:
  description: The changes since O(before), to add, buy and move, as lines of text.
  returned: success
  type: list
  elements: str
  sample: ["add 8 leaf: leaf-05-[1-8]", "lay 256 cables of rails", "power +44 kW, 220 kW in all"]
findings:
  description: The broken rules, each with C(rule), C(offender), C(message) and C(where) (file and line).
  returned: success
  type: list
  elements: dict
broken_rules:
  description: The RV(findings) as lines.
  returned: success
  type: list
  elements: str
  sample: ["blueprint.yml:80: rack-1: 11750 W are more than 3 supplies of 2000 W give (rule: rack power)"]
written:
  description: The files that were missing or different.
  returned: success
  type: list
  elements: str
"""
