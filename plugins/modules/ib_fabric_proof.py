#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: ib_fabric_proof
short_description: Write the proof that an InfiniBand fabric is found and routed as planned
version_added: 0.1.0
extends_documentation_fragment: [sailloft.fleet.infiniband, sailloft.fleet.proof]
description:
  - Compares the plan of M(sailloft.fleet.ib_plan), made from the same options, with what
    M(sailloft.fleet.ib_fabric_info) has read (O(readings)). It runs on the controller and contacts no host. What was
    not read fails.
  - It compares cables, with speed and width, and GUIDs, and reads links and routes from opensm's own tables.
  - Every HCA reaches every other one, no links wait for each other (credit loop), rails stay in their leaves, and HCAs
    are spread over up ports as evenly as the tree allows. In a non-blocking tree no shift of the nodes, on all rails at
    once, loads a link twice.
  - The P_Keys on each port. The subnet managers that run, and their files.
  - Adaptive routing and SHARP are not proved.
"""

EXAMPLES = r"""
- name: Prove the compute fabric
  sailloft.fleet.ib_fabric_proof:
    blueprint: inventories/blue_vela/blueprint.yml
    fabric: compute
    managers: [node-0001 mlx5_0]
    readings: {node-0001: read/node-0001.json.gz}
    path: proofs
"""

RETURN = r"""
holds:
  description: V(true) if all claims hold.
  returned: always, unless the readings cannot be read
  type: bool
counts:
  description: How many claims held, failed and did not apply.
  returned: as RV(holds)
  type: dict
table:
  description: The proof as a short table.
  returned: as RV(holds)
  type: list
  elements: str
files:
  description: The proof's files.
  returned: as RV(holds)
  type: list
  elements: str
"""
