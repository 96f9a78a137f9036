#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Send the logs of a node, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_logs
short_description: Send the journal of a node to Kafka and Elasticsearch, or stop it
version_added: 0.1.0
description:
  - Installs a systemd service (C(sailloft-logs.service)) with a C(rsyslogd) of its own, which reads the journal. The
    distribution's rsyslog service and its configuration stay as they are. The packages must be installed.
  - Each line is a JSON object with the time, O(host), O(rack), boot id, unit, program, process, severity, facility and
    message. Each receiver has a queue on disk; what a full queue drops is counted in O(counts_file).
  - rsyslogd reads the new configuration before it is put in place. One that it refuses changes nothing, and the former
    one runs on. The service is restarted only after a change.
  - In an image, whose root is a chroot on the host that builds it, the service is only enabled.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  state:
    description: V(absent) removes all but the lines that wait in C(/var/lib/rsyslog/sailloft).
    type: str
    choices: [present, absent]
    default: present
  host:
    description: The name in each record. Without it, the machine's own name.
    type: str
    default: ""
  rack:
    description: The rack in each record.
    type: str
    default: ""
  kafka:
    description:
      - "C(brokers) (a list of HOST:PORT), C(topic) (default C(logs)), and paths on the node of PEM files for TLS:
        C(ca), C(certificate), C(key)."
    type: dict
  elasticsearch:
    description:
      - "C(servers) (a list of https://HOST:PORT), C(index) (default C(logs); the day is added), paths on the node of
        PEM files for TLS: C(ca), C(certificate), C(key), and C(user) with C(password_file), a path on the node."
    type: dict
  queue_mib:
    description: The size in MiB of each receiver's queue on disk.
    type: int
    default: 256
  counts_file:
    description: >-
      A file in the textfile directory of node exporter, which ends in C(.prom). Without it nothing is counted.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Send the journal to Elasticsearch
  sailloft.fleet.node_logs:
    host: "{{ inventory_hostname }}"
    elasticsearch:
      servers: ["https://logs1:9200", "https://logs2:9200"]
      ca: /etc/sailloft/logs-ca.pem
      user: nodes
      password_file: /etc/sailloft/logs-password
    counts_file: /var/lib/prometheus/node-exporter/sailloft_logs.prom
"""

RETURN = r"""
unit:
  description: The systemd unit.
  returned: when O(state=present)
  type: str
pending:
  description: Always empty.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.host_module import finish_on_host, in_chroot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.logs.ensure import ensure, options


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(argument_spec=options(), supports_check_mode=True)
    finish_on_host(module, lambda: ensure(System(), module.params, in_chroot(), module.check_mode), live=False)


if __name__ == "__main__":
    main()
