#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Read the image that a node booted."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_image_info
short_description: Read which image a node booted, and its state
version_added: 0.1.0
description:
  - Reads on a running node, in one call, the report of its first stage (C(/run/sailloft/boot.json)), its kernel and
    command line, the time at which systemd had started everything, and the failed units.
  - A host that did not boot a Sailloft image is not an error. It has no RV(image), and RV(reason) gives the cause.
notes:
  - Changes nothing. It needs no privileges if all users can read the first stage's report.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
"""

EXAMPLES = r"""
- name: Read the image that the node runs
  sailloft.fleet.node_image_info:
  register: node

- name: Show it
  ansible.builtin.debug:
    msg: "{{ node.image or node.reason }}"
"""

RETURN = r"""
image:
  description: Digest of the booted image; null if it is not one of Sailloft.
  returned: always
  type: str
reason:
  description: Why there is no RV(image); empty if there is one.
  returned: always
  type: str
report:
  description: The first stage's report, or null. The phases are in seconds since the kernel started.
  returned: always
  type: dict
  sample:
    format: sailloft-boot/1
    node: bm01
    image: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
    name: gpu-node
    kernel: 6.1.0-31-cloud-amd64
    arguments: console=ttyS0 sailloft.node=bm01
    layers: [{name: base, sha256: "486ea46224d1bb4fb680f34f7c9ad96a8f24ec88be73ea8e5a6c65260e9cb8a7", verity: true}]
    server: http://10.9.0.1
    writable_bytes: 1073741824
    phases: [{name: network, start_s: 1.2, end_s: 2.3}]
uptime_s:
  description: Seconds since the kernel started.
  returned: always
  type: float
boot_id:
  description: The kernel's id of this boot. It differs for every boot.
  returned: always
  type: str
kernel:
  description: Version of the running kernel.
  returned: always
  type: str
command_line:
  description: The whole command line of the kernel.
  returned: always
  type: str
arguments:
  description: >-
    The arguments of the image and the node in the command line, in order, without those of the boot loader and first
    stage.
  returned: always
  type: list
  elements: str
boot_arguments:
  description: The other words of the command line, in order.
  returned: always
  type: list
  elements: str
host_key:
  description: Type and key of its Ed25519 SSH host key; empty if it has none.
  returned: always
  type: str
secure_boot:
  description: Whether its UEFI firmware has Secure Boot on; empty if that cannot be read, as with BIOS.
  returned: always
  type: bool
pcrs:
  description: The sha256 values of the TPM's registers that images predict, by number; null without a TPM.
  returned: always
  type: dict
  sample: {"4": 6f1c..., "11": c05d...}
firmware_log:
  description: The sha256 digests that its firmware has measured into PCR 4; null if there is no log of a TPM 2.0.
  returned: always
  type: list
  elements: str
has_identity:
  description: Whether its image has the role node_identity, which gives it a host key.
  returned: always
  type: bool
verity_possible:
  description: Whether the kernel has dm-verity.
  returned: always
  type: bool
systemd:
  description:
    - The state of the system (V(starting), V(running), V(degraded), ...), and the times at which systemd began and had
      started everything, in seconds since the kernel started; null until then.
  returned: always
  type: dict
  sample: {state: running, userspace_s: 26.113, finished_s: 102.404}
failed_units:
  description: The units that failed.
  returned: always
  type: list
  elements: str
"""

import platform

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import node_state


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    finish(module, lambda: node_state.read(platform.node(), module.run_command))


if __name__ == "__main__":
    main()
