# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The whole plan: files that the real programs accept, targets with their labels, refusals."""

from __future__ import annotations

import json
import subprocess

import pytest
from alert_tests import promtool
from messages import raises
from monitored_sites import GROUPS, RECEIVERS, ROUTES, SETTINGS, node, site

from ansible_collections.sailloft.fleet.plugins.action.monitoring_plan import to_yaml
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.errors import MonitoringError
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import MonitoredHost
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.targets import JOBS, target_files


def written(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_the_real_programs_accept_all_files(tmp_path):
    limits = {"gpu_temperature_celsius": {"all": 85, "hot": 95}, "clock_offset_seconds": 1}
    planned = plan({**SETTINGS, "limits": limits}, site(), GROUPS)
    files = {**planned.texts, **{name: to_yaml(document) for name, document in planned.documents.items()}}
    written(tmp_path, files)
    checked = promtool("check", "config", "prometheus.yml", cwd=tmp_path)
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout
    command = ["amtool", "check-config", "alertmanager.yml"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    command = ["prometheus-blackbox-exporter", "--config.check", "--config.file", "blackbox.yml"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert {name for name in files if name.startswith("targets/")} == {
        f"targets/{job}.json"
        for job in ("node", "dcgm", "ssh", "bmc", "boot", "prometheus", "alertmanager", "blackbox")
    }


def test_a_target_has_the_labels_of_its_place():
    targets = {
        each["labels"]["instance"]: each for each in json.loads(plan({}, site(), GROUPS).texts["targets/ssh.json"])
    }
    assert list(targets) == sorted(targets)
    assert targets["node-00005"] == {
        "targets": ["10.0.0.6:22"],
        "labels": {
            "instance": "node-00005",
            "host": "node-00005",
            "role": "node",
            "rack": "rack-002",
            "unit": "1",
            "pod": "1",
            "uplinks": "leaf1",
        },
    }
    assert targets["vm1"]["labels"] == {
        "instance": "vm1",
        "host": "hv1",
        "role": "guest",
        "rack": "rack-900",
        "spare": "true",
    }
    assert (targets["leaf2"]["targets"], targets["leaf2"]["labels"]["rail"]) == (["[fd00::3]:22"], "1")
    assert targets["hv1"]["labels"]["feed"] == "a"


def test_a_change_of_one_host_changes_one_line():
    before = plan({}, site(), GROUPS)
    hosts = site()
    hosts[2] = node(3, rack="rack-007")
    after = plan({}, hosts, GROUPS)
    assert after.documents == before.documents
    for name, text in before.texts.items():
        differing = [pair for pair in zip(text.splitlines(), after.texts[name].splitlines()) if pair[0] != pair[1]]
        assert len(differing) == name.startswith("targets/") * ("node-00003" in text), name


def test_hosts_without_targets_are_named():
    lines = plan({}, [*site(), node(9, addresses={})], GROUPS).unmonitored
    assert lines == [
        "bmc: no address in the network bmc: node-00009, vm1",
        "in no group of a job: store1",
    ]


def test_jobs_of_the_site_and_dropped_ones():
    jobs = {"dcgm": {"groups": []}, "storage": {"groups": ["hot"], "port": 9999}, "node": {"interval_s": 15}}
    planned = plan({"jobs": jobs}, site(), GROUPS)
    scraped = {job["job_name"]: job for job in planned.documents["prometheus.yml"]["scrape_configs"]}
    assert "dcgm" not in scraped
    assert scraped["node"]["scrape_interval"] == "15s"
    assert json.loads(planned.texts["targets/storage.json"])[0]["targets"] == ["10.9.0.1:9999"]


def test_each_of_ten_thousand_hosts_has_its_line():
    texts = plan({}, site(10_000), GROUPS).texts
    assert texts["targets/node.json"].count("\n") == 10_006


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"rooutes": []}, ["rooutes", "routes"]),
        ({"jobs": {"node": {"gruops": []}}}, ["jobs.node", "gruops", "groups"]),
        ({"jobs": {"node": {"groups": ["gpu_node"]}}}, ["jobs.node", "gpu_node", "gpu_nodes"]),
        ({"jobs": {"own": {"groups": ["hot"]}}}, ["jobs.own", "port"]),
        ({"jobs": {"node": {"port": 0}}}, ["jobs.node", "port", "65535"]),
        ({"jobs": {True: {"port": 1}}}, ["jobs.True"]),
        ({"rules": {5: []}}, ["rules", "5"]),
        ({"limits": {"gpu_temprature_celsius": 1}}, ["limits", "gpu_temperature_celsius"]),
        ({"limits": {"gpu_temperature_celsius": 900}}, ["limits.gpu_temperature_celsius", "900", "110"]),
        ({"limits": {"gpu_temperature_celsius": {"cold": 80}}}, ["limits.gpu_temperature_celsius", "cold"]),
        ({"disabled_alerts": {"HostDwon": "x"}}, ["disabled_alerts", "HostDown"]),
        ({"disabled_alerts": {"HostDown": ""}}, ["disabled_alerts", "HostDown"]),
        ({"routes": [{"receiver": "noc"}]}, ["routes[0]", "noc"]),
        ({"receivers": RECEIVERS, "routes": ROUTES[:2]}, ["routes", "receiver"]),
        ({"receivers": RECEIVERS, "routes": [*ROUTES, {"receiver": "pager"}]}, ["routes", "2"]),
        ({"receivers": RECEIVERS, "routes": [{"receiver": "noc"}]}, ["receivers", "pager"]),
        ({"receivers": RECEIVERS, "routes": [{"receiver": "nocc"}, {"receiver": "noc"}]}, ["routes[0]", "nocc", "noc"]),
        ({"receivers": RECEIVERS, "routes": [{"receiver": "noc", "owner": ["nework"]}]}, ["routes[0]", "nework"]),
        ({"receivers": {"noc": {}}, "routes": [{"receiver": "noc"}]}, ["receivers.noc", "slack"]),
        (
            {"receivers": {"noc": {"slack": {"api_url": "https://x", "channel": "#a"}}}},
            ["receivers.noc.slack", "api_url"],
        ),
        ({"receivers": {"noc": {"slack": {"channel": "#a"}}}}, ["receivers.noc.slack", "api_url_file"]),
        ({"retention": {"raw_days": 1}}, ["retention", "raw_days", "2"]),
        ({"retention": {"raw_days": 100}}, ["retention", "coarse"]),
        ({"thanos": {"bucket": "metrics"}}, ["thanos", "endpoint"]),
        ({"thanos": {"bucket": "m", "endpoint": "s3", "sidecars": []}}, ["thanos", "bucket"]),
        ({"alertmanagers": ["mon1"]}, ["alertmanagers", "mon1"]),
        ({"site": "a b"}, ["site", "a b"]),
    ],
)
def test_wrong_settings_are_refused(settings, facts):
    with raises(MonitoringError, *facts):
        plan(settings, site(), GROUPS)


def test_two_hosts_with_one_address_are_refused():
    with raises(MonitoringError, "node-00001", "node-00002", "10.0.0.2:9100", "node"):
        plan({}, [node(1), node(2, address="10.0.0.2")], GROUPS)


def test_a_block_with_the_name_of_a_label_is_refused():
    with raises(MonitoringError, "role", "blueprint"):
        plan({}, [node(1, blocks={"role": 1})], GROUPS)


def test_an_inventory_without_a_host_to_monitor_is_refused():
    with raises(MonitoringError, "jobs"):
        plan({}, [node(1, groups=("other",))], GROUPS)


def test_leaves_and_their_hosts_have_one_label_in_any_rack_unless_sets_of_leaves_overlap():
    def label(*peers):
        hosts = [node(number, peers=tuple((leaf, 0) for leaf in leaves)) for number, leaves in enumerate(peers, 1)]
        hosts += [MonitoredHost(name, ("roce_switches",), name) for name in ("leaf1", "leaf2", "leaf3")]
        lines = json.loads(target_files(hosts, {"ssh": JOBS["ssh"]})["ssh"])
        return {line["labels"]["instance"]: line["labels"].get("uplinks") for line in lines}

    assert label(("leaf2", "leaf1"), ("leaf1", "leaf2"), ("leaf3",)) == {
        **dict.fromkeys(("node-00001", "node-00002", "leaf1", "leaf2"), "leaf1"),
        **dict.fromkeys(("node-00003", "leaf3"), "leaf3"),
    }
    assert set(label(("leaf1", "leaf2"), ("leaf1",)).values()) == {None}
