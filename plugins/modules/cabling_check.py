#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: cabling_check
short_description: Compare the neighbours that devices see with the planned cables
version_added: 0.1.0
description:
  - Lists the cables that are missing, wrong, swapped, one-sided, ambiguous or at the wrong speed. It runs on the
    controller, once for all devices.
  - A device that was not read is not judged. A cable with no end that was read is counted as not read, never as right.
options:
  blueprint:
    description: The file of the blueprint, which has the planned cables.
    type: path
  netbox:
    description:
      - The planned cables as M(sailloft.fleet.netbox_links_info) returned them.
      - One of O(blueprint) and O(netbox) is needed.
    type: dict
  read:
    description: >-
      The result of M(sailloft.fleet.cabling_info) by device. Devices without C(neighbours) count as not read.
    type: dict
    required: true
  path:
    description: >-
      The directory of a proof of the cables, C(cabling.json), C(cabling.html) and C(cabling.txt), for
      M(sailloft.fleet.fleet_look). Without it, nothing is written.
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
- name: Check the cables
  sailloft.fleet.cabling_check:
    blueprint: "{{ site_blueprint }}"
    read: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, '__cabling_read'))) }}"
  run_once: true
"""

RETURN = r"""
faults:
  description: The faults, each with C(kind), C(cable) and C(message).
  returned: success
  type: list
  elements: dict
  sample:
    - kind: swapped
      cable: "gpu01 ens1f0np0 - leaf1 Ethernet0 and gpu02 ens1f0np0 - leaf1 Ethernet8"
      message: "swap the ends of the cables ... at leaf1"
right:
  description: The number of cables that are as planned at every end that was read.
  returned: success
  type: int
wrong:
  description: The number of cables with a fault.
  returned: success
  type: int
silent:
  description: Devices that were not read, each with C(device) and C(cause).
  returned: success
  type: list
  elements: dict
  sample:
    - device: gpu07
      cause: it did not answer
unread:
  description: The number of cables with no end that was read.
  returned: success
  type: int
files:
  description: The files of the proof.
  returned: success
  type: list
  elements: str
report:
  description: The result as lines of text.
  returned: success
  type: list
  elements: str
  sample: ["62 cables are right, 1 wrong, 1 not read", "gpu07 was not read: it did not answer"]
"""
