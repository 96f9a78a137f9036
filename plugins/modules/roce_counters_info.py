#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The congestion counters of a host's RoCE NICs, or of a switch's ports."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_counters_info
short_description: Read the congestion counters of the RoCE NICs of a host, or of a switch's ports
version_added: 0.1.0
description:
  - Reads PFC pauses by priority, ECN marks, CNPs, packets out of sequence and drops from C(/sys/class/infiniband) and
    C(ethtool -S), and returns the differences from an earlier reading.
  - Knows the counters of mlx5, bnxt_re, irdma and software RoCE from the kernel's documentation and source. It was
    never run on such a NIC.
  - With O(system), returns those of a switch's ports from what the switch has answered (O(answers)), and contacts
    nothing.
    The forms are those of documents and of others' programs; only Linux was ever seen. C(tasks_from=counters) of
    P(sailloft.fleet.roce_switch#role) asks the switch.
  - A counter that the driver or the switch does not have is null, which is not 0.
  - Changes nothing.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  nics:
    description: The RDMA devices. The default is all with an Ethernet link.
    type: list
    elements: str
  system:
    description: The system of the switch, as C(roce_switch_system). C(dell_sonic) has no known counters.
    type: str
    choices: [cumulus, dell_sonic, eos, junos, linux, nxos, sonic]
  answers:
    description:
      - With O(system), the results of a task that asks the switch, with a loop over the commands of the system.
      - Of a command that failed, nothing is read; RV(unknown) has the reason.
    type: list
    elements: dict
    default: []
  expected_up:
    description: With O(system), the ports whose links must be up.
    type: list
    elements: str
    default: []
  deadline:
    description: With O(expected_up), the time until which to wait for them, in seconds since 1970.
    type: float
    default: 0.0
  before:
    description: RV(counters) of an earlier call on the same host or switch.
    type: dict
    default: {}
seealso:
  - module: sailloft.fleet.roce_nic_info
"""

EXAMPLES = r"""
- name: Read the counters before the traffic
  sailloft.fleet.roce_counters_info:
  register: earlier

- name: Let traffic run
  ansible.builtin.pause:
    seconds: 30

- name: Read what has happened since
  sailloft.fleet.roce_counters_info:
    before: "{{ earlier.counters }}"

- name: Ask a Linux switch
  ansible.builtin.command: "{{ item }}"
  loop: [ip -j link show, tc -s -j qdisc show]
  register: asked
  changed_when: false

- name: Read the counters of the Linux switch
  sailloft.fleet.roce_counters_info:
    system: linux
    answers: "{{ asked.results }}"
  delegate_to: localhost
"""

RETURN = r"""
counters:
  description:
    - The counters by RDMA device, since the driver was loaded or the counter was reset. Null is not known.
    - C(pause_received) and C(pause_sent) are lists of PFC frames by priority; Intel's driver counts only those that
      begin a pause.
    - C(ecn_marked_received), C(cnp_sent) and C(cnp_handled) are packets; the first two are those of the receiver, the
      last is that of the sender.
    - C(out_of_sequence) counts packets that arrived out of sequence, C(rnr_nak_received) RNR NAKs that the sender got,
      C(receive_buffer_missing) packets without a posted buffer, C(roce_dropped) RoCE packets that the NIC dropped
      (bnxt_re), and C(dropped_by_port) packets of all kinds that the port dropped for lack of buffers (mlx5).
    - With O(system), by port. C(up) says whether the link is up. C(pause_received) and C(pause_sent) are lists by
      priority; C(ecn_marked), the packets that left with a mark, C(dropped), those that were dropped, and C(watchdog),
      the storms of pauses that the watchdog ended, are lists by queue.
  returned: success
  type: dict
differences:
  description: The same since O(before); null where one of both is not known, or the counter has been reset.
  returned: with O(before)
  type: dict
unknown:
  description: By RDMA device, why the counters of its port are not known; with O(system), by counter.
  returned: success
  type: dict
up:
  description: The ports whose links are up.
  returned: with O(system)
  type: list
  elements: str
not_up:
  description: The ports of O(expected_up) that are not known to be up.
  returned: with O(system)
  type: list
  elements: str
down:
  description: Those of RV(not_up) that are down.
  returned: with O(system)
  type: list
  elements: str
waits:
  description: V(true) if RV(not_up) has ports and O(deadline) is not reached.
  returned: with O(system)
  type: bool
"""

import time
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.answers import answers
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.table import (
    COUNTERS,
    UP,
    differences,
    read_counters,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.module import FabricModule
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import counters, read

NO_COUNTERS = "no document was found that says how this system shows it"


def main() -> None:
    """Run as an Ansible module."""
    module = FabricModule(
        argument_spec={
            "nics": {"type": "list", "elements": "str"},
            "system": {"type": "str", "choices": sorted(SYSTEMS)},
            "answers": {"type": "list", "elements": "dict", "default": []},
            "expected_up": {"type": "list", "elements": "str", "default": []},
            "deadline": {"type": "float", "default": 0.0},
            "before": {"type": "dict", "default": {}},
        },
        returned=("nics", "system", "expected_up"),  # answers and readings are long
        mutually_exclusive=[("nics", "system")],
    )

    def facts(values: dict[str, dict[str, Any]], reasons: dict[str, str]) -> dict[str, Any]:
        before = module.params["before"]
        read_now = {"counters": values, "unknown": reasons}
        return {**read_now, "differences": differences(before, values)} if before else read_now

    def of_host() -> Outcome:
        system, nics = System(), module.params["nics"]
        return Outcome(facts=facts(*counters.counters(system, read.names(system)[0] if nics is None else nics)))

    def of_switch() -> dict[str, Any]:
        table = SYSTEMS[module.params["system"]].counters
        ports: dict[str, dict[str, Any]] = {}
        reasons = dict.fromkeys(COUNTERS, NO_COUNTERS)
        if table is not None:
            ports, reasons = read_counters(table, answers(module.params["answers"]))
        links = {name: counters[UP] for name, counters in ports.items()}
        not_up = [name for name in module.params["expected_up"] if not links.get(name)]
        return {
            "changed": False,
            **facts(ports, reasons),
            "up": [name for name, up in links.items() if up],
            "not_up": not_up,
            "waits": bool(not_up) and time.time() < module.params["deadline"],
            "down": [name for name in not_up if links.get(name) is False],
        }

    if module.params["system"]:
        finish(module, of_switch)
    else:
        finish_on_host(module, of_host, reads=True)


if __name__ == "__main__":
    main()
