#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The documentation of the action node_firmware_fleet."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_firmware_fleet
short_description: Compare BIOS settings and firmware of the inventory's hosts with their baselines, and set them
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Reads C(node_bmc_baselines), C(node_bmc_set), C(node_boot_bmc) and C(node_boot_bmc_from) of each named host, and
    calls M(sailloft.fleet.node_firmware) once on each host that accesses BMCs. Prints what differs, equal
    differences once.
  - A host whose BMC cannot be read does not hold, and neither fails the task nor stops the others.
options:
  step:
    description:
      - V(compare) sends nothing. V(set) sends what differs and C(node_bmc_set) names, for the next restart.
        V(read_back) waits until the restarted hosts show it.
    type: str
    choices: [compare, set, read_back]
    default: compare
  names:
    description: The hosts. Those without C(node_bmc_baselines) are named and left out.
    type: list
    elements: str
    required: true
  path:
    description: >-
      The directory in which C(bmc-baseline.json), C(bmc-baseline.html) and C(bmc-baseline.txt) are written, a proof
      with a claim for each setting of each host. By default none is written.
    type: path
attributes:
  check_mode:
    description: Shows what would be set. No proof is written.
    support: full
  diff_mode:
    description: Shows what is set, and the proof that changes.
    support: full
requirements:
  - sushy >= 5.5, on the host that accesses the BMCs
"""

EXAMPLES = r"""
- name: Compare the firmware of all servers with their baselines
  sailloft.fleet.node_firmware_fleet:
    names: "{{ groups.gpu_hosts }}"
    path: proofs
  run_once: true
"""

RETURN = r"""
holds:
  description: Whether there is a baseline, and all hosts that have one are known and as wanted.
  returned: success
  type: bool
lines:
  description: What differs, one line for each difference with all its hosts, and the sum.
  returned: success
  type: list
  elements: str
to_set:
  description: The hosts on which a restart after V(step=set) would change something.
  returned: success
  type: list
  elements: str
refused:
  description: The hosts whose firmware cannot have a value of their baseline.
  returned: success
  type: list
  elements: str
failures:
  description: By host, why nothing was sent to it; with V(step=read_back), why it does not have what was set.
  returned: success
  type: dict
"""
