#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Restore the settings of a GPU host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_host_restore
short_description: Restore the former settings of a GPU host
version_added: 0.1.0
description:
  - Restores the values from before M(sailloft.fleet.gpu_host_boot), M(sailloft.fleet.kernel_arguments) and
    M(sailloft.fleet.nic_firmware) changed them, the last change first, and removes the service that applies settings at
    boot.
  - These modules record a value before they change it for the first time (C(/var/lib/sailloft/gpu_host_before.json)).
    Without that record only the service is removed.
  - Fails while guests run. A file that others have changed since then is not changed, and the call fails at the end.
  - Packages stay installed. VFs that existed before are created again, with the settings that their driver reported.
extends_documentation_fragment: [sailloft.fleet.attributes]
"""

EXAMPLES = r"""
- name: Restore the former settings of the host
  sailloft.fleet.gpu_host_restore:
"""

RETURN = r"""
reboot_required:
  description: Whether a restored value takes effect at the next boot only.
  returned: success
  type: bool
pending:
  description: Values that take effect at the next boot only, one line each.
  returned: success
  type: list
  elements: str
failures:
  description: Values that could not be restored, with the cause, one line each.
  returned: when no guest runs
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.undo import restore


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    finish_on_host(module, lambda: restore.ensure(System(), module.check_mode))


if __name__ == "__main__":
    main()
