#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: ib_plan
short_description: Plan the files of the subnet managers of an InfiniBand fabric
version_added: 0.1.0
extends_documentation_fragment: [sailloft.fleet.attributes, sailloft.fleet.infiniband]
description:
  - Makes C(opensm.conf), C(partitions.conf), C(root_guids.conf), C(node_names) and, with NVIDIA's subnet manager,
    C(topoconfig.conf) (the planned links) of one fabric of the blueprint. It runs on the controller, without a host.
  - Partitions are checked before opensm sees them. After one mistake in C(partitions.conf), opensm makes all ports full
    members of the default partition, and tells it only in its log.
  - A GUID that is not known yet is a comment in the files, and is listed in RV(unknown). C(topoconfig.conf) has only
    links with two known GUIDs, and with it the subnet manager sees no other links.
  - Adaptive routing and SHARP are settings of NVIDIA's subnet manager (O(options)). No proof shows their effect.
options:
  path:
    description: >-
      Directory for the files and a picture of the fabric, C(fabric.svg), created if it is missing. Without it, nothing
      is written.
    type: path
"""

EXAMPLES = r"""
- name: Plan the compute fabric
  sailloft.fleet.ib_plan:
    blueprint: inventories/blue_vela/blueprint.yml
    fabric: compute
    managers: [node-0001 mlx5_0, node-0129 mlx5_0]
    guids:
      leaf-01-1: "0xa088c20300aabbcc"
      node-0001: {mlx5_0: "0x946dae0300f1b2c4"}
    partitions:
      tenant_a: {pkey: "0x0001", members: {tenant_a: full, storage: limited}, index0: true}
    path: plans/blue_vela/compute
"""

RETURN = r"""
summary:
  description: HCAs, switches, managers and partitions as lines of text.
  returned: success
  type: list
  elements: str
unknown:
  description: The HCAs and switches whose GUIDs are not known, as lines.
  returned: success
  type: list
  elements: str
  sample: ["mlx5_3 of node-[0007-0010]: the GUIDs are not known"]
conflicts:
  description: >-
    GUIDs that were found and differ from those of the inventory, or belong to several nodes of one name; names in
    O(guids) that the site does not have.
  returned: success
  type: list
  elements: str
files:
  description: The texts of the files by name.
  returned: success
  type: dict
hosts:
  description: >-
    By host, C(hcas), its RDMA devices in the order of the blueprint's ports, each with the P_Keys of its partitions
    with C(ipoib), and C(service_level), that of its partition with C(index0).
  returned: success
  type: dict
written:
  description: The files that were missing or different.
  returned: success
  type: list
  elements: str
stale:
  description: The C(opensm*.conf) and C(topoconfig.conf) in O(path) that are not in this plan. They are left there.
  returned: success
  type: list
  elements: str
"""
