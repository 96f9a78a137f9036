# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Arguments that the real Prometheus reads, and the form of Thanos' and Grafana's files: these were never started."""

from __future__ import annotations

import re
import subprocess

import pytest
from alert_tests import promtool
from monitored_sites import GROUPS, SETTINGS, site

from ansible_collections.sailloft.fleet.plugins.action.monitoring_plan import to_yaml
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.plan import plan

THANOS = {"bucket": "metrics", "endpoint": "s3.example.com", "sidecars": ["mon1:10901", "mon2:10901"]}


@pytest.fixture(scope="module")
def planned():
    return plan({**SETTINGS, "thanos": THANOS}, site(), GROUPS)


def arguments(planned):
    return {
        name.partition("/")[2]: text.splitlines()
        for name, text in planned.texts.items()
        if name.startswith("arguments/")
    }


def test_the_days_are_those_of_the_paper(planned):
    assert arguments(plan(SETTINGS, site(), GROUPS)) == {"prometheus": ["--storage.tsdb.retention.time=30d"]}
    days = [line.partition("resolution-")[2] for line in arguments(planned)["thanos-compact"] if "retention" in line]
    assert days == ["raw=30d", "5m=90d", "1h=365d"]


def test_the_real_prometheus_reads_its_arguments_and_its_configuration(planned, tmp_path):
    for name, text in (*planned.texts.items(), ("prometheus.yml", to_yaml(planned.documents["prometheus.yml"]))):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/sailloft.yml").write_text(to_yaml(planned.documents["rules/sailloft.yml"]))
    checked = promtool("check", "config", "prometheus.yml", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    # It reads all arguments before it refuses the address.
    command = ["prometheus", "@arguments/prometheus", "--web.listen-address=nowhere"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "expand-external-labels enabled" in run.stderr
    assert "address nowhere" in run.stderr


def test_the_pair_has_one_label_each_and_one_alert_for_both(planned):
    configuration = planned.documents["prometheus.yml"]
    assert configuration["global"]["external_labels"] == {"site": "harbour", "replica": "${REPLICA}"}
    assert configuration["alerting"]["alert_relabel_configs"] == [{"regex": "replica", "action": "labeldrop"}]
    assert "--enable-feature=expand-external-labels" in arguments(planned)["prometheus"]
    assert "--query.replica-label=replica" in arguments(planned)["thanos-query"]


def test_the_files_of_thanos_have_no_secret_and_distinct_ports(planned):
    bucket = planned.documents["thanos/objstore.yml"]
    assert (bucket["type"], bucket["config"]["aws_sdk_auth"]) == ("S3", True)
    assert not {"access_key", "secret_key"} & bucket["config"].keys()
    lines = [line for name, text in arguments(planned).items() if name != "prometheus" for line in text]
    ports = re.findall(r"--(?:grpc|http)-address=\S+:(\d+)", "\n".join(lines))
    assert len(ports) == len(set(ports)) == 7
    endpoints = [line.partition("=")[2] for line in lines if line.startswith("--endpoint=")]
    assert endpoints == [*THANOS["sidecars"], "127.0.0.1:10905"]


def test_grafana_asks_thanos_if_there_is_one(planned):
    source = "grafana/provisioning/datasources/sailloft.yml"
    assert planned.documents[source]["datasources"][0]["url"].endswith(":10904")
    assert plan({}, site(), GROUPS).documents[source]["datasources"][0]["url"].endswith(":9090")
    (provider,) = planned.documents["grafana/provisioning/dashboards/sailloft.yml"]["providers"]
    assert (provider["type"], provider["options"]) == ("file", {"path": "/etc/prometheus/dashboards"})
