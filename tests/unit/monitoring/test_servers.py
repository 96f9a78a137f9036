# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The pair of monitoring servers: each one's own name and addresses, and what the inventory must say of them."""

from __future__ import annotations

import pytest
from messages import raises
from monitored_sites import GROUPS, SETTINGS, site

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.errors import MonitoringError
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import MonitoredHost
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.servers import (
    server_addresses,
    server_files,
    server_settings,
)

ADDRESSES = {"mon1": "10.9.0.5", "mon2": "fd00::6"}


def server(name, address, listens_on=""):
    return MonitoredHost(name, ("monitoring_servers",), address, listens_on=listens_on)


def test_the_servers_of_a_pair_differ_in_name_and_blackbox_exporter_only():
    documents = {
        name: plan(server_settings({**SETTINGS, "alertmanagers": None}, name, ADDRESSES), site(), GROUPS).documents
        for name in ADDRESSES
    }
    configurations = {name: each["prometheus.yml"] for name, each in documents.items()}
    assert {name: each["global"]["external_labels"]["replica"] for name, each in configurations.items()} == {
        name: name for name in ADDRESSES
    }
    for configuration in configurations.values():
        alerting = configuration["alerting"]
        assert alerting["alertmanagers"] == [{"static_configs": [{"targets": ["10.9.0.5:9093", "[fd00::6]:9093"]}]}]
        # Alertmanager sees the alerts of the pair as one.
        assert alerting["alert_relabel_configs"] == [{"action": "labeldrop", "regex": "replica"}]
    probes = {
        name: {scrape["relabel_configs"][-1]["replacement"] for scrape in each["scrape_configs"] if "params" in scrape}
        for name, each in configurations.items()
    }
    assert probes == {"mon1": {"10.9.0.5:9115"}, "mon2": {"[fd00::6]:9115"}}
    others = [
        {name: each for name, each in document.items() if name != "prometheus.yml"} for document in documents.values()
    ]
    assert others[0] == others[1]


def test_without_routes_there_is_no_alertmanager():
    assert server_settings({}, "mon1", ADDRESSES)["alertmanagers"] is None


def test_exporters_are_asked_at_the_address_on_which_they_listen():
    hosts = [*site(), server("mon2", "mon2.example.com", "10.8.0.6")]
    texts = plan({}, hosts, GROUPS).texts
    assert '"10.8.0.6:9100"' in texts["targets/node.json"]
    assert '"mon2.example.com:22"' in texts["targets/ssh.json"]


def test_a_server_has_only_what_its_programs_read():
    files = server_files(
        {"prometheus.yml": "", "rules/a.yml": "", "targets/a.json": "", "dcgm-counters.csv": "", "x/y": ""}
    )
    assert set(files) == {"prometheus.yml", "rules/a.yml", "targets/a.json"}


@pytest.mark.parametrize(
    ("hosts", "facts"),
    [
        ([server("mon1", "mon1")], ["mon1", "monitoring_address"]),
        ([server("mon1", "0.0.0.0")], ["mon1", "0.0.0.0"]),
        ([server("mon1", "10.0.0.1"), server("mon2", "10.0.0.1")], ["mon1", "mon2", "10.0.0.1"]),
    ],
)
def test_wrong_addresses_are_refused(hosts, facts):
    with raises(MonitoringError, *facts):
        server_addresses(hosts)


def test_a_host_outside_of_the_group_is_refused():
    with raises(MonitoringError, "n1", "monitoring_servers"):
        server_settings({}, "n1", ADDRESSES)
