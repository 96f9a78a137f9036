#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: ufm_partitions
short_description: Give the partitions of a UFM their planned members
version_added: 0.1.0
extends_documentation_fragment:
  [sailloft.fleet.infiniband, sailloft.fleet.infiniband.ufm, sailloft.fleet.attributes]
description:
  - Where UFM manages the fabric, its partitions get the members that M(sailloft.fleet.ib_plan) plans from the same
    options, by UFM's REST API. It runs on the controller.
  - Members are added, changed in membership or C(index0), and then removed. Partitions that are not planned and the
    default partition stay as they are. HCAs whose GUIDs are not known are left out, and listed in RV(unknown); nothing
    is removed from their partitions.
"""

EXAMPLES = r"""
- name: Give the partitions their members
  sailloft.fleet.ufm_partitions:
    blueprint: inventories/blue_vela/blueprint.yml
    fabric: compute
    readings: {node-0001: read/node-0001.json.gz}
    partitions:
      research: {pkey: "0x0001", members: {nodes: full}, index0: true}
    ufm_url: https://ufm.example.com
    ufm_token: "{{ vault_ufm_token }}"
"""

RETURN = r"""
steps:
  description: The changes, as lines.
  returned: success
  type: list
  elements: str
  sample: ["0x0001: add or change 500 members"]
left:
  description: What differs from the plan and is left as it is, as lines.
  returned: success
  type: list
  elements: str
unknown:
  description: The HCAs and switches whose GUIDs are not known, as lines.
  returned: success
  type: list
  elements: str
"""
