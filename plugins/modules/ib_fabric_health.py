#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: ib_fabric_health
short_description: Judge the links of an InfiniBand fabric by the increase of their counters
version_added: 0.1.0
extends_documentation_fragment: [sailloft.fleet.infiniband]
description:
  - Compares the counters in O(readings), which M(sailloft.fleet.ib_fabric_info) read with C(part=ports), with the
    earlier ones in O(path), which they replace. It runs on the controller and contacts no host.
  - The limits are those of the checks of M(sailloft.fleet.node_health) with the same counters. Of a time longer than a
    limit's, the average is judged.
  - If both ends of a link count errors, the cause is the cable; if one end does, the far transmitter or the cable; if
    most links of one switch or host do, that device.
  - Cables with another speed or width than planned, or at other places, are in the same table.
options:
  spare_uplinks:
    description: >-
      How many of its up links a switch may lack. A link is isolated only if no switch lacks more, those without a link
      included, and one remains.
    type: int
    default: 0
  isolate:
    description: Ports of links between switches that are to be disabled, such as C(leaf-01-1 ib33).
    type: list
    elements: str
    default: []
  restore:
    description: Ports that are to be enabled again.
    type: list
    elements: str
    default: []
  path:
    description: >-
      The directory of the earlier reading and of the result as a proof, C(infiniband-FABRIC-health.json), for
      M(sailloft.fleet.fleet_look). It is created if it is missing.
    type: path
    required: true
  metrics_path:
    description: >-
      The directory of the metrics in Prometheus' text format, C(sailloft_ib_health_FABRIC.prom), for the textfile
      collector of node_exporter. Without it, none are written.
    type: path
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: none
author:
  - The Sailloft maintainers (@sailloft)
"""

EXAMPLES = r"""
- name: Judge the compute fabric
  sailloft.fleet.ib_fabric_health:
    blueprint: inventories/blue_vela/blueprint.yml
    fabric: compute
    readings: {node-0001: read/node-0001-ports.json.gz}
    path: proofs
"""

RETURN = r"""
holds:
  description: V(true) if every link is known and has no fault. At the first reading no link is known.
  returned: success
  type: bool
summary:
  description: The table in one sentence.
  returned: success
  type: str
lines:
  description: The table, the worst first.
  returned: success
  type: list
  elements: str
faults:
  description: The faults, each with C(links), C(part) (V(cable), V(switch) or V(HCA)), C(cause) and C(checks).
  returned: success
  type: list
  elements: dict
ports:
  description: The C(guid), C(port), C(state) and C(name) of each port in O(isolate) and O(restore).
  returned: success
  type: list
  elements: dict
"""
