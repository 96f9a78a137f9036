#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The documentation of the action reached."""

from __future__ import annotations

DOCUMENTATION = r"""
module: reached
short_description: Fail with one sentence if a host is not reachable
version_added: 0.1.0
description:
  - Connects to the host and runs C(true) there, as the user who logs in.
  - If that fails, the task fails with the host's name and address, the cause and the next step. The host then counts as
    failed and not as unreachable, so that C(any_errors_fatal) and C(rescue) apply to it.
  - A network device (C(ansible.netcommon)) is asked for its capabilities instead. If its connection cannot be started,
    Ansible itself reports it.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  root:
    description: Whether the task also fails, in check mode too, if the tasks of the play do not run as root.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Check that the host is reachable
  sailloft.fleet.reached:

- name: Check that the host is reachable and that tasks run there as root
  sailloft.fleet.reached:
    root: true
"""

RETURN = r"""
cause:
  description: Why the host is not reachable, or why tasks do not run as root.
  returned: failure
  type: str
  sample: "ssh: connect to host 10.0.0.1 port 22: Connection refused"
"""
