#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The congestion counters of a host's RoCE NICs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_counters_info
short_description: Read the congestion counters of the RoCE NICs of a host
version_added: 0.1.0
description:
  - Reads PFC pauses by priority, ECN marks, CNPs, packets out of sequence and drops from C(/sys/class/infiniband) and
    C(ethtool -S), and returns the differences from an earlier reading.
  - Knows the counters of mlx5, bnxt_re, irdma and software RoCE from the kernel's documentation and source. It was
    never run on such a NIC.
  - A counter that the driver does not have is null, which is not 0.
  - Changes nothing.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  nics:
    description: The RDMA devices. The default is all with an Ethernet link.
    type: list
    elements: str
  before:
    description: RV(counters) of an earlier call on the same host.
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
  returned: success
  type: dict
differences:
  description: The same since O(before); null where one of both is not known, or the counter has been reset.
  returned: with O(before)
  type: dict
unknown:
  description: By RDMA device, why the counters of its port are not known.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import counters, read


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={"nics": {"type": "list", "elements": "str"}, "before": {"type": "dict", "default": {}}},
        supports_check_mode=True,
    )
    system = System()

    def look() -> Outcome:
        named = module.params["nics"]
        values, reasons = counters.counters(system, read.names(system)[0] if named is None else named)
        before = module.params["before"]
        facts = {"counters": values, "unknown": reasons}
        return Outcome(facts={**facts, "differences": counters.differences(before, values)} if before else facts)

    finish_on_host(module, look, reads=True)


if __name__ == "__main__":
    main()
