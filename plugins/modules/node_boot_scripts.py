#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The scripts that nodes boot with."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_boot_scripts
short_description: Write the iPXE scripts by which nodes boot their images
version_added: 0.1.0
description:
  - Writes the scripts of O(nodes), C(nodes/MAC.ipxe) in a boot server's store, and removes those of the nodes in
    O(removed). Scripts of other nodes are not touched. One call writes all scripts; each is replaced atomically.
  - A script tries the servers in turn; the first one differs by node. If no server boots the node, it pauses and tries
    again, with a longer pause in each round.
  - It refuses, before any change, two nodes with the same MAC address or name, a MAC address with the script of another
    node, a channel or an image that the store does not have, values that iPXE or the first stage cannot parse, and a
    node that another run holds (M(sailloft.fleet.node_boot_hold)).
extends_documentation_fragment: [sailloft.fleet.attributes, sailloft.fleet.booted_nodes]
options:
  store:
    description: The boot server's store.
    type: path
    required: true
  statement:
    description:
      - The signed statement of what nodes may run, RV(sailloft.fleet.node_boot_statement#module:text); empty for none.
      - It is written before the scripts, unless the store has it or a later one.
    type: str
    default: ""
  files:
    description:
      - Nodes' own files that the statement names, RV(sailloft.fleet.node_boot_statement#module:files). They are written
        before it.
    type: list
    elements: str
    default: []
  hold:
    description: The name of this run's hold of M(sailloft.fleet.node_boot_hold); empty for none.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Write the boot scripts of the nodes
  sailloft.fleet.node_boot_scripts:
    store: /srv/sailloft
    nodes:
      - name: node01
        mac: "52:54:00:aa:bb:01"
        channel: stable
        servers: [http://10.9.0.1, http://10.9.0.2]
        report: http://10.9.0.1/report
      - name: node02
        mac: "52:54:00:aa:bb:02"
        channel: canary
        kernel_arguments: [systemd.log_level=debug]
        servers: [http://10.9.0.1, http://10.9.0.2]

- name: Remove the script of a node that left the site
  sailloft.fleet.node_boot_scripts:
    store: /srv/sailloft
    nodes: []
    removed: [node03]
"""

RETURN = r"""
written:
  description: The MAC addresses of the scripts that are new or changed, as in the names of the files.
  returned: success
  type: list
  elements: str
removed:
  description: The MAC addresses whose scripts were removed.
  returned: success
  type: list
  elements: str
stated:
  description: Whether the statement in the store is another one now, or has new files of nodes.
  returned: success
  type: bool
others:
  description: The names of the nodes with a script in the store that are not in O(nodes).
  returned: success
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import node_scripts
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.channels import SUFFIX
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import NODES, Store


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "store": {"type": "path", "required": True},
            "hold": {"type": "str", "default": ""},
            "statement": {"type": "str", "default": ""},
            "files": {"type": "list", "elements": "str", "default": []},
            **node_scripts.OPTIONS,
        },
        supports_check_mode=True,
    )
    options = module.params

    def work() -> dict[str, Any]:
        change = node_scripts.ensure(
            Store(options["store"]),
            options["nodes"],
            module.check_mode,
            options["removed"],
            options["channels_to_come"],
            options["hold"],
            options["statement"].encode(),
            options["files"],
        )
        diff = [
            {
                "before_header": f"{NODES}/{mac}{SUFFIX}",
                "after_header": f"{NODES}/{mac}{SUFFIX}",
                "before": change.before.get(mac, ""),
                "after": change.written.get(mac, ""),
            }
            for mac in (*change.written, *change.removed)
        ]
        for mac, (former_program, program) in change.programs.items():
            name = f"{NODES}/{mac}{node_scripts.PROGRAM_SUFFIX}"
            diff.append({"before_header": name, "after_header": name, "before": former_program, "after": program})
        return {
            "changed": bool(diff) or change.stated,
            "written": list(change.written),
            "removed": list(change.removed),
            "stated": change.stated,
            "others": list(change.others),
            "diff": diff,
        }

    finish(module, work)


if __name__ == "__main__":
    main()
