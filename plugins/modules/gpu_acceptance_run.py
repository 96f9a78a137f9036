#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Run one measurement of a GPU node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_acceptance_run
short_description: Run one measurement of a GPU node, with a time limit
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Runs C(nvbandwidth), C(all_reduce_perf) of nccl-tests, C(ib_write_bw) of perftest or C(gdscheck) of gds-tools, if it
    is installed, and returns its output. M(sailloft.fleet.gpu_acceptance_proof) judges the result.
  - A tool that is absent, fails, or does not end within O(limit_s) is "not measured", with the reason; the module
    does not fail. C(timeout) ends the tool and its processes even if this module is killed.
  - With C(--check) nothing is run.
options:
  tool:
    description: The tool.
    type: str
    choices: [nvbandwidth, all_reduce_perf, ib_write_bw, gdscheck]
    required: true
  paths:
    description: Directories in which the tool is searched first.
    type: list
    elements: path
    default: []
  launcher:
    description: Words to put before C(all_reduce_perf), such as C(mpirun) with its hosts.
    type: list
    elements: str
    default: []
  arguments:
    description: Its arguments.
    type: list
    elements: str
    default: []
  limit_s:
    description: The time limit in seconds.
    type: int
    default: 300
  device:
    description: The RDMA device of C(ib_write_bw).
    type: str
  gpu:
    description:
      - The PCI address of the GPU whose memory C(ib_write_bw) uses, if it was built with GPU support; by dma-buf if
        possible. Otherwise host memory is measured, and RV(gpu_memory) is false.
    type: str
  server:
    description: The address of the server of C(ib_write_bw). Without it this is the server.
    type: str
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: none
"""

EXAMPLES = r"""
- name: Measure the PCIe links of the GPUs
  sailloft.fleet.gpu_acceptance_run:
    tool: nvbandwidth
    arguments: [--json, -t, host_to_device_memcpy_ce, device_to_host_memcpy_ce]
"""

RETURN = r"""
tool:
  description: The tool.
  returned: success
  type: str
status:
  description: V(measured) or V(not measured).
  returned: success
  type: str
reason:
  description: Why it was not measured.
  returned: success
  type: str
output:
  description: Its output.
  returned: success
  type: str
argv:
  description: The command.
  returned: success
  type: list
  elements: str
seconds:
  description: How long it took.
  returned: success
  type: float
port_gbit_s:
  description: The rate of the port of O(device); null if it is not known.
  returned: with O(device)
  type: float
gpu_memory:
  description: Whether GPU memory was used.
  returned: with O(device)
  type: bool
"""

import re
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.acceptance import run

RDMA = "/sys/class/infiniband"


def port_gbit_s(device: str) -> float | None:
    """Return a port's rate: 400.0 for "400 Gb/sec (4X NDR)" (Linux drivers/infiniband/core/sysfs.c, rate_show)."""
    try:
        with open(f"{RDMA}/{device}/ports/1/rate", encoding="ascii") as file:
            match = re.match(r"([\d.]+) Gb/sec", file.read())
    except OSError:
        return None
    return float(match[1]) if match else None


def measure(params: Mapping[str, Any], check: bool) -> dict[str, Any]:
    """Run the tool and return its result; in check mode and without the tool, say that nothing was measured."""
    tool, program = params["tool"], run.find(params["tool"], params["paths"])
    extra: dict[str, Any] = {}
    if params["device"]:
        extra = {"port_gbit_s": port_gbit_s(params["device"]), "gpu_memory": False}
    if program is None:
        return {**run.Done(tool, run.NOT_MEASURED, f"{tool} is not installed", [], "", 0).to_dict(), **extra}
    argv = [*params["launcher"], program, *params["arguments"]]
    if params["device"]:
        argv += ["-d", params["device"]]
        knows = run.answer(str(program), "--help") if params["gpu"] else ""
        if "--use_cuda_bus_id" in knows:
            argv += [f"--use_cuda_bus_id={params['gpu']}"]
            argv += ["--use_cuda_dmabuf"] if "--use_cuda_dmabuf" in knows else []
            extra["gpu_memory"] = True
        argv += [params["server"]] if params["server"] else []
    if check:
        return {**run.Done(tool, run.NOT_MEASURED, "check mode", argv, "", 0).to_dict(), **extra}
    # The server starts at the same time as the client, on another machine, so the client retries.
    retry_s = 20 if params["server"] else 0
    return {**run.run(tool, argv, params["limit_s"], retry_s).to_dict(), **extra}


def main() -> None:
    """Run as an Ansible module."""
    texts_option = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "tool": {
                "type": "str",
                "choices": ["nvbandwidth", "all_reduce_perf", "ib_write_bw", "gdscheck"],
                "required": True,
            },
            "paths": {"type": "list", "elements": "path", "default": []},
            "launcher": texts_option,
            "arguments": texts_option,
            "limit_s": {"type": "int", "default": 300},
            "device": {"type": "str"},
            "gpu": {"type": "str"},
            "server": {"type": "str"},
        },
        required_if=[("tool", "ib_write_bw", ["device"])],
        supports_check_mode=True,
    )
    finish(module, lambda: measure(module.params, module.check_mode))


if __name__ == "__main__":
    main()
