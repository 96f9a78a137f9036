#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_service
short_description: Run Slurm on a controller, node or login host as planned
version_added: 0.1.0
description:
  - On a controller it writes the planned files and runs C(slurmctld.service). On a node it runs C(slurmd.service),
    which fetches its files from the O(controllers), and writes C(/usr/lib/sailloft/slurm-health), its
    HealthCheckProgram, and a Prolog and Epilog that are empty without O(containers), for which it also writes the
    command C(sailloft-container). On a login host it writes C(slurm.conf).
  - slurmctld is restarted only for what it takes only when it starts (RV(restarts)); everything else is reconfigured.
    slurmd is restarted if O(restart_key) changes. Jobs go on in both cases.
  - Nodes that the controller did not have before are drained with the reason C(sailloft-gate) before they can get a
    job, until M(sailloft.fleet.slurm_release) takes them into service.
  - A unit that starts the daemon by another name is refused, because Slurm then drops all GPUs silently.
  - In an image the unit of a node is only enabled.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  part:
    description: What the host is.
    type: str
    choices: [controller, login, node]
    required: true
  files:
    description: The texts by name, as RV(sailloft.fleet.slurm_plan#module:files); not for a node.
    type: dict
    default: {}
  controllers:
    description: The controllers from which a node fetches its files, the primary first.
    type: list
    elements: str
    default: []
  primary:
    description: Whether the controller is the primary.
    type: bool
    default: true
  hardware:
    description: What the node should be, one of RV(sailloft.fleet.slurm_plan#module:nodes).
    type: dict
  restart_key:
    description: As RV(sailloft.fleet.slurm_plan#module:restart_key).
    type: str
    default: ""
  containers:
    description: >-
      For containers of jobs on a node the C(directory), as O(sailloft.fleet.slurm_plan#module:container_directory), and
      the site's C(prolog) and C(epilog), which run with those of the containers.
    type: dict
    suboptions:
      directory:
        description: A directory of its own on a local file system; empty for no containers.
        type: str
        default: ""
      prolog:
        description: A program to run after the containers' Prolog.
        type: str
        default: ""
      epilog:
        description: A program to run after the containers' Epilog.
        type: str
        default: ""
  limit_s:
    description: How long slurmctld may take to answer, in seconds.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Run slurmd
  sailloft.fleet.slurm_service:
    part: node
    controllers: [login-1]
    hardware: "{{ planned.nodes[inventory_hostname] }}"
"""

RETURN = r"""
restarts:
  description: Why the running daemon is restarted; empty if it is not.
  returned: success
  type: list
  elements: str
  sample: [nodes]
mismatches:
  description: How the hardware that C(slurmd -C) and NVIDIA's driver see differs from O(hardware), as lines.
  returned: success
  type: list
  elements: str
pending:
  description: Always empty, because nothing waits for a boot.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host, in_chroot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.slurm_service.converge import converge


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "part": {"type": "str", "choices": ["controller", "login", "node"], "required": True},
            "files": {"type": "dict", "default": {}},
            "controllers": {"type": "list", "elements": "str", "default": []},
            "primary": {"type": "bool", "default": True},
            "hardware": {"type": "dict"},
            # Ansible would hide a name with "key" as a secret.
            "restart_key": {"type": "str", "default": "", "no_log": False},
            "containers": {
                "type": "dict",
                "apply_defaults": True,
                "options": {
                    "directory": {"type": "str", "default": ""},
                    "prolog": {"type": "str", "default": ""},
                    "epilog": {"type": "str", "default": ""},
                },
            },
            "limit_s": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    options = {**module.params, "now": not in_chroot()}
    # Only a node may be in an image.
    live = options["part"] != "node"
    finish_on_host(module, lambda: converge(System(), options, module.check_mode), live=live)


if __name__ == "__main__":
    main()
