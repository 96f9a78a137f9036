#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The documentation of the action reached."""

from __future__ import annotations

DOCUMENTATION = r"""
module: reached
short_description: Fail in one sentence where a host is not reached
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Connects to the host and runs C(true) there, as the user who logs in.
  - Where that fails, so does the task, with the host's name and address, the cause and the next step. The host then
    counts as failed and not as unreachable, so that C(any_errors_fatal) and C(rescue) hold for it.
  - A network device (C(ansible.netcommon)) is asked for its capabilities instead. Where its connection does not even
    start, it is Ansible that says so.
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: none
"""

EXAMPLES = r"""
- name: Check that the host is reached
  sailloft.fleet.reached:
"""

RETURN = r"""
cause:
  description: Why the host is not reached.
  returned: failure
  type: str
  sample: "ssh: connect to host 10.0.0.1 port 22: Connection refused"
"""
