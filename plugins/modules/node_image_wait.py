#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The documentation of the action node_image_wait."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_image_wait
short_description: Wait until a power-cycled node is up again, and show its progress
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Runs M(sailloft.fleet.node_image_info) on the node repeatedly, until the node has booted after the restart and
    systemd has started everything.
  - If the node keeps running the previous boot, it was not restarted, whatever its BMC answered. Then the wait ends
    early.
  - Shows a line when something changes, and every 30 seconds.
options:
  since:
    description: A time just before the node was restarted, in seconds since 1970 by the controller's clock.
    type: float
    required: true
  boot_id:
    description: The RV(sailloft.fleet.node_image_info#module:boot_id) of the previous boot; empty if it is not known.
    type: str
    default: ""
  timeout_s:
    description: Time limit from the beginning of the task until systemd has finished, in seconds.
    type: int
    default: 1800
  restart_timeout_s:
    description: How long the previous boot may still answer after the beginning of the task, in seconds.
    type: int
    default: 120
  interval_s:
    description: Seconds between two tries.
    type: int
    default: 5
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: none
"""

EXAMPLES = r"""
- name: Wait until the node has booted
  sailloft.fleet.node_image_wait:
    since: "{{ restarted_at }}"
    boot_id: "{{ before.boot_id }}"
  register: up
"""

RETURN = r"""
state:
  description: The result of M(sailloft.fleet.node_image_info) after the boot.
  returned: success
  type: dict
elapsed_s:
  description: Seconds since O(since).
  returned: always
  type: float
summary:
  description: The duration of each phase of the boot, as text.
  returned: success
  type: str
"""
