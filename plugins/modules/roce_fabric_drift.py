#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Report what differs from a fabric's RoCE policy."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_fabric_drift
short_description: Report what differs from the RoCE policy on switches and NICs now
version_added: 0.1.0
extends_documentation_fragment: [sailloft.fleet.attributes, sailloft.fleet.fabric]
description:
  - Makes the claims of M(sailloft.fleet.roce_fabric_proof), compares NICs with what M(sailloft.fleet.roce_host) would
    set, and writes the result as C(fabric_drift.json), C(fabric_drift.html), C(fabric_drift.txt) and as metrics.
  - A device that was not read, or whose configuration cannot be parsed, is a claim that fails. The others are compared
    all the same.
  - A difference is no failure of the module; see RV(holds).
  - It contacts no device. Run it once, on the controller.
options:
  path:
    description: Directory of the files C(fabric_drift.*), created if it is missing. Each is written atomically.
    type: path
    required: true
  running:
    description: Running configurations as text by switch, or names, as M(sailloft.fleet.roce_switch_config) takes them.
    type: dict
    default: {}
  nics:
    description: The NICs as M(sailloft.fleet.roce_nic_info) returns them, by host, or names of hosts.
    type: dict
    default: {}
  nics_wanted:
    description: The NICs as M(sailloft.fleet.roce_host) returns them in check mode, by host, or names of hosts.
    type: dict
    default: {}
  unread:
    description: The reason by switch or host that could not be read.
    type: dict
    default: {}
  counted:
    description:
      - The result of M(sailloft.fleet.roce_counters_info) with its differences from an earlier one, between which
        traffic ran, by switch or host, or names.
      - A queue of RoCE on a switch with Linux, or a NIC, that lost packets is a claim that fails; one of which packets
        were marked and none was lost, a claim that holds. What other systems count was never seen on a switch, so it
        is shown and not judged.
    type: dict
    default: {}
  metrics_path:
    description:
      - The directory of the metrics in Prometheus' text format, C(sailloft_fabric_drift.prom), for the textfile
        collector of node_exporter. The file is replaced atomically in each run, and has the time of the comparison.
      - Without it, no metrics are written.
    type: path
notes:
  - The task is changed if the content of a file changes.
seealso:
  - module: sailloft.fleet.roce_fabric_proof
"""

EXAMPLES = r"""
- name: Compare the fabric with its policy
  sailloft.fleet.roce_fabric_drift:
    path: proofs
    metrics_path: /var/lib/prometheus/node-exporter
    policy: "{{ roce_policy | default({}) }}"
    switches: "{{ groups.roce_switches }}"
    running:
      leaf1: "{{ lookup('ansible.builtin.file', 'config_db.json') }}"
    unread:
      leaf2: it does not answer
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
holds:
  description: V(true) if all devices were read and nothing differs.
  returned: success
  type: bool
first:
  description: How many devices were not read, the number of differences and the first of them; "" if there is none.
  returned: success
  type: str
differences:
  description: The number of differences by device; null for one that was not read.
  returned: success
  type: dict
  sample: {"leaf1": 2, "leaf2": null}
counts:
  description: How many claims held, failed and did not apply.
  returned: success
  type: dict
table:
  description: The report, which fits a screen.
  returned: success
  type: list
  elements: str
files:
  description: The files of the report, and that of the metrics.
  returned: success
  type: list
  elements: str
"""

import time
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric import drift
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.metrics import counter_metric
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.traffic import counted_lines
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.module import FabricModule, fabric_arguments
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.exposition import publish
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written


def main() -> None:
    """Run as an Ansible module."""
    module = FabricModule(
        argument_spec=fabric_arguments(
            path={"type": "path", "required": True},
            metrics_path={"type": "path"},
            running={"type": "dict", "default": {}},
            nics_wanted={"type": "dict", "default": {}},
            unread={"type": "dict", "default": {}},
            counted={"type": "dict", "default": {}},
        ),
        returned=("path", "metrics_path", "policy", "asics", "unread"),
    )
    params = module.params

    def work() -> dict[str, Any]:
        proof = drift.drift(params)
        devices = {
            name: "switch" if name in params["switches"] else "host"
            for name in sorted({*params["running"], *params["nics"], *params["unread"]})
        }
        result = written(proof, page(proof), params["path"], module.check_mode)
        if params["metrics_path"]:
            metrics = drift.metrics(proof, devices)
            if params["counted"]:
                metrics.append(counter_metric(read_policy(params["policy"]), params["counted"]))
            path, changed = publish(params["metrics_path"], drift.NAME, metrics, time.time(), module.check_mode)
            result["changed"] |= changed
            result["files"].append(path)
        return {
            **result,
            "failed": False,
            "first": drift.first(proof, devices),
            "differences": drift.differences_by_device(proof, devices),
            "table": result["table"] + drift.report(proof, devices) + counted_lines(params["counted"]),
        }

    finish(module, work)


if __name__ == "__main__":
    main()
