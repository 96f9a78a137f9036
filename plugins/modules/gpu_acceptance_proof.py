#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Compare measurements with expected values, and write a proof."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_acceptance_proof
short_description: Compare measured bandwidths with the rates of the links, and write a proof
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Compares the results of M(sailloft.fleet.gpu_acceptance_run) with the rates of PCIe links and ports, the worst
    first, with known causes and their remedies; and with the numbers of an earlier proof, such as that of the same
    server before it became a hypervisor.
  - A claim is not applicable, and never holds, if it was not measured or if there is no value to compare with.
options:
  name:
    description: The name of the node, and of the files.
    type: str
    required: true
  machine:
    description: The kind of machine, which determines the causes to look for.
    type: str
    choices: [guest, bare_metal]
    required: true
  topology:
    description: RV(sailloft.fleet.host_topology_info#module:topology) of the node.
    type: dict
    required: true
  host_topology:
    description: The same for a guest's hypervisor, to find causes there.
    type: dict
  nvbandwidth:
    description: The result of M(sailloft.fleet.gpu_acceptance_run) for C(nvbandwidth).
    type: dict
    required: true
  nccl:
    description: The same for C(all_reduce_perf) within the node.
    type: dict
    required: true
  nccl_nodes:
    description: The same for C(all_reduce_perf) over several nodes.
    type: dict
    required: true
  rails:
    description:
      - For each rail, C(rail) as the filter P(sailloft.fleet.gpu_rails#filter) returns it, with C(from) and C(to)
        added, C(run) and C(server_topology).
    type: list
    elements: dict
    default: []
  counters:
    description:
      - RV(sailloft.fleet.roce_counters_info#module:differences) of the sending and of the receiving node while the
        rails were measured. RoCE must not have lost packets then.
    type: list
    elements: dict
    default: []
  storage:
    description: >-
      C(gdscheck -p) as M(sailloft.fleet.gpu_acceptance_run) returned it, and as C(mode) and C(settings) the node's
      O(sailloft.fleet.gpu_node#module:storage) and O(sailloft.fleet.gpu_node#module:storage_settings).
    type: dict
  baseline:
    description: The JSON file of an earlier proof of this kind.
    type: path
extends_documentation_fragment:
  - sailloft.fleet.proof
"""

EXAMPLES = r"""
- name: Judge the measurements
  sailloft.fleet.gpu_acceptance_proof:
    path: proofs
    name: node1
    machine: bare_metal
    topology: "{{ seen.topology }}"
    nvbandwidth: "{{ copies }}"
    nccl: "{{ inside }}"
    nccl_nodes: {status: not measured, reason: there is one node}
"""

RETURN = r"""
holds:
  description: Whether there are claims that hold and none that fails.
  returned: always
  type: bool
counts:
  description: How many claims hold, fail, and do not apply.
  returned: always
  type: dict
table:
  description: The short table.
  returned: always
  type: list
  elements: str
files:
  description: The files.
  returned: always
  type: list
  elements: str
"""

import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.acceptance import judge
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage import cufile, gdscheck
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, ProofError
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved


def proof(params: dict[str, Any]) -> Proof:
    """Return the proof for the module's arguments. Raises SailloftError."""
    node = read_saved(params["topology"])
    guest = params["machine"] == "guest"
    host = read_saved(params["host_topology"]) if params["host_topology"] else None
    causes = judge.known_causes(host if guest else node, guest)
    results = judge.of_nvbandwidth(params["nvbandwidth"], node)
    results.append(judge.of_nccl(params["nccl"], None, causes, judge.WITHIN_NODE))
    ports = [part["run"].get("port_gbit_s") for part in params["rails"]]
    ports_gbyte_s = sum(ports) / 8 if ports and all(ports) else 0
    results.append(judge.of_nccl(params["nccl_nodes"], ports_gbyte_s, causes, "all_reduce_perf over several nodes"))
    for part in params["rails"]:
        server = read_saved(part["server_topology"]) if part.get("server_topology") else None
        results.append(judge.of_rail(part["run"], part["rail"], (node, server), causes))
    return Proof(
        f"acceptance-{params['name']}",
        f"Measured on {params['name']}",
        params["name"],
        judge.claims(results, baseline(params["baseline"]) if params["baseline"] else None)
        + judge.of_counters(params["rails"], params["counters"])
        + (storage(params["storage"], node) if params["storage"] else []),
    )


def storage(run: dict[str, Any], node: Host) -> list[Claim]:
    """Return the claims about GPUDirect Storage. Raises RequestError for invalid settings."""
    settings = cufile.settings(Settings(RequestError, "storage_settings", run.get("settings") or {}), run["mode"])
    return gdscheck.claims(run, run["mode"], settings, sum(item.kind == "gpu" for item in node.functions))


def baseline(path: str) -> dict[str, float]:
    """Return the numbers of an earlier proof. Raises ProofError."""
    try:
        with open(path, encoding="utf-8") as file:
            return judge.measured(Proof.from_dict(json.load(file)).claims)
    except (OSError, ValueError) as error:
        raise ProofError(
            f"baseline {path}: {error}", "give the JSON file that an earlier run of accept.yml wrote"
        ) from error


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "machine": {"type": "str", "choices": ["guest", "bare_metal"], "required": True},
            "topology": {"type": "dict", "required": True},
            "host_topology": {"type": "dict"},
            "nvbandwidth": {"type": "dict", "required": True},
            "nccl": {"type": "dict", "required": True},
            "nccl_nodes": {"type": "dict", "required": True},
            "rails": {"type": "list", "elements": "dict", "default": []},
            "counters": {"type": "list", "elements": "dict", "default": []},
            "storage": {"type": "dict"},
            "baseline": {"type": "path"},
        },
        supports_check_mode=True,
    )

    def work() -> dict[str, Any]:
        result = proof(module.params)
        return written(result, page(result), module.params["path"], module.check_mode)

    finish(module, work, module.params["name"])


if __name__ == "__main__":
    main()
