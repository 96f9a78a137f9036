#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: ufm_unhealthy_ports
short_description: Read the unhealthy ports of a UFM, isolate links and restore them
version_added: 0.1.0
extends_documentation_fragment:
  [sailloft.fleet.infiniband, sailloft.fleet.infiniband.ufm, sailloft.fleet.attributes]
description:
  - Where UFM manages the fabric, its unhealthy ports are listed with the names of the blueprint. UFM's subnet manager
    marks ports itself, for example those of links that flap, and routes around them. It runs on the controller.
  - A link in O(isolate) gets an unhealthy port, one in O(restore) a healthy one. Other ports stay as they are.
  - A link between switches is isolated only if the declared redundancy stays (O(spare_uplinks)). The link of an HCA is
    not isolated; drain its node.
  - UFM changes a port some time after its answer, so the module waits until the port is in its list, or no longer.
options:
  isolate:
    description: >-
      Ports of links between switches that UFM isolates, as the blueprint names them, such as C(leaf-01-1 ib33). Either
      end names a link.
    type: list
    elements: str
    default: []
  restore:
    description: Ports whose links UFM uses again, those of HCAs (C(node-0001 mlx5_0)), too.
    type: list
    elements: str
    default: []
  spare_uplinks:
    description: >-
      How many of its up links a switch may lack. A link is isolated only if no switch lacks more, those that UFM does
      not have or has isolated included, and one remains.
    type: int
    default: 0
  limit_s:
    description: How long UFM may take to change the ports, in seconds.
    type: int
    default: 120
"""

EXAMPLES = r"""
- name: Isolate a link, and show all that are isolated
  sailloft.fleet.ufm_unhealthy_ports:
    blueprint: inventories/blue_vela/blueprint.yml
    fabric: compute
    readings: {node-0001: read/node-0001.json.gz}
    isolate: [leaf-01-1 ib33]
    spare_uplinks: 1
    ufm_url: https://ufm.example.com
    ufm_token: "{{ vault_ufm_token }}"
"""

RETURN = r"""
unhealthy:
  description: All unhealthy ports after the change, as lines with the other end, the condition and the time.
  returned: success
  type: list
  elements: str
  sample: ["leaf-01-1 ib33 - spine-1-01 ib1: MANUAL since Wed Apr 29 00:05:32 2020"]
"""
