#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The documentation of the action guest_answers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: guest_answers
short_description: Wait until a guest answers, for as long as it goes on
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Tries the guest's connection until it works. Meanwhile reads on its hypervisor, through libvirt, what the guest has
    read from and written to its disks and sent to its networks, and shows it every 15 seconds.
  - Fails where the guest does not run, and where none of these numbers grew for O(silent_s). There is no limit for a
    guest that goes on, because how long a boot takes depends on the machine.
  - Runs on a guest, whose inventory name is that of its domain. The hypervisor is read as the user who logs in there;
    where that user may not ask libvirt, all time counts as silence.
options:
  hypervisor:
    description: Inventory name of the host on which the guest runs.
    type: str
    required: true
  silent_s:
    description:
      - Seconds without any activity after which the guest counts as lost; on a loaded controller as many times more as
        its load exceeds its processors.
    type: int
    default: 600
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: none
"""

EXAMPLES = r"""
- name: Wait until the guest answers
  sailloft.fleet.guest_answers:
    hypervisor: "{{ gpu_guest_host }}"
"""

RETURN = r"""
elapsed_s:
  description: Seconds until it answered.
  returned: success
  type: int
  sample: 42
"""
