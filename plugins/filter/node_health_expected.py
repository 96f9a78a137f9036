# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Make what a node must have, for its health check."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_health_expected
short_description: Make what a node must have, from its recording, its plan and the inventory
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Made on the controller, so that a sick node never defines what is healthy. The same input gives the same bytes, and
    a changed device is one changed line.
options:
  _input:
    description: The inventory name of the node.
    type: str
    required: true
  machine:
    description: The kind of machine.
    type: str
    choices: [bare_metal, hypervisor, guest, image]
    required: true
  recording:
    description: The file that C(record.yml) wrote of the node; for a guest that of its hypervisor. An image needs none.
    type: str
    default: ""
  plan:
    description: A guest's plan, as RV(sailloft.fleet.gpu_domain_info#module:domains[].plan).
    type: dict
  guest_plans:
    description: Of a hypervisor the plans of its guests, which have the ports of the NICs that they are given.
    type: list
    elements: dict
  hypervisor:
    description: The name of a guest's hypervisor.
    type: str
    default: ""
  acceptance:
    description: The JSON file that C(accept.yml) wrote of the node on its first day, if there is one.
    type: str
    default: ""
  ports:
    description: The ports that must be up, as the variable C(node_health_ports) of P(sailloft.fleet.node_health#role).
    type: dict
  checks:
    description: Limits and checks that are off, as C(node_health_checks).
    type: dict
  devices:
    description: What people know of devices, as C(node_health_devices).
    type: dict
  versions:
    description: The versions by name, as C(node_health_versions).
    type: dict
  gpu_settings:
    description: The settings of GPUs, as C(node_health_gpu_settings).
    type: dict
  mounts:
    description: The paths that must be mounted.
    type: list
    elements: str
  units:
    description: The systemd units that must be active.
    type: list
    elements: str
  storage:
    description: >-
      The options C(local), C(nfs) and C(s3) of M(sailloft.fleet.storage_client), whose mounts and units the node must
      have, too.
    type: dict
"""

EXAMPLES = r"""
expected: >-
  {{ 'gpu01' | sailloft.fleet.node_health_expected(machine='bare_metal', recording='recordings/gpu01.json') }}
"""

RETURN = r"""
_value:
  description: The content of C(expected.json), for O(sailloft.fleet.node_health#module:expected).
  type: str
"""

import json
import os
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible.utils.display import Display

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError

display = Display()
INVENTORY = ("ports", "checks", "devices", "versions", "gpu_settings", "mounts", "units")


def node_health_expected(
    name: str,
    machine: str,
    recording: str = "",
    plan: Any = None,
    hypervisor: str = "",
    acceptance: str = "",
    guest_plans: Any = (),
    storage: Any = None,
    **inventory: Any,
) -> str:
    """Return the content of expected.json. Raises AnsibleFilterError."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect import devices, expected, stored
    from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import MACHINES
    from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES
    from ansible_collections.sailloft.fleet.plugins.module_utils.storage.request import read_request
    from ansible_collections.sailloft.fleet.plugins.module_utils.storage.units import health
    from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import read_recording

    unknown = sorted(set(inventory) - set(INVENTORY))
    if unknown or machine not in MACHINES:
        wrong = f"option {unknown[0]!r}" if unknown else f"machine {machine!r}"
        raise AnsibleFilterError(f"{name}: node_health_expected: unknown {wrong}; see its documentation")
    try:
        for key, names in zip(("mounts", "units"), health(read_request(storage or {}))):
            devices_in_inventory = inventory.get(key) or []
            if isinstance(devices_in_inventory, list):  # another type is refused below
                inventory[key] = [*devices_in_inventory, *names]
        host = read_recording(recording) if recording and os.path.exists(recording) else None
        result = expected.make(
            name, machine, host, inventory, RULES, plan or None, hypervisor, _accepted(name, acceptance), guest_plans
        )
    except SailloftError as error:
        raise AnsibleFilterError(str(error)) from error
    unknown_links = devices.without_link(result.devices)
    if unknown_links:
        display.warning(
            f"{name}: width and speed of the links of {', '.join(unknown_links)} are not judged, because the recording "
            "does not say what they can do; give link_width and link_speed_gt_s in node_health_devices"
        )
    return stored.text(result)


def _accepted(name: str, path: str) -> dict[str, float]:
    """Return the rates of an acceptance; none if there was none. Raises AnsibleFilterError if it cannot be read."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.acceptance import judge
    from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof

    if not path or not os.path.exists(path):
        return {}
    try:
        with open(path, encoding="utf-8") as stream:
            return judge.accepted_rates(Proof.from_dict(json.load(stream)).claims)
    except (OSError, ValueError, SailloftError) as error:
        raise AnsibleFilterError(
            f"{name}: {path}: {error}; run playbooks/accept.yml again or remove the file"
        ) from error


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"node_health_expected": node_health_expected}
