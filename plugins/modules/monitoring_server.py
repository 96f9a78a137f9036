#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: monitoring_server
short_description: Run Prometheus, Alertmanager and the blackbox exporter of a monitoring server
version_added: 0.1.0
description:
  - Brings the files of M(sailloft.fleet.monitoring_plan) to one of the servers of the inventory's group
    C(monitoring_servers), and runs Debian's services with them. Their packages must be installed.
  - C(promtool) and C(amtool) check all files before one of them is replaced. What they refuse leaves the former files
    in use.
  - A service whose files have changed reads them again (C(systemctl reload)). It is restarted only for another command
    line, which RV(restarted) names. A run after one that was killed makes up for what that one has not done.
  - All programs listen on the address of the server only (C(monitoring_address), or C(ansible_host)). Each Prometheus
    has the external label C(replica); the Alertmanagers are a cluster.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  plan:
    description:
      - The options of M(sailloft.fleet.monitoring_plan), without C(path). O(files), O(address) and O(peers) follow from
        them and from the inventory.
    type: dict
  files:
    description: Texts by name, as M(sailloft.fleet.monitoring_plan) makes them, instead of O(plan).
    type: dict
    default: {}
  address:
    description: The IP address on which the programs listen.
    type: str
    default: ""
  peers:
    description: The addresses of the other servers.
    type: list
    elements: str
    default: []
  retention_days:
    description: How many days Prometheus keeps its samples, 1 to 3650.
    type: int
    default: 30
  arguments:
    description: Further arguments by program, C(prometheus), C(alertmanager) or C(blackbox).
    type: dict
    default: {}
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
  controller_s:
    description: >-
      The time of the controller, in seconds since 1970, which the action gives. A server whose clock differs by more
      than five minutes is refused: its samples and alerts would have wrong times.
    type: float
  secrets:
    description: >-
      Texts by the name of their file in C(/etc/prometheus/secrets), which only root and the group C(prometheus) can
      read. They are not shown.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Run the programs of a monitoring server
  sailloft.fleet.monitoring_server:
    plan:
      site: harbour
      receivers:
        noc: {slack: {api_url_file: /etc/prometheus/secrets/slack, channel: "#noc"}}
      routes:
        - {receiver: noc}
    secrets: {slack: "{{ vault_slack }}"}
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

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring_host import server


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=server.options(), supports_check_mode=True)
    finish_on_host(module, lambda: server.ensure(System(), module.params, module.check_mode))


if __name__ == "__main__":
    main()
