#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The state of IBM Storage Scale on a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: storage_scale_info
short_description: Read RDMA ports and the state of IBM Storage Scale on a node
version_added: 0.1.0
description:
  - Returns the RDMA ports of the node, the mounted Scale file systems, and what Scale's own commands print with C(-Y).
    It changes nothing.
  - On a node without Storage Scale the outputs are null; its ports are enough for M(sailloft.fleet.storage_scale_plan).
  - It was never run on a real Storage Scale cluster.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  file_systems:
    description: The file systems whose mounts are listed.
    type: list
    elements: str
    default: []
  cached:
    description: The file systems whose AFM filesets are listed.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Read a node
  sailloft.fleet.storage_scale_info:
    file_systems: [fs1]
  register: scale_reading
"""

RETURN = r"""
ports:
  description: The RDMA ports, by PCI address and port.
  returned: success
  type: list
  elements: dict
  contains:
    device:
      description: The RDMA device.
      type: str
    port:
      description: Its port.
      type: int
    link_layer:
      description: V(InfiniBand) or V(Ethernet).
      type: str
    numa_node:
      description: Its NUMA node; null if it is not known.
      type: int
outputs:
  description: The output of each command; null if it failed or is not installed.
  returned: success
  type: dict
mounts:
  description: The mount point of each mounted Scale file system, by its name.
  returned: success
  type: dict
"""

import os
import re
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale import readings

RDMA = "/sys/class/infiniband"
# Seconds. Scale's commands wait for a daemon or node that hangs.
LIMIT_S = 60


def ports(root: str = RDMA) -> list[dict[str, Any]]:
    """Return the ports of RDMA devices, in the order of their PCI addresses."""
    names = sorted(os.listdir(root)) if os.path.isdir(root) else []
    places = {name: os.path.basename(os.path.realpath(f"{root}/{name}/device")) for name in names}
    rows = []
    for name in sorted(names, key=lambda name: (places[name], name)):
        node = _text(f"{root}/{name}/device/numa_node")
        for port in sorted(map(int, filter(str.isdecimal, os.listdir(f"{root}/{name}/ports")))):
            rows.append(
                {
                    "device": name,
                    "port": port,
                    "link_layer": _text(f"{root}/{name}/ports/{port}/link_layer"),
                    "numa_node": int(node) if node.isdecimal() else None,
                }
            )
    return rows


def mounts(text: str) -> dict[str, str]:
    """Return the mount points of Scale's file systems by their names, from the text of /proc/mounts."""
    rows = (line.split() for line in text.splitlines())
    return {
        row[0].rpartition("/")[2]: re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), row[1])
        for row in rows
        if len(row) > 2 and row[2] == "gpfs"
    }


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def output(module: AnsibleModule, command: str) -> str | None:
    """Return what a command of Storage Scale prints; None if it fails, does not end in time, or is not installed."""
    name, *arguments = command.split()
    program = f"{readings.COMMANDS}/{name}"
    if not os.access(program, os.X_OK):
        return None
    argv = ["timeout", f"--kill-after={LIMIT_S}", str(LIMIT_S), program, *arguments]
    status, text, _error = module.run_command(argv)
    return text if status == 0 else None


def main() -> None:
    """Run as an Ansible module."""
    names = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(argument_spec={"file_systems": names, "cached": names}, supports_check_mode=True)

    def work() -> dict[str, Any]:
        commands = [
            *readings.ANYWHERE,
            *map(readings.mounts_of, module.params["file_systems"]),
            *map(readings.filesets_of, module.params["cached"]),
        ]
        with open("/proc/mounts", encoding="utf-8", errors="replace") as file:
            mounted = mounts(file.read())
        outputs = {command: output(module, command) for command in commands}
        return {"ports": ports(), "outputs": outputs, "mounts": mounted}

    finish(module, work)


if __name__ == "__main__":
    main()
