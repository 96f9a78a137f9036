#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The variables and objects of IBM Storage Scale."""

from __future__ import annotations

DOCUMENTATION = r"""
module: storage_scale_plan
short_description: Write variables for IBM's collection, and objects of container native Storage Scale
version_added: 0.1.0
extends_documentation_fragment: [sailloft.fleet.attributes, sailloft.fleet.storage_scale]
description:
  - Writes C(scale.json), an inventory with variables of the collection C(ibm.spectrum_scale). It gives each node the
    RDMA ports of its rails (C(verbsPorts)), in node classes of equal nodes, and lists remote mounts and AFM filesets.
    Passwords and keys are not in it.
  - With O(container_native) it also writes C(scale-objects.json), the objects C(Cluster), C(RemoteCluster) and
    C(Filesystem) of C(scale.spectrum.ibm.com).
  - It runs on the controller and contacts no host. Neither file was ever used with a real Storage Scale cluster.
options:
  path:
    description: The directory of the files, created if it is missing.
    type: path
    required: true
  container_native:
    description: What the objects for containers need.
    type: dict
    suboptions:
      license:
        description: The edition whose license you accept.
        type: str
        choices: [data-access, data-management, erasure-code]
        required: true
      node_selector:
        description: The labels of the nodes that run Scale.
        type: dict
        required: true
      gui:
        description: The host of the REST API of each remote cluster, by cluster. The default is the cluster's name.
        type: dict
        default: {}
      gui_secret:
        description: The name of the secret with the user of that API.
        type: str
        default: cnsa-remote-mount-storage-cluster-1
      csi_secret:
        description: The name of the secret with its user for CSI.
        type: str
        default: csi-remote-mount-storage-cluster-1
"""

EXAMPLES = r"""
- name: Write the variables
  sailloft.fleet.storage_scale_plan:
    path: plans
    cluster: vela.example
    file_systems:
      - {name: fs1, mount: /gpfs/fs1, remote_name: gpfs01, remote_cluster: storage.example}
    gpudirect: true
    readings: "{{ readings }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
files:
  description: The paths of the files.
  returned: success
  type: list
  elements: str
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.proof import files
from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale import objects, plan, readings, request


def texts(params: dict[str, Any]) -> dict[str, str]:
    """Return the files by name. Raises ScaleError."""
    wanted = request.read(params)
    planned = {plan.INVENTORY: plan.inventory(wanted, readings.read(params["readings"]))}
    if params["container_native"]:
        native = objects.ContainerNative(**params["container_native"])
        planned[objects.OBJECTS] = objects.objects(wanted, native)
    return planned


def main() -> None:
    """Run as an Ansible module."""
    native = {
        "license": {
            "type": "str",
            "choices": ["data-access", "data-management", "erasure-code"],
            "required": True,
        },
        "node_selector": {"type": "dict", "required": True},
        "gui": {"type": "dict", "default": {}},
        # These are names of secrets.
        "gui_secret": {"type": "str", "default": "cnsa-remote-mount-storage-cluster-1", "no_log": False},
        "csi_secret": {"type": "str", "default": "csi-remote-mount-storage-cluster-1", "no_log": False},
    }
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "container_native": {"type": "dict", "options": native},
            **request.options(),
        },
        supports_check_mode=True,
    )

    def work() -> dict[str, Any]:
        differences = []
        planned = {os.path.join(module.params["path"], name): text for name, text in texts(module.params).items()}
        for path, text in planned.items():
            before = files.read(path)
            if before != text:
                differences.append({"before_header": path, "after_header": path, "before": before or "", "after": text})
                if not module.check_mode:
                    files.write(path, text)
        return {"changed": bool(differences), "diff": differences, "files": list(planned)}

    finish(module, work)


if __name__ == "__main__":
    main()
