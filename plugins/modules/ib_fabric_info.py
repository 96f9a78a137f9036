#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: ib_fabric_info
short_description: Read an InfiniBand fabric on the host of a subnet manager
version_added: 0.1.0
description:
  - Reads all that M(sailloft.fleet.ib_fabric_proof) compares with the plan, and the GUIDs for M(sailloft.fleet.ib_plan)
    (RV(found)). Its results have the names of these modules' options.
  - It runs C(ibnetdiscover), C(smpquery), C(saquery) and C(sminfo) of infiniband-diags as root, and reads the dumps of
    opensm when two readings of them are equal. The dumps and the log are those of the host's own opensm, so the host of
    the master gives the routes in use.
  - Any host with an active port gives RV(found) and RV(pkeys), whichever subnet manager runs.
  - It changes nothing, and shows its progress.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  directory:
    description:
      - The directory of the host's C(opensm.conf). That file has the places of dumps and log; where it has none, they
        are opensm's own.
    type: path
    default: /etc/opensm
  device:
    description: The RDMA device in the fabric, such as C(mlx5_0). The default is the first one with a link.
    type: str
    default: ""
  subnet:
    description: Whether to read the fabric, or only RV(files), for the host of a standby.
    type: bool
    default: true
  limit_s:
    description: How long the dumps may change, in seconds, because opensm sweeps.
    type: int
    default: 600
  progress:
    description: A file to which progress is appended, in lines; the action plugin reads and shows it.
    type: path
"""

EXAMPLES = r"""
- name: Read the compute fabric
  sailloft.fleet.ib_fabric_info:
    device: mlx5_0
  register: read

- name: Prove it
  sailloft.fleet.ib_fabric_proof:
    blueprint: inventories/blue_vela/blueprint.yml
    fabric: compute
    managers: [node-0001 mlx5_0]
    found: ["{{ read.found }}"]
    links: "{{ read.links }}"
    forwarding: "{{ read.forwarding }}"
    order: "{{ read.order }}"
    log: "{{ read.log }}"
    pkeys: "{{ read.pkeys }}"
    managers_found: "{{ read.managers_found }}"
    manager_files: {node-0001: "{{ read.files }}"}
    path: proofs
"""

RETURN = r"""
found:
  description: The lines of C(ibnetdiscover -p).
  returned: if O(subnet) is true
  type: str
links:
  description: The text of C(opensm-subnet.lst), "" without one.
  returned: if O(subnet) is true
  type: str
forwarding:
  description: The text of C(opensm-lfts.dump) without its comments, "" without one.
  returned: if O(subnet) is true
  type: str
order:
  description: The text of C(opensm-ftree-ca-order.dump), "" without one.
  returned: if O(subnet) is true
  type: str
log:
  description: The lines of opensm's log about the routing engine.
  returned: if O(subnet) is true
  type: str
pkeys:
  description: What C(smpquery pkeys) printed for each HCA, without lines of zeros, by node description.
  returned: if O(subnet) is true
  type: dict
managers_found:
  description: What C(saquery SMInfoRecord) and, for each LID there, C(sminfo) printed.
  returned: if O(subnet) is true
  type: str
files:
  description: The texts of the files in O(directory) by name.
  returned: success
  type: dict
unread:
  description: What could not be read, as lines with the cause.
  returned: success
  type: list
  elements: str
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.common.progress import to_file
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.diags import Diags
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.read import manager_files, read_fabric


def _read(params: dict[str, Any]) -> dict[str, Any]:
    folder = Path(params["directory"])
    if not params["subnet"]:
        return {"files": manager_files(folder), "unread": []}
    return read_fabric(Diags(params["device"]), folder, to_file(params["progress"]), params["limit_s"])


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "default": "/etc/opensm"},
            "device": {"type": "str", "default": ""},
            "subnet": {"type": "bool", "default": True},
            "limit_s": {"type": "int", "default": 600},
            "progress": {"type": "path"},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: _read(module.params))


if __name__ == "__main__":
    main()
