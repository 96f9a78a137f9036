# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The subnet manager of a host gets its files; tests/infiniband does the same with the real opensm."""

from __future__ import annotations

import contextlib
from functools import partial

import ib_sites
import pytest
from manager_host import OTHER, UNIT, ManagerHost
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager import converge as manager
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.converge import converge

SITE, GUIDS = ib_sites.small()
SETTINGS = {"managers": ["node-1 mlx5_0", "node-3 mlx5_0"], "options": {"log_file": "/var/log/o.log"}}
MASTER, STANDBY = "Entering MASTER state\nSUBNET UP\n", "Entering STANDBY state\n"


def options(guids=GUIDS, **others):
    settings = {**SETTINGS, **{name: value for name, value in others.items() if name in ("routing", "partitions")}}
    return {
        "fabric": "compute",
        "files": plan(SITE, "compute", settings, guids).files,
        "config": f"opensm-{others.get('host', 'node-1')}.conf",
        "directory": "/etc/opensm",
        "restart": others.get("restart", False),
        "limit_s": 0,
    }


@pytest.fixture
def host(tmp_path):
    """A host whose opensm becomes master when it starts, and sweeps when it gets HUP."""
    log = tmp_path / "var/log/o.log"
    log.parent.mkdir(parents=True)
    host = ManagerHost(tmp_path, lambda: tell(host.becomes), lambda: None, lambda: tell(host.sweeps))
    host.becomes, host.sweeps = MASTER, "SUBNET UP\n"

    def tell(text):
        with log.open("a") as stream:
            stream.write(text)

    return host


def changes(host, *arguments, **options):
    """Return the calls of systemctl of a convergence, and its outcome."""
    host.changes.clear()
    outcome = converge(host, *arguments, **options)
    return list(host.changes), outcome


PARTITIONS = {"a": {"pkey": 1, "members": {"node-1": "full"}}}


def test_two_fabrics_of_one_host_have_nothing_in_common(host, tmp_path):
    """Compute and storage: a manager each, bound to the GUID of its own port."""
    fabrics = {"compute": GUIDS, "storage": {**GUIDS, "node-1": {**GUIDS["node-1"], "mlx5_0": "0x1"}}}
    given = {
        name: {**options(guids), "fabric": name, "directory": f"/etc/opensm/{name}"} for name, guids in fabrics.items()
    }
    for one in given.values():
        assert converge(host, one).facts["manager"] == "master"
    assert sorted(host.active) == [f"sailloft-opensm-{name}.service" for name in fabrics]
    assert [converge(host, one).changed for one in given.values()] == [False, False]
    confs = [(tmp_path / f"etc/opensm/{name}/opensm.conf").read_text() for name in fabrics]
    assert confs[0] != confs[1]
    assert "guid 0x0000000000000001\n" in confs[1]


def test_a_new_host_gets_files_and_service_and_then_nothing_more(host, tmp_path):
    predicted = converge(host, options(), True)
    assert not (tmp_path / "etc").exists()
    calls, outcome = changes(host, options())
    assert (calls, outcome.facts) == (
        ["daemon-reload", f"enable {UNIT}", f"start {UNIT}"],
        {"needs_restart": [], "manager": "master"},
    )
    assert (predicted.before, predicted.after) == (outcome.before, outcome.after)
    files = {file.name: file.read_text() for file in (tmp_path / "etc/opensm").iterdir()}
    assert set(files) == {"opensm.conf", "partitions.conf", "root_guids.conf", "node_names"}
    assert files["opensm.conf"] == options()["files"]["opensm-node-1.conf"]
    calls, outcome = changes(host, options())
    assert (calls, outcome.changed, outcome.facts["manager"]) == ([], False, "master")


def test_the_service_of_the_distribution_is_stopped_for_good(host):
    for name in (OTHER, "opensmd.service"):
        host.enabled.add(name)
        host.active.add(name)
    calls, outcome = changes(host, options())
    assert calls == [
        "daemon-reload",
        f"mask --now {OTHER}",
        "mask --now opensmd.service",
        f"enable {UNIT}",
        f"start {UNIT}",
    ]
    assert outcome.before[OTHER] == "enabled, running"
    assert not changes(host, options())[1].changed


def test_the_files_of_the_distribution_are_the_other_side_of_the_difference(host, tmp_path):
    (tmp_path / "etc/rdma").mkdir(parents=True)
    (tmp_path / "etc/rdma/opensm.conf").write_text("sm_priority 3\n")
    outcome = converge(host, {**options(), "directory": "/etc/opensm/compute"}, True)
    assert outcome.before["/etc/opensm/compute/opensm.conf"] == "sm_priority 3\n"
    assert outcome.before["/etc/opensm/compute/partitions.conf"] is None


def test_partitions_are_read_again_without_a_restart(host):
    converge(host, options())
    calls, outcome = changes(host, options(partitions=PARTITIONS))
    assert calls == [f"reload {UNIT}"]
    assert [name.rpartition("/")[2] for name in outcome.after] == ["partitions.conf"]
    assert outcome.facts["needs_restart"] == []


def test_a_standby_reads_its_files_again_and_sweeps_nothing(host):
    host.becomes, host.sweeps = STANDBY, ""
    converge(host, options(host="node-3"))
    calls, outcome = changes(host, options(host="node-3", partitions=PARTITIONS))
    assert (calls, outcome.facts["manager"]) == ([f"reload {UNIT}"], "standby")


def test_the_first_manager_is_waited_for_until_it_is_master(host):
    host.becomes = STANDBY
    with raises(HostError, UNIT, "master", "other subnet managers"):
        converge(host, options())


def test_what_opensm_takes_only_at_its_start_waits_for_a_restart_that_is_allowed(host):
    converge(host, options())
    calls, outcome = changes(host, options(routing=["updn"]))
    assert (calls, outcome.facts["needs_restart"]) == ([f"reload {UNIT}"], ["routing_engine"])
    # The files are as planned, but opensm has the other engine.
    calls, outcome = changes(host, options(routing=["updn"]))
    assert (calls, outcome.changed, outcome.facts["needs_restart"]) == ([], False, ["routing_engine"])
    assert converge(host, options(routing=["updn"], restart=True), True).changed
    calls, outcome = changes(host, options(routing=["updn"], restart=True))
    assert (calls, outcome.changed, outcome.facts["needs_restart"]) == ([f"restart {UNIT}"], True, [])
    assert not changes(host, options(routing=["updn"], restart=True))[1].changed


def test_new_names_of_switches_wait_for_a_restart(host):
    converge(host, options())
    guids = {**GUIDS, "leaf-1-1": "0x0000000000777777"}
    assert changes(host, options(guids))[1].facts["needs_restart"] == ["node_names"]


def test_an_opensm_that_refuses_the_partitions_fails_at_once(host):
    converge(host, options())
    host.sweeps = "osm_prtn_config_parse_file: PARSE ERROR: line 7: bad PKey\nSUBNET UP\n"
    with raises(HostError, UNIT, "partitions.conf", "line 7"):
        converge(host, options(partitions=PARTITIONS))


def test_an_opensm_that_does_nothing_fails(host):
    host.becomes = "Entering DISCOVERING state\n"
    with raises(HostError, UNIT, "0 s", "journalctl"):
        converge(host, options())


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"fabric": "a b"}, ("'a b'",)),
        ({"files": {"../x": ""}}, ("'../x'",)),
        ({"files": {"opensm-node-1.conf": 1}}, ("opensm-node-1.conf",)),
        ({"config": "opensm-node-9.conf"}, ("opensm-node-9.conf",)),
        (
            {"files": plan(SITE, "compute", SETTINGS, {}).files},
            ("opensm-node-1.conf", "GUID", "first port"),
        ),
    ],
)
def test_files_that_opensm_must_not_get_are_refused(host, change, facts, tmp_path):
    with raises(HostError, *facts):
        converge(host, {**options(), **change})
    assert not (tmp_path / "etc").exists()


def test_predictions_of_a_running_manager_change_nothing(host):
    converge(host, options())
    calls, outcome = changes(host, options(partitions=PARTITIONS), check=True)
    assert (calls, outcome.changed) == ([], True)


def kill_after(host, monkeypatch, number):
    """Let the host be killed after so many calls that change something."""
    left = [number]

    def counted(was, *arguments, **more):
        if arguments[0][:2] != ["systemctl", "show"]:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
        return was(*arguments, **more)

    for name in ("replace", "run"):
        monkeypatch.setattr(host, name, partial(counted, getattr(host, name)))


@pytest.mark.parametrize("number", range(5))
def test_a_run_that_was_killed_at_any_call_is_made_up_for_by_the_next_one(host, tmp_path, monkeypatch, number):
    converge(host, options())
    read, hup = [], host.hup
    host.hup = lambda: (read.append((tmp_path / "etc/opensm/partitions.conf").read_text()), hup())
    with monkeypatch.context() as killed:
        kill_after(host, killed, number)
        # All calls are three: the mark, the file, the reload.
        with contextlib.suppress(KeyboardInterrupt):
            converge(host, options(partitions=PARTITIONS))
    converge(host, options(partitions=PARTITIONS))
    assert "0x0001" in read[-1]
    assert not converge(host, options(partitions=PARTITIONS)).changed


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("number", range(4))
def test_a_new_unit_is_made_up_for_too(host, monkeypatch, number, restart):
    with monkeypatch.context() as older:
        older.setattr(manager, "UNIT", manager.UNIT.replace("RestartSec=5", "RestartSec=9"))
        converge(host, options())
    with monkeypatch.context() as killed:
        kill_after(host, killed, number)
        # All calls are three: the unit, daemon-reload, the restart where it is allowed.
        with contextlib.suppress(KeyboardInterrupt):
            converge(host, options(restart=True))
    outcome = converge(host, options(restart=restart))
    assert "RestartSec=5" in host.loaded[UNIT]
    is_restarted = restart or number > 2
    assert outcome.facts["needs_restart"] == ([] if is_restarted else ["the unit"])
    assert not converge(host, options(restart=restart)).changed


def test_partitions_that_opensm_refused_fail_again_in_the_next_run(host):
    converge(host, options())
    host.sweeps = "PARSE ERROR in partitions\nSUBNET UP\n"
    for _run in range(2):
        with raises(HostError, "partitions"):
            converge(host, options(partitions=PARTITIONS))
