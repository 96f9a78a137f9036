#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Install the health check of a node, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_health
short_description: Install the health check of a node, or remove it
version_added: 0.1.0
description:
  - Installs the check (C(/usr/lib/sailloft/health.pyz), the code of this collection, which needs only Python's standard
    library), what the node must have (C(/etc/sailloft-health/expected.json)), the command C(sailloft-health), a systemd
    service, and a timer that runs a light round of checks every O(interval_s) seconds.
  - Deep checks are never run by the timer, but by the command, and only on a node that is out of service.
  - Works in an image too, whose root is a chroot on the host that builds it. There the timer is only enabled. A node
    without C(expected.json) makes no rounds.
  - The role P(sailloft.fleet.node_health#role) makes O(expected) on the controller.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  state:
    description: V(absent) removes all but the node's state in C(/var/lib/sailloft-health).
    type: str
    choices: [present, absent]
    default: present
  expected:
    description:
      - What the node must have, as the filter P(sailloft.fleet.node_health_expected#filter) returns it.
      - Without it the file is left as it is.
    type: str
  interval_s:
    description: The seconds from one round to the next, 10 to 3600.
    type: int
    default: 60
seealso:
  - module: sailloft.fleet.node_health_info
"""

EXAMPLES = r"""
- name: Install the health check of a bare-metal node from its recording
  sailloft.fleet.node_health:
    expected: >-
      {{ inventory_hostname | sailloft.fleet.node_health_expected(machine='bare_metal',
         recording=lookup('ansible.builtin.file', 'recordings/' ~ inventory_hostname ~ '.json')) }}
"""

RETURN = r"""
timer:
  description: The timer of the rounds.
  returned: when O(state=present)
  type: str
expected_file:
  description: The file of what the node must have.
  returned: when O(state=present)
  type: str
pending:
  description: Always empty.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.health import install
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host, in_chroot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec=install.options(), supports_check_mode=True)
    finish_on_host(module, lambda: install.ensure(System(), module.params, in_chroot(), module.check_mode), live=False)


if __name__ == "__main__":
    main()
