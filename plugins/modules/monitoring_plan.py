#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: monitoring_plan
short_description: Plan targets, rules and alert routes of Prometheus for a whole site
version_added: 0.1.0
description:
  - Makes the files of Prometheus (C(prometheus.yml), C(rules/sailloft.yml), C(targets/JOB.json)), of Alertmanager
    (C(alertmanager.yml), if there are O(receivers)), of the blackbox exporter (C(blackbox.yml)), of dcgm-exporter
    (C(dcgm-counters.csv)) and of Grafana (C(dashboards/NAME.json)) from all hosts of the inventory. It runs on the
    controller, without a host.
  - C(arguments/PROGRAM) has the arguments of Prometheus and Thanos for their C(@FILE), C(grafana/) the provisioning of
    Grafana. Thanos and Grafana were never started with these files.
  - Targets have the labels C(instance), C(host) (of a guest, its host), C(role), C(rack), C(unit), C(rail) (of a switch
    of one rail), C(spare), C(feed) (C(site_feed) of the inventory), and the numbers of the blueprint's blocks.
  - docs/how-to/monitoring.md has the alerts, jobs and limits.
extends_documentation_fragment: [sailloft.fleet.attributes]
options:
  site:
    description: The external label C(site) of all series and alerts.
    type: str
    default: site
  jobs:
    description: >-
      By name of a job, settings instead of its own: C(groups), C(port), C(interval_s), C(network) (of
      C(site_addresses)), C(module) (of the blackbox exporter), C(plain) (HTTP in spite of O(client)). An empty list of
      groups drops a job; another name is another job.
    type: dict
  limits:
    description: By name of a limit, its value, or values by group; C(all) is for the other hosts.
    type: dict
  disabled_alerts:
    description: Reasons by name of an alert that is left out.
    type: dict
  receivers:
    description: >-
      By name of a receiver, its ways: C(slack) (C(api_url_file), C(channel)), C(email) (C(to), C(from), C(smarthost),
      C(auth_username), C(auth_password_file)), C(pagerduty) (C(routing_key_file)) and C(webhook) (C(url),
      C(credentials_file)). Secrets are paths on the servers of Alertmanager.
    type: dict
  routes:
    description: >-
      The receivers of alerts, the first route that fits: C(receiver), C(severity) (C(critical), C(warning), C(info)),
      C(owner) (C(datacenter), C(hardware), C(network), C(platform), C(monitoring)). One has only a receiver.
    type: list
    elements: dict
  runbooks:
    description: The address of the page of runbooks in messages.
    type: str
    default: docs/reference/runbooks.md
  blackbox:
    description: HOST:PORT of the blackbox exporter, as Prometheus reaches it.
    type: str
    default: 127.0.0.1:9115
  alertmanagers:
    description: HOST:PORT of each Alertmanager.
    type: list
    elements: str
  timing:
    description: >-
      Seconds: C(evaluation_s) (30) between evaluations of the rules; C(group_wait_s) (30) until the first message of a
      group of alerts, C(group_interval_s) (300) until one of its changes, C(repeat_s) (14400) until it is repeated.
    type: dict
  client:
    description: >-
      How Prometheus reaches exporters and Alertmanagers by HTTPS: C(ca_file), and C(username) with C(password_file), as
      paths on its server. Without it, by HTTP.
    type: dict
  replica:
    description: The external label C(replica), which tells the servers of a pair apart, and which alerts do not have.
    type: str
  rules:
    description: By name of a file, the groups of rules of your own, as Prometheus has them in C(groups).
    type: dict
  retention:
    description: >-
      For how many days samples are kept: C(raw_days) (30), and with O(thanos) C(five_minutes_days) (90) and
      C(hour_days) (365).
    type: dict
  thanos:
    description: >-
      Makes the files of Thanos too: C(bucket) and C(endpoint) of S3, whose credentials are a file on the servers, and
      C(sidecars) (a list of HOST:PORT).
    type: dict
  path:
    description: Directory for the files, created if it is missing. Without it, nothing is written.
    type: path
"""

EXAMPLES = r"""
- name: Plan the monitoring of the site
  sailloft.fleet.monitoring_plan:
    site: vela
    limits:
      gpu_temperature_celsius: {all: 85, spares: 80}
    receivers:
      noc: {slack: {api_url_file: /etc/prometheus/slack, channel: "#noc"}}
      pager: {pagerduty: {routing_key_file: /etc/prometheus/pagerduty}}
    routes:
      - {receiver: pager, severity: [critical]}
      - {receiver: noc}
    alertmanagers: ["127.0.0.1:9093"]
    path: plans/monitoring
"""

RETURN = r"""
summary:
  description: Hosts, targets and alerts as lines of text.
  returned: success
  type: list
  elements: str
unmonitored:
  description: The hosts without a target, as lines.
  returned: success
  type: list
  elements: str
  sample: ["in no group of a job: core-01, core-02, core-03 and 9 more"]
files:
  description: The names of all files of the plan.
  returned: success
  type: list
  elements: str
written:
  description: The files that were missing or different.
  returned: success
  type: list
  elements: str
stale:
  description: Files of an earlier plan that this one does not have.
  returned: success
  type: list
  elements: str
"""
