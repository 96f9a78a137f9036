#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: monitoring_node
short_description: Run the exporters of a node
version_added: 0.1.0
description:
  - Runs Debian's node exporter (C(prometheus-node-exporter), which must be installed) with the collectors C(ethtool)
    and C(textfile), and a timer that writes the textfiles C(sailloft_health.prom), what C(sailloft-health) knows, and
    C(sailloft_rdma.prom), the counters of RDMA ports.
  - The node exporter's collector C(infiniband) is off. One port whose counters cannot be read makes it drop all ports
    (prometheus/node_exporter#3265), and floods the kernel's log (#3434). C(sailloft_rdma.prom) has the same metrics.
  - With O(dcgm_exporter), also runs dcgm-exporter with the counters of M(sailloft.fleet.monitoring_plan). This was
    never tried.
  - Works in an image too, whose root is a chroot on the host that builds it. There the units are only enabled.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  address:
    description: The IP address on which the exporters listen.
    type: str
    default: ""
  network:
    description: >-
      The network, such as C(10.0.0.0/16), in which the node looks for its address at each start, instead of O(address).
      An image needs it.
    type: str
    default: ""
  arguments:
    description: Further arguments of the node exporter.
    type: list
    elements: str
    default: []
  dcgm_exporter:
    description: The path of the program dcgm-exporter on the node. Without it, no unit is made.
    type: path
  tls:
    description: >-
      HTTPS: C(cert_file), C(key_file), and C(client_ca_file), which client certificates must be signed with, as paths
      on the host that the user C(prometheus) may read.
    type: dict
    default: {}
  users:
    description: The bcrypt hashes of passwords by user, who must then log in. Needs O(tls).
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Run the exporters
  sailloft.fleet.monitoring_node:
    address: 10.0.0.17
    dcgm_exporter: /usr/bin/dcgm-exporter
"""

RETURN = r"""
reloaded:
  description: The units that read, or would read, changed files again.
  returned: success
  type: list
  elements: str
  sample: [prometheus.service]
restarted:
  description: The units that were, or would be, started or restarted, with the reasons.
  returned: success
  type: list
  elements: str
  sample: ["prometheus.service: command line: --storage.tsdb.retention.time=60d"]
pending:
  description: Always empty.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host, in_chroot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring_host import node


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=node.options(), supports_check_mode=True)
    finish_on_host(module, lambda: node.ensure(System(), module.params, in_chroot(), module.check_mode), live=False)


if __name__ == "__main__":
    main()
