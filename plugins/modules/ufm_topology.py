#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: ufm_topology
short_description: Compare the links that a UFM has with the planned ones
version_added: 0.1.0
extends_documentation_fragment:
  [sailloft.fleet.infiniband, sailloft.fleet.infiniband.ufm, sailloft.fleet.attributes.reads]
description:
  - Where UFM manages the fabric, its links are compared with those of the blueprint, by GUIDs and ports. It runs on the
    controller. It changes nothing, and does not fail where they differ (RV(faults)).
  - UFM's list has the width of a link, not its speed, which M(sailloft.fleet.ib_fabric_proof) compares.
options:
  master:
    description: >-
      Whether UFM also compares the fabric with its own master topology. By default that is the fabric as it was when
      UFM started. In check mode it does not, because UFM makes a report for it.
    type: bool
    default: false
  limit_s:
    description: How long UFM may take for its report, in seconds.
    type: int
    default: 600
author:
  - The Sailloft maintainers (@sailloft)
"""

EXAMPLES = r"""
- name: Compare UFM's links with the plan
  sailloft.fleet.ufm_topology:
    blueprint: inventories/blue_vela/blueprint.yml
    fabric: compute
    readings: {node-0001: read/node-0001.json.gz}
    ufm_url: https://ufm.example.com
    ufm_token: "{{ vault_ufm_token }}"
  register: compared
  failed_when: compared.failed | default(false) or compared.faults | length > 0
"""

RETURN = r"""
faults:
  description: Links that are missing, narrow or not planned, as lines.
  returned: success
  type: list
  elements: str
counts:
  description: >-
    How many planned links are C(right), C(missing), and C(unknown) because a GUID is. While some are unknown, links
    that are not planned are not reported.
  returned: success
  type: dict
  sample: {right: 12288, missing: 0, unknown: 0}
from_master:
  description: What differs from UFM's master topology, as lines.
  returned: if O(master) is true, not in check mode
  type: list
  elements: str
"""
