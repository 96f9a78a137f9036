#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_look
short_description: Look at the whole fleet on the controller, and write one page of it
version_added: 0.1.0
description:
  - Computes the state of each host of the inventory from what was read of it, writes it as C(fleet.html), and appends
    what changed since the last look to C(fleet-log.jsonl). It runs on the controller, once for all hosts, and contacts
    none.
  - Its sources are the proofs in O(proofs), what the last look kept in C(fleet.json), and the results that the plays
    of C(playbooks/fleet.yml) have read in the same run.
  - What was not read, or too long ago, is not known. A difference is no failure of the module; see RV(holds).
options:
  path:
    description: Directory of the files, created if it is missing.
    type: path
    required: true
  proofs:
    description: Directory of the proofs.
    type: path
    required: true
  blueprint:
    description: The file of the blueprint, which has racks and cables. Without it, hosts are shown in one group.
    type: path
  title:
    description: The title of the page.
    type: str
    default: The inventory
  metrics_path:
    description: >-
      Directory of the states in Prometheus' text format, for the textfile collector of node_exporter,
      C(sailloft_fleet.prom), and if all boot servers were read, C(sailloft_boot_servers.prom). Without it, none are
      written.
    type: path
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Shows the lines that are appended to the log.
    support: full
author:
  - The Sailloft maintainers (@sailloft)
"""

EXAMPLES = r"""
- name: Look at the fleet
  sailloft.fleet.fleet_look:
    path: fleet
    proofs: proofs
    blueprint: "{{ site_blueprint | default(omit) }}"
  run_once: true
"""

RETURN = r"""
holds:
  description: Whether nothing differs and all is known, of hosts outside of a maintenance and of fabrics.
  returned: success
  type: bool
summary:
  description: The look in one sentence.
  returned: success
  type: str
  sample: "38 of 40 hosts are as planned, 1 has a fault, 1 is not known"
lines:
  description: What is not as planned, worst first, with equal texts of several hosts in one line.
  returned: success
  type: list
  elements: str
counts:
  description: The number of hosts by state (C(fault), C(differs), C(unknown), C(noted), C(ok), C(none)).
  returned: success
  type: dict
changes:
  description: The lines that this look has appended to the log, in JSON.
  returned: success
  type: list
  elements: str
files:
  description: The page, the kept state, the log, and the metrics.
  returned: success
  type: list
  elements: str
"""
