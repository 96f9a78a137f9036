# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A monitoring server: nothing that the real promtool and amtool refuse is put in place; reloads are made up for."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from messages import raises
from monitored_sites import GROUPS, SETTINGS, site
from monitoring_host import MonitoringHost

from ansible_collections.sailloft.fleet.plugins.action.monitoring_plan import planned_texts
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.servers import server_files
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring_host import daemons, server

HASH = "$2b$04$mTLEwJ6a3i6Z2tp6J3vYt.o5o9t8jKLvhfWHG5s.BfIapBzpU66MW"
TLS = {"cert_file": "/etc/prometheus/tls.crt", "key_file": "/etc/prometheus/tls.key"}
OPENSSL = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=a -keyout key -out crt"


def request(**given):
    settings = {**SETTINGS, **given.pop("settings", {})}
    files = server_files(planned_texts(plan(settings, site(), GROUPS)))
    defaults = {"retention_days": 30, "arguments": {}, "tls": {}, "users": {}, "secrets": {}, "peers": ["127.0.0.2"]}
    return {"address": "127.0.0.1", "files": files, **defaults, **given}


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setattr(daemons, "wait", lambda daemon, runs: None)
    monkeypatch.setattr(daemons, "group_id", lambda name: -1)
    monkeypatch.setattr(daemons, "group_name", lambda number: "prometheus")
    return MonitoringHost(tmp_path)


def held(host):
    return {str(path): path.read_bytes() for path in Path(host.root, "etc").rglob("*") if path.is_file()}


def test_check_mode_foresees_what_a_run_changes_and_the_next_run_changes_nothing(host):
    foreseen = server.ensure(host, request(secrets={"slack": "hidden"}), check=True)
    assert held(host) == {}
    outcome = server.ensure(host, request(secrets={"slack": "hidden"}))
    assert (outcome.before, outcome.after, outcome.facts) == (foreseen.before, foreseen.after, foreseen.facts)
    assert "hidden" not in str(outcome.to_result())
    assert len(outcome.facts["restarted"]) == 3
    assert not server.ensure(host, request(secrets={"slack": "hidden"})).changed
    secret = Path(host.path("/etc/prometheus/secrets/slack"))
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("hidden", 0o640)


@pytest.mark.parametrize(("offset_s", "way"), [(-3600, "ahead"), (3600, "behind")])
def test_a_server_with_a_wrong_clock_is_refused_before_anything_is_written(host, offset_s, way):
    with raises(HostError, "clock", way):
        server.ensure(host, request(controller_s=time.time() + offset_s))
    assert held(host) == {}
    assert server.ensure(host, request(controller_s=time.time() - 60), check=True).changed


def test_programs_listen_on_one_address_and_the_alertmanagers_are_a_cluster(host):
    by_unit = {daemon.unit: daemon.command for daemon in server.server_daemons(request(), request()["files"])}
    assert {unit: command[1] for unit, command in by_unit.items()} == {
        "prometheus.service": "--web.listen-address=127.0.0.1:9090",
        "prometheus-alertmanager.service": "--web.listen-address=127.0.0.1:9093",
        "prometheus-blackbox-exporter.service": "--web.listen-address=127.0.0.1:9115",
    }
    cluster = {each for each in by_unit["prometheus-alertmanager.service"] if each.startswith("--cluster")}
    assert cluster >= {"--cluster.listen-address=127.0.0.1:9094", "--cluster.peer=127.0.0.2:9094"}


def test_a_changed_rule_is_read_again_and_a_changed_command_line_restarts(host):
    server.ensure(host, request())
    host.changes.clear()
    changed = server.ensure(host, request(settings={"limits": {"clock_offset_seconds": 1}}))
    assert host.changes == ["reload prometheus.service"]
    assert changed.facts == {"reloaded": ["prometheus.service"], "restarted": []}
    host.changes.clear()
    changed = server.ensure(host, request(settings={"limits": {"clock_offset_seconds": 1}}, retention_days=90))
    assert host.changes == ["daemon-reload", "restart prometheus.service"]
    assert changed.facts["restarted"] == ["prometheus.service: command line: --storage.tsdb.retention.time=90d"]


@pytest.mark.parametrize(
    ("given", "killed_at", "made_up"),
    [
        (
            {"settings": {"limits": {"clock_offset_seconds": 1}}},
            "reload prometheus.service",
            "reload prometheus.service",
        ),
        ({"retention_days": 90}, "daemon-reload", "restart prometheus.service"),
        ({"retention_days": 90}, "restart prometheus.service", "restart prometheus.service"),
    ],
)
def test_a_run_makes_up_for_one_that_was_killed(host, given, killed_at, made_up):
    server.ensure(host, request())
    host.killed_at = killed_at
    with pytest.raises(KeyboardInterrupt):
        server.ensure(host, request(**given))
    host.killed_at = ""
    host.changes.clear()
    assert server.ensure(host, request(**given), check=True).changed
    assert server.ensure(host, request(**given)).changed
    assert host.changes[-1] == made_up
    assert not server.ensure(host, request(**given)).changed


def broken(text):
    files = request()["files"]
    return {**files, "rules/own.yml": text}


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        (broken("groups: [{name: own, rules: [{record: a, expr: 'count(up'}]}]\n"), ["rules/own.yml", "parenthesis"]),
        ({**request()["files"], "alertmanager.yml": "route: {receiver: nobody}\n"}, ["alertmanager.yml", "nobody"]),
        ({**request()["files"], "blackbox.yml": "modules: {a: {probber: tcp}}\n"}, ["blackbox.yml"]),
        ({**request()["files"], "prometheus.yml": "scrape_configs: [{}]\n"}, ["prometheus.yml", "job_name"]),
    ],
)
def test_a_refused_file_leaves_all_former_files_in_use(host, files, facts):
    server.ensure(host, request())
    before = held(host)
    host.changes.clear()
    for check in (True, False):
        with raises(HostError, *facts):
            server.ensure(host, request(files=files, secrets={"new": "x"}), check=check)
    assert (held(host), host.changes) == (before, [])


def test_rules_of_an_earlier_plan_are_removed_and_those_of_people_stay(host):
    server.ensure(host, request(settings={"rules": {"own": [{"name": "own", "rules": []}]}}))
    Path(host.path("/etc/prometheus/rules/by_hand.yml")).write_text("groups: []\n")
    host.changes.clear()
    outcome = server.ensure(host, request())
    assert (list(outcome.after), host.changes) == (["/etc/prometheus/rules/own.yml"], ["reload prometheus.service"])
    assert sorted(host.names("/etc/prometheus/rules")) == ["by_hand.yml", "sailloft.yml"]


def test_tls_and_passwords_are_for_all_programs_and_not_shown(host, tmp_path):
    with raises(HostError, "web.yml", "/etc/prometheus/tls.crt"):
        server.ensure(host, request(tls=TLS))
    subprocess.run(OPENSSL.split(), cwd=tmp_path, capture_output=True, check=True)
    tls = {"cert_file": str(tmp_path / "crt"), "key_file": str(tmp_path / "key")}
    outcome = server.ensure(host, request(tls=tls, users={"prometheus": HASH}))
    assert HASH not in str(outcome.to_result())
    assert all(
        "--web.config.file=/etc/prometheus/web.yml" in host.read(f"/proc/{pid}/cmdline") for pid in host.active.values()
    )
    assert "basic_auth_users" in host.read("/etc/prometheus/web.yml")
    server.ensure(host, request())
    assert not host.exists("/etc/prometheus/web.yml")


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"retention_days": 0}, ["retention_days", "3650"]),
        ({"arguments": {"grafana": []}}, ["grafana", "prometheus"]),
        ({"arguments": {"prometheus": ["--a b"]}}, ["arguments.prometheus", "--a b"]),
        ({"users": {"a": HASH}}, ["users", "tls"]),
        ({"tls": {"cert_file": "/a"}}, ["tls", "key_file"]),
        ({"tls": TLS, "users": {"a": "secret"}}, ["users", "bcrypt"]),
        ({"secrets": {"../a": "x"}}, ["secrets", "../a"]),
        ({"address": "mon1"}, ["mon1", "monitoring_address"]),
        ({"files": {}}, ["prometheus.yml", "plan"]),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(host, given, facts):
    with raises(RequestError, *facts):
        server.ensure(host, request(**given))
    assert held(host) == {}


def test_an_address_of_another_host_is_refused(host):
    with raises(HostError, "192.0.2.1", "monitoring_address"):
        server.ensure(host, request(address="192.0.2.1"))
    assert held(host) == {}
