# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The exporters of a node: their command lines, the timer, dcgm-exporter, and what an image gets."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from messages import raises
from monitoring_host import MonitoringHost

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring import dcgm
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring_host import daemons, node

EXPORTER = "prometheus-node-exporter.service"


def request(**given):
    return {
        "address": "127.0.0.1",
        "network": "",
        "arguments": [],
        "dcgm_exporter": None,
        "tls": {},
        "users": {},
        **given,
    }


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setattr(daemons, "wait", lambda daemon, runs: None)
    return MonitoringHost(tmp_path)


def ensure(host, in_image=False, check=False, **given):
    return node.ensure(host, request(**given), in_image, check, python="/usr/bin/python3")


def command(host, unit=EXPORTER):
    return host.read_bytes(f"/proc/{host.active[unit]}/cmdline").decode().rstrip("\0").split("\0")


def test_check_mode_foresees_what_a_run_changes_and_the_next_run_changes_nothing(host):
    foreseen = ensure(host, check=True)
    assert host.names("/etc/systemd/system") == []
    outcome = ensure(host)
    assert (outcome.after, outcome.facts) == (foreseen.after, foreseen.facts)
    assert not ensure(host).changed
    assert command(host)[:4] == [
        "/usr/bin/prometheus-node-exporter",
        "--web.listen-address=127.0.0.1:9100",
        "--collector.textfile.directory=/var/lib/prometheus/node-exporter",
        "--no-collector.infiniband",
    ]


def test_the_node_exporter_takes_the_arguments(host):
    ensure(host)
    done = subprocess.run([*command(host), "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_another_command_line_restarts_only_the_exporter(host):
    ensure(host)
    host.changes.clear()
    outcome = ensure(host, arguments=["--collector.systemd"])
    assert outcome.facts["restarted"] == [f"{EXPORTER}: command line: --collector.systemd"]
    assert host.changes == ["daemon-reload", f"restart {EXPORTER}"]


def test_dcgm_exporter_runs_with_our_counters_and_is_restarted_for_others(host, monkeypatch):
    ensure(host, dcgm_exporter="/opt/dcgm-exporter")
    assert command(host, node.DCGM_UNIT) == [
        "/opt/dcgm-exporter",
        "--address=127.0.0.1:9400",
        "--collectors=/etc/prometheus/dcgm-counters.csv",
    ]
    monkeypatch.setattr(dcgm, "FIELDS", dcgm.FIELDS[1:])
    host.changes.clear()
    ensure(host, dcgm_exporter="/opt/dcgm-exporter")
    assert host.changes == [f"restart {node.DCGM_UNIT}"]
    assert not ensure(host, dcgm_exporter="/opt/dcgm-exporter").changed


def test_a_new_timer_is_restarted_after_a_killed_run(host, monkeypatch):
    ensure(host)
    monkeypatch.setattr(node, "TIMER_TEXT", node.TIMER_TEXT.replace("60", "90"))
    host.killed_at = f"restart {node.TIMER}"
    with pytest.raises(KeyboardInterrupt):
        ensure(host)
    host.killed_at = ""
    host.changes.clear()
    ensure(host)
    assert host.changes == [f"restart {node.TIMER}"]
    assert not ensure(host).changed


def test_in_an_image_files_are_written_and_units_enabled_and_the_booted_node_is_as_planned(host):
    systemd = Path(host.path("/usr/lib/systemd/systemd"))
    systemd.parent.mkdir(parents=True)
    systemd.touch()
    ensure(host, in_image=True, network="10.0.0.0/16")
    assert host.changes == [f"--root=/ enable {node.TIMER}", f"--root=/ enable {EXPORTER}"]
    assert host.active == {}
    # systemd starts them at the boot.
    for unit in (node.TIMER, EXPORTER):
        host.run(["systemctl", "restart", unit])
    assert command(host)[1] == "--web.listen-address=10.0.0.7:9100"
    assert not ensure(host, network="10.0.0.0/16").changed


def test_a_node_finds_its_address_in_the_network(tmp_path):
    def run(network):
        terms = {"head": "", "python": "python3", "network": network}
        script = node.ADDRESS_TEXT.format(**terms, folder=tmp_path, environment=f"{tmp_path}/address")
        return subprocess.run(["sh"], input=script, capture_output=True, text=True, check=False)

    assert run("127.0.0.0/8").returncode == 0
    assert (tmp_path / "address").read_text() == "SAILLOFT_ADDRESS=127.0.0.1\n"
    assert run("198.51.100.0/24").returncode != 0


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"address": "node-1"}, ["node-1", "monitoring_address"]),
        ({"in_image": True}, ["image", "monitoring_node_network"]),
        ({"network": "10.0.0.1/16"}, ["network", "10.0.0.1/16"]),
        ({"network": "10.0.0.1/32"}, ["network", "10.0.0.1/32"]),
        ({"arguments": ["$(reboot)"]}, ["arguments", "reboot"]),
        ({"dcgm_exporter": "/opt/a b"}, ["dcgm_exporter", "/opt/a b"]),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(host, given, facts):
    systemd = Path(host.path("/usr/lib/systemd/systemd"))
    systemd.parent.mkdir(parents=True)
    systemd.touch()
    with raises(RequestError, *facts):
        ensure(host, **given)
    assert host.names("/etc") == []


def test_a_node_without_the_package_is_refused(host, monkeypatch):
    monkeypatch.setattr(node, "NODE_EXPORTER", "/usr/bin/nonesuch")
    with raises(HostError, "nonesuch", "prometheus-node-exporter"):
        ensure(host)


def test_arguments_of_the_site_replace_ours_of_the_same_name(host):
    ensure(host, arguments=["--collector.softnet", "--collector.ethtool.metrics-include=^none", "--no-collector.zfs"])
    flags = [argument.partition("=")[0].replace("--no-", "--") for argument in command(host)]
    assert len(flags) == len(set(flags))
    assert command(host)[-3:] == [
        "--collector.softnet",
        "--collector.ethtool.metrics-include=^none",
        "--no-collector.zfs",
    ]
