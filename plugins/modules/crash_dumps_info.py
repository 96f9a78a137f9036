#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Crash dumps on a boot server."""

from __future__ import annotations

DOCUMENTATION = r"""
module: crash_dumps_info
short_description: Show which nodes without a disk have crashed, by the dumps on a boot server
version_added: 0.1.0
description:
  - Reads on a boot server which crash dumps it keeps, in one call. Nodes send them if C(boot_server_crash_dumps_gib) of
    the role P(sailloft.fleet.boot_server#role) is set and P(sailloft.fleet.node_crash_dump#role) is in their image.
  - Only the kernel's last lines are readable there. The rest is encrypted.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  path:
    description: The directory of the dumps.
    type: path
    default: /var/lib/sailloft-crash
seealso:
  - module: sailloft.fleet.node_crash_dump
"""

EXAMPLES = r"""
- name: Read which nodes have crashed
  sailloft.fleet.crash_dumps_info:
  register: crashes
"""

RETURN = r"""
dumps:
  description: The dumps, the newest first.
  returned: success
  type: list
  elements: dict
  contains:
    node:
      description: The node.
      type: str
    crashed:
      description: The time by the node's clock, in UTC.
      type: str
      sample: 20261129T125500Z
    received_s:
      description: The time of the last part by the server's clock, in seconds since 1970.
      type: int
    path:
      description: Its directory.
      type: str
    lines:
      description: The kernel's last lines.
      type: list
      elements: str
      sample: ["Kernel panic - not syncing: sysrq triggered crash"]
    size_bytes:
      description: The size of all its files.
      type: int
    missing:
      description: Those of panic, dmesg and vmcore that it lacks, or that are not complete.
      type: list
      elements: str
report:
  description: A line for each dump, at most 20.
  returned: success
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.crash import dumps


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec={"path": {"type": "path", "default": dumps.FOLDER}}, supports_check_mode=True)

    def work() -> dict[str, Any]:
        present = dumps.read(module.params["path"])
        return {"dumps": present, "report": dumps.report(present)}

    finish(module, work)


if __name__ == "__main__":
    main()
