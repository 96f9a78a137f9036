#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_run
short_description: Run a playbook on slices of the inventory, each from its gateway
version_added: 0.1.0
description:
  - Divides the inventory by the gateways of its hosts, sends each slice with this collection to its gateway, runs the
    playbook there with C(ansible-runner), on all gateways in parallel, and collects the outcome of each host.
  - It runs on the controller, once for all hosts.
  - A slice is lost if its gateway is not reachable or lacks C(ansible-runner), or if its worker ends. The other slices
    continue. The state of its hosts is then C(unknown), never C(ok).
options:
  playbook:
    description: A playbook of a collection, such as V(sailloft.fleet.gpu_hosts), or a single file.
    type: str
    required: true
  gateways:
    description: The gateway of each host of the run, by its name for C(ssh).
    type: dict
    required: true
  inventory:
    description: The sources of the inventory. C(ansible-inventory) reads them, once for all slices.
    type: list
    elements: str
    required: true
  folder:
    description:
      - The directory for C(record.json), the state of each host, and the output of each gateway. Only the user can read
        it.
    type: path
    required: true
  resume:
    description:
      - Leave out the hosts that are C(ok) in C(record.json). The record must be of the same playbook and arguments.
    type: bool
    default: false
  arguments:
    description:
      - Further arguments of C(ansible-playbook) on the gateways, such as V(--tags=pci). Other users of the gateways can
        read them.
    type: list
    elements: str
    default: []
  forks:
    description: The number of hosts that each gateway works on in parallel.
    type: int
    default: 50
  connect:
    description: The command that reaches a gateway; the gateway's name and a command for its shell are appended.
    type: str
    default: ssh -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15
  path:
    description: A directory to put before C(PATH) on the gateways, such as the C(bin) of a virtual environment.
    type: str
    default: ""
attributes:
  check_mode:
    description: The slices run in check mode. Their record does not count for a run that changes anything.
    support: full
  diff_mode:
    description: The slices run with C(--diff); it is in the output of each gateway.
    support: full
requirements:
  - ansible-runner >= 2.4 on the controller and on the gateways
  - ansible on the gateways
author:
  - The Sailloft maintainers (@sailloft)
"""

EXAMPLES = r"""
- name: Run the slices
  sailloft.fleet.gateway_run:
    playbook: sailloft.fleet.gpu_hosts
    gateways:
      gpu001: gw1
      gpu002: gw1
      gpu033: gw2
    inventory: "{{ ansible_inventory_sources }}"
    folder: runs/gpu_hosts
  run_once: true
"""

RETURN = r"""
report:
  description: The result as lines of text. Similar failures are one line.
  returned: when the run began
  type: list
  elements: str
  sample:
    - "gw1: 32 hosts: 1 failed, 31 ok"
    - "gw2: 32 hosts: 32 unknown"
    - "32 hosts: gw2: not reached: ssh: connect to host gw2 port 22: No route to host; check that `ssh gw2 true` works:
      gpu[033-064]"
hosts:
  description: The number of hosts by state, C(ok), C(failed), C(unreachable) or C(unknown).
  returned: when the run began
  type: dict
  sample: {failed: 1, ok: 31, unknown: 32}
record:
  description: The file with the gateway, state, task and message of each host.
  returned: when the run began
  type: str
  sample: runs/gpu_hosts/record.json
"""
