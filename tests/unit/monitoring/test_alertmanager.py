# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The real Alertmanager with the planned inhibitions and routes."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request

import pytest
from ansible.module_utils.urls import open_url
from monitored_sites import GROUPS, SETTINGS, site

from ansible_collections.sailloft.fleet.plugins.action.monitoring_plan import to_yaml
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alertmanager import INHIBITIONS
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.alerts.table import ALERTS
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import FEED, RACK, SITE
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.silences import RESTARTED, SilenceApi, silence


def posted(name, **labels):
    alert = ALERTS[name]
    own = {"alertname": name, "severity": alert.severity, "owner": alert.owner, "level": alert.level}
    return {"labels": {**own, **labels}}


N1 = {"instance": "n1", "host": "n1", "rack": "r1"}
N2 = {"instance": "n2", "host": "n2", "rack": "r1", "feed": "a"}
OTHER = {"instance": "n9", "host": "n9", "rack": "r9"}
GUEST_OF_N1 = {"instance": "vm1", "host": "n1", "rack": "r1"}
GROUP = {"uplinks": "leaf1"}
LEAF = {"instance": "leaf1", "host": "leaf1", **GROUP}


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory):
    """Start Alertmanager, and return a function that posts alerts and returns the receivers of those not hidden."""
    folder = tmp_path_factory.mktemp("alertmanager")
    routing = plan(SETTINGS, site(), GROUPS).documents["alertmanager.yml"]
    (folder / "alertmanager.yml").write_text(to_yaml(routing))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = [f"--web.listen-address={address}", "--cluster.listen-address=", f"--storage.path={folder}/data"]
    command = ["prometheus-alertmanager", "--config.file=alertmanager.yml", *options]
    with open(folder / "log", "wb") as log, subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as process:

        def ask(alerts=None, path="alerts"):
            request = urllib.request.Request(
                f"http://{address}/api/v2/{path}", headers={"Content-Type": "application/json"}
            )
            if alerts is not None:
                request.data = json.dumps(alerts).encode()
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.loads(answer.read() or b"null")

        end = time.monotonic() + 60
        while True:
            try:
                ask()
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

        def visible(alerts, shown):
            ask([*alerts])
            # The inhibitor learns of an alert some time after Alertmanager has taken it, which nothing tells.
            end = time.monotonic() + 20
            is_repeated = False
            while (seen := receivers(alerts)) != shown or not is_repeated:
                if time.monotonic() > end:
                    break
                is_repeated = seen == shown
                time.sleep(0.1)
            ask([{**alert, "endsAt": "2020-01-01T00:00:00Z"} for alert in alerts])
            return seen

        def receivers(alerts):
            """Return the receivers of those alerts that are not inhibited."""
            names = {(alert["labels"]["alertname"], alert["labels"].get("instance")) for alert in alerts}
            return {
                alert["labels"]["alertname"]: alert["receivers"][0]["name"]
                for alert in ask()
                if (alert["labels"]["alertname"], alert["labels"].get("instance")) in names
                and not alert["status"]["inhibitedBy"]
                and alert["status"]["state"] != "unprocessed"
            }

        visible.ask, visible.url = ask, f"http://{address}"
        yield visible
        process.terminate()


CASES = {
    "rack": ([posted("RackDown", rack="r1"), posted("HostDown", **N1), posted("GpuXid", **N1)], {"RackDown": "pager"}),
    "other rack": (
        [posted("RackDown", rack="r1"), posted("HostDown", **OTHER)],
        {"RackDown": "pager", "HostDown": "pager"},
    ),
    "feed": (
        [posted("FeedDown", feed="a"), posted("RackDown", rack="r1", feed="a"), posted("PortDown", **N2)],
        {"FeedDown": "pager"},
    ),
    "guest": (
        [posted("HostDown", **N1), posted("GuestDown", **GUEST_OF_N1), posted("PortDown", **GUEST_OF_N1)],
        {"HostDown": "pager"},
    ),
    "gpu": (
        [posted("GpuLost", **N1), posted("GpuXid", **N1), posted("PortDown", **N1)],
        {"GpuLost": "pager", "PortDown": "mail"},
    ),
    "switch": (
        [posted("SwitchDown", **{**N1, "instance": "leaf1", "host": "leaf1"}), posted("PortDown", **N1)],
        {"SwitchDown": "pager"},
    ),
    "leaf of two racks": (
        [
            posted("SwitchDown", **LEAF, rack="r1"),
            posted("RackPortsDown", place="mlx5_0/1", **GROUP),
            posted("PortDown", **OTHER, **GROUP, place="mlx5_0/1"),
            posted("PauseStorm", **N1, **GROUP, place="mlx5_1/1"),
        ],
        {"SwitchDown": "pager", "PauseStorm": "mail"},
    ),
    "ports of one leaf": (
        [
            posted("RackPortsDown", place="mlx5_0/1", **GROUP),
            posted("PortDown", **OTHER, **GROUP, place="mlx5_0/1"),
            posted("PortDown", **N1, **GROUP, place="mlx5_1/1"),
        ],
        {"RackPortsDown": "mail", "PortDown": "mail"},
    ),
    "switch without a rack": (
        [posted("SwitchDown", instance="core1", host="core1"), posted("PortDown", instance="n5", host="n5")],
        {"SwitchDown": "pager", "PortDown": "mail"},
    ),
    "site": (
        [posted("SiteUnreachable"), posted("RackDown", rack="r1"), posted("RuleFails", instance="mon1")],
        {"SiteUnreachable": "pager", "RuleFails": "pager"},
    ),
    "alone": ([posted("GpuXid", **N1)], {"GpuXid": "noc"}),
}


@pytest.mark.parametrize(("alerts", "shown"), CASES.values(), ids=CASES)
def test_outer_alerts_hide_inner_ones(alertmanager, alerts, shown):
    assert alertmanager(alerts, shown) == shown


def test_an_alert_that_hides_others_does_not_fire_after_them():
    # Series of a host that is down end with it, and so do the alerts of its parts.
    for level in (SITE, FEED, RACK):
        latest = max(alert.minutes for alert in ALERTS.values() if alert.hides and alert.level == level)
        (hidden,) = [each.hidden for each in INHIBITIONS if each.level == level]
        inner = [alert for alert in ALERTS.values() if alert.level in hidden and alert.minutes]
        assert [alert.name for alert in inner if alert.minutes < latest] == []


def test_each_level_that_hides_others_has_an_alert():
    assert {each.level for each in INHIBITIONS} == {alert.level for alert in ALERTS.values() if alert.hides}


def test_a_run_silences_its_hosts_and_after_a_restart_only_the_news_of_it(alertmanager):
    alerts = [posted("HostDown", **N1), posted("GuestDown", **GUEST_OF_N1), posted("HostRestarted", **N1)]
    alerts += [posted("HostDown", **OTHER), posted("HostRestarted", **OTHER)]
    shown = {"HostDown", "HostRestarted"}
    api = SilenceApi(["http://127.0.0.1:1", alertmanager.url], open_url)

    def audible():
        alertmanager.ask(alerts)
        loud = {"n1": set(), "n9": set()}
        for alert in alertmanager.ask():
            status = alert["status"]
            if not status["silencedBy"] and not status["inhibitedBy"] and alert["labels"]["host"] in loud:
                loud[alert["labels"]["host"]].add(alert["labels"]["alertname"])
        return loud

    def until(expected):
        end = time.monotonic() + 60
        while audible() != expected and time.monotonic() < end:
            time.sleep(0.05)
        assert audible() == expected

    silenced = api.create(silence(["n1"], "n1 is rebooted", time.time(), 600))
    until({"n1": set(), "n9": shown})
    (made,) = [each for each in alertmanager.ask(path="silences") if each["id"] == silenced]
    assert (made["createdBy"], made["comment"], made["status"]["state"]) == ("sailloft", "n1 is rebooted", "active")
    api.create(silence(["n1"], "n1 was rebooted", time.time(), 600, RESTARTED))
    api.expire(silenced)
    until({"n1": {"HostDown"}, "n9": shown})
    api.expire(silenced)
