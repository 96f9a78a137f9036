#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: node_wipe
short_description: Erase disks of a node that nothing uses, and read it back
version_added: 0.1.0
description:
  - Erases the disks that O(disks) names by serial or PCI address, and no other. All namespaces of an NVMe controller
    are erased together.
  - Nothing is erased if one of them is mounted, holds swap space, is part of an md, dm or LVM device, is open in a
    program, is read-only, or has a label of O(keep_labels).
  - Before, random marks are written at the beginning, middle and end of each disk. It counts as erased if its sanitize
    log says so, where it was sanitized, and if none of the marks can be read any more.
  - Each run erases again.
  - Tried on loop devices, and with QEMU's NVMe controller. No disk that offers a sanitize was tried.
extends_documentation_fragment: [sailloft.fleet.attributes]
requirements:
  - util-linux >= 2.37
  - nvme-cli (NVMe)
options:
  policy:
    description: >-
      When disks are erased. With V(never) the module fails; with V(on_release) it erases, as it is called when a node
      is released.
    type: str
    choices: [never, on_release]
    default: never
  disks:
    description: The disks, each by one of the two.
    type: list
    elements: dict
    required: true
    suboptions:
      serial:
        description: Its serial number, as C(lsblk -o SERIAL) shows it.
        type: str
      pci:
        description: The PCI address of its NVMe controller, such as V(0000:5e:00.0), or of a controller with one disk.
        type: str
  keep_labels:
    description: Labels of file systems and partitions whose disks are never erased.
    type: list
    elements: str
    default: []
  method:
    description:
      - How to erase. V(auto) takes the first of V(sanitize), V(format) and V(discard) that a disk offers.
      - V(sanitize) is NVMe's block erase, or else its crypto erase. V(format) is NVMe's with user data erase.
      - V(discard) tells the disk that its content is not needed, V(zero) writes zeros.
    type: str
    choices: [auto, sanitize, format, discard, zero]
    default: auto
  timeout_s:
    description: Time limit for each disk in seconds. A sanitize that lasts longer goes on; the next run waits for it.
    type: int
    default: 14400
"""

EXAMPLES = r"""
- name: Erase the scratch disks of a node that leaves
  sailloft.fleet.node_wipe:
    policy: on_release
    disks:
      - {pci: "0000:5e:00.0"}
      - {serial: S6CKNE0T900123}
    keep_labels: [cache]
  become: true
"""

RETURN = r"""
disks:
  description: The disks that were erased; in check mode, that would be.
  returned: success
  type: list
  elements: dict
  sample: [{path: /dev/nvme0n1, serial: S6CKNE0T900123, size_bytes: 3840755982336, method: sanitize}]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.disks.erase import Eraser
from ansible_collections.sailloft.fleet.plugins.module_utils.disks.found import DiskError, NodeDisk, choose, find
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import in_chroot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

NAMED = {"serial": {"type": "str"}, "pci": {"type": "str"}}


def main() -> None:
    """Run as an Ansible module."""
    options = {
        "policy": {"type": "str", "choices": ["never", "on_release"], "default": "never"},
        "disks": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": NAMED,
            "mutually_exclusive": [("serial", "pci")],
            "required_one_of": [("serial", "pci")],
        },
        "keep_labels": {"type": "list", "elements": "str", "default": []},
        "method": {
            "type": "str",
            "choices": ["auto", "sanitize", "format", "discard", "zero"],
            "default": "auto",
        },
        "timeout_s": {"type": "int", "default": 14400},
    }
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    finish(module, lambda: run(module.params, module.check_mode))


def run(params: dict[str, Any], is_check: bool) -> dict[str, Any]:
    """Return the module's result. Raises DiskError and HostError."""
    if params["policy"] == "never":
        raise DiskError("the policy is never: nothing was erased", "set node_boot_wipe.policy to on_release")
    if in_chroot():
        raise DiskError("this is an image, whose disks are those of the build host", "run it on the node")
    system = System()
    eraser = Eraser(system, params["timeout_s"])
    chosen = choose(find(system, params["keep_labels"]), params["disks"])
    methods = {disk.path: eraser.method(disk, params["method"]) for disk in chosen}
    if not is_check:
        for disks in of_controllers(chosen):
            eraser.erase(still_unused(system, params["keep_labels"], disks), methods[disks[0].path])
    rows = [
        {"path": disk.path, "serial": disk.serial, "size_bytes": disk.size_bytes, "method": methods[disk.path]}
        for disk in chosen
    ]
    before = "".join(f"{row['path']} {row['serial']}\n" for row in rows)
    after = "".join(f"{row['path']} {row['serial']} erased ({row['method']})\n" for row in rows)
    return {"changed": bool(rows), "disks": rows, "diff": {"before": before, "after": after}}


def still_unused(system: System, keep_labels: list[str], disks: list[NodeDisk]) -> list[NodeDisk]:
    """Return disks that are the same and that nothing uses: the erasure of those before may have lasted hours.

    Raises DiskError and HostError.
    """
    now = {disk.path: disk for disk in find(system, keep_labels)}
    for disk in disks:
        if now.get(disk.path) != disk:
            uses = "; ".join(now[disk.path].uses) if disk.path in now else ""
            raise DiskError(
                f"{disk.path} has changed since this run began: {uses or 'it is not the same disk any more'}",
                "it and those after it were not erased; end its uses, and run again",
            )
    return disks


def of_controllers(disks: list[NodeDisk]) -> list[list[NodeDisk]]:
    """Return the disks that one sanitize erases together, each in its list."""
    groups: dict[Any, list[NodeDisk]] = {}
    for disk in disks:
        groups.setdefault((disk.addresses, disk.serial) if disk.is_nvme else disk.path, []).append(disk)
    return list(groups.values())


if __name__ == "__main__":
    main()
