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
  - Compares the plan of M(sailloft.fleet.ib_plan), made from the same options, with what was read. It runs on the
    controller and contacts no host.
  - It compares cables, with speed and width, and GUIDs, and reads links and routes from opensm's own tables.
  - Every HCA reaches every other one, no links wait for each other (credit loop), rails stay in their leaves, and HCAs
    are spread over up ports as evenly as the tree allows. In a non-blocking tree no shift of the nodes, on all rails at
    once, loads a link twice.
  - The P_Keys on each port. The subnet managers that run, and their files.
  - Adaptive routing and SHARP are not proved.
options:
  links:
    description: The text of C(opensm-subnet.lst), which opensm writes with the planned C(log_flags).
    type: str
    required: true
  forwarding:
    description: The text of C(opensm-lfts.dump).
    type: str
    required: true
  order:
    description:
      - The text of C(opensm-ftree-ca-order.dump). Without it, the order of the nodes is that of their names.
      - It has the HCAs of C(opensm-subnet.lst), or some of them with C(cn_guid_file) in O(options).
    type: str
    default: ""
  log:
    description: The text of opensm's log. Without it, the claim about the routing engine fails.
    type: str
    default: ""
  pkeys:
    description: What C(smpquery pkeys LID) printed, by C(HOST DEVICE).
    type: dict
    default: {}
  managers_found:
    description: >-
      What C(saquery SMInfoRecord) printed, and C(sminfo LID) for each LID there. The master's records of the others are
      older than their own answers.
    type: str
    default: ""
  manager_files:
    description: >-
      The texts of the files of each manager, by host and by the names of M(sailloft.fleet.ib_plan). The manager's own
      C(opensm-HOST.conf) may be there as C(opensm.conf).
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Prove the compute fabric
  sailloft.fleet.ib_fabric_proof:
    blueprint: inventories/blue_vela/blueprint.yml
    fabric: compute
    managers: [node-0001 mlx5_0]
    found: ["{{ lookup('ansible.builtin.file', 'read/ibnetdiscover') }}"]
    links: "{{ lookup('ansible.builtin.file', 'read/opensm-subnet.lst') }}"
    forwarding: "{{ lookup('ansible.builtin.file', 'read/opensm-lfts.dump') }}"
    order: "{{ lookup('ansible.builtin.file', 'read/opensm-ftree-ca-order.dump') }}"
    log: "{{ lookup('ansible.builtin.file', 'read/opensm.log') }}"
    path: proofs
"""

RETURN = r"""
holds:
  description: V(true) if all claims hold.
  returned: always, unless what was given cannot be read
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
