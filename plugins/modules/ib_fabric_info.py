#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: ib_fabric_info
short_description: Read an InfiniBand fabric on the host of a subnet manager
version_added: 0.1.0
description:
  - Reads all that M(sailloft.fleet.ib_fabric_proof) compares with the plan, and the GUIDs for
    M(sailloft.fleet.ib_plan), into the file O(path) on the controller, which both take as
    O(sailloft.fleet.ib_fabric_proof#module:readings).
  - It runs C(ibnetdiscover), C(smpquery), C(saquery) and C(sminfo) of infiniband-diags as root, and reads the dumps of
    opensm when two readings of them are equal. The dumps and the log are those of the host's own opensm, so the host of
    the master gives the routes in use.
  - Any host with an active port gives cables and P_Keys, whichever subnet manager runs.
  - With O(part=ports) it reads what M(sailloft.fleet.ib_fabric_health) judges, with C(ibqueryerrors) and C(iblinkinfo).
    No counter is cleared. A subnet manager must run in the subnet.
  - It changes nothing on the host, and shows its progress. It writes O(path) in check mode, too.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  path:
    description:
      - The file to write, such as C(read/node-0001.json.gz). A missing directory is created.
      - Only its owner may read it, because C(opensm.conf) can have keys.
    type: path
    required: true
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
  part:
    description:
      - V(fabric) is all that the proof compares.
      - V(ports) is links, error counters and disabled ports. The counters are those of the time of the reading.
      - V(manager) is only the files in O(directory), for the host of a standby.
    type: str
    choices: [fabric, manager, ports]
    default: fabric
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
    path: read/node-0001.json.gz

- name: Prove it
  sailloft.fleet.ib_fabric_proof:
    blueprint: inventories/blue_vela/blueprint.yml
    fabric: compute
    managers: [node-0001 mlx5_0]
    readings: {node-0001: read/node-0001.json.gz}
    path: proofs
"""

RETURN = r"""
path:
  description: The file that was written.
  returned: success
  type: str
sha256:
  description: The digest of the file.
  returned: success
  type: str
counts:
  description: How many C(cables) were found, how many C(routes) the dumps have, the P_Keys of how many HCAs were read.
  returned: success
  type: dict
  sample: {cables: 16384, routes: 1835008, pkeys: 4096}
unread:
  description: What could not be read, as lines with the cause.
  returned: success
  type: list
  elements: str
"""

import base64
import hashlib
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.common.progress import to_file
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import ManagerReadings, pack
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.diags import Diags
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.ports import read_ports
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.read import manager_files, read_fabric


def _read(params: dict[str, Any]) -> dict[str, Any]:
    folder = Path(params["directory"])
    readings = ManagerReadings(False, manager_files(folder))
    unread: list[str] = []
    if params["part"] == "ports":
        readings = read_ports(Diags(params["device"]), folder)
    if params["part"] == "fabric":
        readings, unread = read_fabric(Diags(params["device"]), folder, to_file(params["progress"]), params["limit_s"])
    content = pack(readings)
    return {
        "path": params["path"],
        # The action plugin writes it, and takes it out of the result.
        "content": base64.b64encode(content).decode(),
        "sha256": hashlib.sha256(content).hexdigest(),
        # ibnetdiscover has each cable from both of its ends.
        "counts": {
            "cables": readings.found.count(" ( '") // 2,
            "routes": readings.forwarding.count("\n0x"),
            "pkeys": len(readings.pkeys),
        },
        "unread": unread,
    }


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "directory": {"type": "path", "default": "/etc/opensm"},
            "device": {"type": "str", "default": ""},
            "part": {"type": "str", "choices": ["fabric", "manager", "ports"], "default": "fabric"},
            "limit_s": {"type": "int", "default": 600},
            "progress": {"type": "path"},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: _read(module.params))


if __name__ == "__main__":
    main()
