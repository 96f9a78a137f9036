#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The documentation of the action guest_answers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: guest_answers
short_description: Wait until a guest answers, as long as it makes progress
version_added: 0.1.0
description:
  - Tries the guest's connection until it works. Meanwhile it reads the guest's disk and network counters from libvirt
    on its hypervisor, and shows them every 15 seconds with the cause of the last failed connection.
  - Fails at once if the guest does not run, is not defined on its hypervisor or has another host key than the known
    one, after 60 seconds in which it refused the SSH key, and if none of these counters grew for O(silent_s). There is
    no time limit for a guest that makes progress, because the duration of a boot depends on the machine.
  - Runs on a guest. Its inventory name must be the name of its domain. The hypervisor is read as the user who logs in
    there; if that user has no access to libvirt, all time counts as silence.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  hypervisor:
    description: Inventory name of the host on which the guest runs.
    type: str
    required: true
  silent_s:
    description:
      - Seconds without activity after which the guest counts as lost. On an overloaded controller, the time is
        multiplied by its load per processor.
    type: int
    default: 600
  boot_stall_s:
    description:
      - Seconds without activity that the boot of this guest takes in addition, because its host maps large BARs slowly,
        from RV(sailloft.fleet.gpu_domain#module:domains[].boot_stall_s).
    type: int
    default: 0
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
