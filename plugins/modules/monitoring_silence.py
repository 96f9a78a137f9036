#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: monitoring_silence
short_description: Silence the alerts of hosts in Alertmanager while a run restarts them
version_added: 0.1.0
description:
  - Creates a silence for the label C(host), or ends it, by the API v2 of Alertmanager. It runs on the controller.
  - If no Alertmanager answers, it warns and does not fail. A silence ends by itself after O(seconds).
options:
  alertmanagers:
    description: The Alertmanagers of one cluster, of which the first that answers is asked.
    type: dict
    required: true
    suboptions:
      urls:
        description: Their URLs. Certificates are verified.
        type: list
        elements: str
        required: true
      credentials_file:
        description: A file on the controller with one line, C(USER:PASSWORD). It needs https.
        type: path
      ca_path:
        description: A file of certificates of authorities, instead of the system's.
        type: path
  hosts:
    description: The hosts, whose guests and parts are silenced too.
    type: list
    elements: str
    required: true
  state:
    description: >-
      V(present) creates a silence; V(absent) ends O(id); V(restarted) ends it too, and silences C(HostRestarted) alone
      for the twenty minutes in which it would follow.
    type: str
    choices: [present, restarted, absent]
    default: present
  id:
    description: The silence to end.
    type: str
    default: ""
  comment:
    description: The comment of the silence.
    type: str
    default: a run of Sailloft restarts it
  seconds:
    description: When the silence ends by itself.
    type: int
    default: 3600
attributes:
  check_mode:
    description: Does nothing in check mode.
    support: partial
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: none
author:
  - The Sailloft maintainers (@sailloft)
"""

EXAMPLES = r"""
- name: Silence the alerts of the node
  sailloft.fleet.monitoring_silence:
    alertmanagers: {urls: ["https://mon1:9093", "https://mon2:9093"], credentials_file: ~/.alertmanager}
    hosts: ["{{ inventory_hostname }}"]
  register: silenced

- name: End the silence
  sailloft.fleet.monitoring_silence:
    alertmanagers: {urls: ["https://mon1:9093", "https://mon2:9093"], credentials_file: ~/.alertmanager}
    hosts: ["{{ inventory_hostname }}"]
    state: absent
    id: "{{ silenced.id }}"
"""

RETURN = r"""
id:
  description: The silence of all alerts of the hosts; empty if there is none.
  returned: success
  type: str
"""
