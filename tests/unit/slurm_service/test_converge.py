# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Slurm on a host: files, units, restarts, the gate of new nodes, killed runs. systemd and scontrol are simulated."""

from __future__ import annotations

import os
import subprocess

import pytest
from messages import Mentions, raises
from recorded_nodes import RECORDED

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler import files as names
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.slurm_service import containers
from ansible_collections.sailloft.fleet.plugins.module_utils.slurm_service.converge import PENDING, converge
from ansible_collections.sailloft.fleet.plugins.module_utils.slurm_service.release import release

AWS = RECORDED["aws-g4dn-metal"]
SLURMD_C = "NodeName=n CPUs=96 Boards=1 SocketsPerBoard=2 CoresPerSocket=24 ThreadsPerCore=2 RealMemory=386583\n"


class KilledError(Exception):
    """The end of a run at a call."""


class SlurmHost(System):
    """A host with Debian's units. ``calls`` are those that change something; ``dies_at`` one that ends the run."""

    def __init__(self, root) -> None:
        super().__init__(str(root))
        self.units = {"slurmctld.service": [False, False], "slurmd.service": [False, False]}
        self.calls, self.dies_at, self.conf_at_start, self.shown = [], "", [], ""
        self.pinged = "Slurmctld(primary) at c1 is UP\n"
        (root / "run/systemd/system").mkdir(parents=True)
        (root / "usr/sbin").mkdir(parents=True)
        (root / "usr/sbin/slurmd").touch()
        (root / "usr/lib/systemd/system").mkdir(parents=True)
        (root / "usr/lib/systemd/systemd").touch()
        for name in ("slurmctld", "slurmd"):
            unit = root / f"usr/lib/systemd/system/{name}.service"
            unit.write_text(f"[Service]\nExecStart=/usr/sbin/{name} -D -s $SLURM_OPTIONS\n")

    def run(self, argv, stdin=None, timeout_s=None) -> str:
        if argv == ["/usr/sbin/slurmd", "-C"]:
            return SLURMD_C
        if argv[:2] == ["scontrol", "ping"]:
            return self.pinged
        if argv[:2] == ["scontrol", "show"]:
            if not self.shown:
                raise HostError("scontrol found no configuration")
            return self.shown
        unit = self.units.get(argv[-1])
        if argv[:2] == ["systemctl", "show"]:
            states = "enabled" if unit[0] else "disabled", "active" if unit[1] else "inactive"
            return "UnitFileState={}\nActiveState={}\n".format(*states)
        call = " ".join(argv)
        if self.dies_at and self.dies_at in call:
            raise KilledError
        self.calls.append(call)
        if "enable" in argv:
            unit[0] = True
        if argv[1] in ("start", "restart"):
            unit[1] = True
            self.conf_at_start.append((self.read_bytes("/etc/slurm/slurm.conf") or b"").decode())
        return ""


def controller(nodes=("a1", "a2"), primary=True, **settings):
    data = {"controllers": ["c1"], "partitions": [{"name": "p", "groups": ["n"]}], **settings}
    files = plan(data, {"n": list(nodes)}, dict.fromkeys(nodes, AWS)).files
    return {"part": "controller", "files": files, "primary": primary, "limit_s": 0, "now": True}


NO_CONTAINERS = {"directory": "", "prolog": "", "epilog": ""}


def node(now=True, key="1", **hardware):
    made = plan({"controllers": ["c1"], "partitions": [{"name": "p", "groups": ["n"]}]}, {"n": ["a1"]}, {"a1": AWS})
    planned = {**made.nodes["a1"].to_dict(), **hardware}
    return {
        "part": "node",
        "controllers": ["c1", "c2"],
        "hardware": planned,
        "restart_key": key,
        "now": now,
        "containers": NO_CONTAINERS,
    }


def calls(host, options, check=False):
    host.calls.clear()
    outcome = converge(host, options, check)
    return host.calls, outcome


@pytest.fixture
def host(tmp_path):
    return SlurmHost(tmp_path)


def test_a_controller_starts_with_all_nodes_behind_the_gate_and_a_second_run_changes_nothing(host):
    before = calls(host, controller(), check=True)
    assert (before[0], before[1].changed) == ([], True)
    done, outcome = calls(host, controller())
    assert done == ["systemctl enable slurmctld.service", "systemctl start slurmctld.service", "scontrol reconfigure"]
    assert outcome.after == before[1].after
    assert "DownNodes=a[1-2] State=DRAIN" in host.conf_at_start[0]
    assert "DownNodes" not in host.read("/etc/slurm/slurm.conf")
    assert calls(host, controller()) == ([], calls(host, controller())[1])
    assert not calls(host, controller())[1].changed


def test_the_program_that_reimages_nodes_is_executable_on_controllers(host):
    options = controller(reimage_command=["reimage"])
    converge(host, options)
    program = host.path("/usr/lib/sailloft/slurm-reimage")
    os.chmod(program, 0o644)
    assert calls(host, options)[1].changed
    assert os.access(program, os.X_OK)
    assert not calls(host, options)[1].changed


def test_only_what_slurm_takes_at_its_start_restarts_it(host):
    converge(host, controller())
    assert calls(host, controller(options={"MaxArraySize": 99}))[0] == ["scontrol reconfigure"]
    done, outcome = calls(host, controller(["a1", "a2", "a3"]))
    assert outcome.facts["restarts"] == ["nodes", "gres.conf"]
    assert done == ["systemctl restart slurmctld.service", "scontrol reconfigure"]
    assert "DownNodes=a3 State=DRAIN" in host.conf_at_start[-1]


def test_a_standby_reads_its_files_only_when_it_starts(host):
    converge(host, controller(primary=False))
    assert "DownNodes" not in host.conf_at_start[0]
    done, _outcome = calls(host, controller(primary=False, options={"MaxArraySize": 99}))
    assert done == ["systemctl restart slurmctld.service"]


def test_the_gate_stays_until_the_primary_answers_whatever_its_standby_says(host):
    host.pinged = "Slurmctld(primary) at c1 is DOWN\nSlurmctld(backup) at c2 is UP\n"
    with raises(HostError, "c1 is DOWN"):
        converge(host, controller())
    assert "DownNodes" in host.read("/etc/slurm/slurm.conf")


@pytest.mark.parametrize("dies_at", ["enable", "start", "reconfigure"])
def test_the_next_run_completes_a_killed_first_one(host, dies_at):
    host.dies_at = dies_at
    with pytest.raises(KilledError):
        converge(host, controller())
    host.dies_at = ""
    assert calls(host, controller())[1].changed
    assert host.units["slurmctld.service"] == [True, True]
    assert "DownNodes=a[1-2]" in host.conf_at_start[0]
    assert "DownNodes" not in host.read("/etc/slurm/slurm.conf")
    assert not host.exists(PENDING)
    assert not calls(host, controller())[1].changed


@pytest.mark.parametrize("dies_at", ["restart", "reconfigure"])
def test_the_next_run_completes_a_killed_change(host, dies_at):
    converge(host, controller())
    changed = controller(["a1"], options={"SlurmdPort": 7})
    host.dies_at = dies_at
    with pytest.raises(KilledError):
        converge(host, changed)
    host.dies_at = ""
    done, _outcome = calls(host, changed)
    assert done == ["systemctl restart slurmctld.service", "scontrol reconfigure"]
    assert not calls(host, changed)[1].changed


def test_a_topology_that_would_hide_the_planned_one_is_removed(host):
    converge(host, controller())
    host.replace("/etc/slurm/topology.yaml", b"x")
    assert calls(host, controller())[1].after == {"/etc/slurm/topology.yaml": None}
    assert not host.exists("/etc/slurm/topology.yaml")


def test_a_node_fetches_its_files_and_says_how_it_differs(host):
    outcome = calls(host, node())[1]
    assert host.units["slurmd.service"] == [True, True]
    assert outcome.facts["mismatches"] == []
    drop_in = host.read("/etc/systemd/system/slurmd.service.d/sailloft.conf").splitlines()
    assert 'Environment="SLURMD_OPTIONS=--conf-server c1,c2"' in drop_in
    assert "ConditionPathExists=" in drop_in
    assert host.is_executable("/usr/lib/sailloft/slurm-health")
    assert calls(host, node())[0] == []
    assert calls(host, node(key="2"))[0] == ["systemctl daemon-reload", "systemctl restart slurmd.service"]
    assert converge(host, node(key="2", sockets=4)).facts["mismatches"] == [Mentions("Sockets", "2", "4")]


def test_a_killed_restart_of_slurmd_is_made_by_the_next_run(host):
    converge(host, node())
    host.dies_at = "restart"
    with pytest.raises(KilledError):
        converge(host, node(key="2"))
    host.dies_at = ""
    assert "systemctl restart slurmd.service" in calls(host, node(key="2"))[0]
    assert not converge(host, node(key="2")).changed


def test_in_an_image_slurmd_is_only_enabled(host):
    assert calls(host, node(now=False))[0] == ["systemctl --root=/ enable slurmd.service"]
    assert not host.exists(PENDING)


def test_a_node_with_containers_has_their_programs_before_slurmd_needs_them(host):
    converge(host, node())
    wanted = {**node(), "containers": {"directory": "/scratch/c", "prolog": "/opt/p", "epilog": ""}}
    before = calls(host, wanted, check=True)
    assert (before[0], host.exists(containers.CODE)) == ([], False)
    host.dies_at = "systemctl"
    with pytest.raises(KilledError):
        converge(host, wanted)
    assert all(host.is_executable(program) for program in containers.PROGRAMS)
    host.dies_at = ""
    converge(host, wanted)
    assert not converge(host, wanted).changed
    assert "exec /opt/p" in host.read("/usr/lib/sailloft/slurm-prolog")
    drop_in = host.read("/etc/systemd/system/slurmd.service.d/sailloft.conf").splitlines()
    assert "RequiresMountsFor=/scratch/c" in drop_in
    os.chmod(host.path("/usr/bin/sailloft-container"), 0o644)
    assert converge(host, wanted, True).changed
    assert converge(host, wanted).changed
    assert not converge(host, wanted).changed
    # Without the directory they are gone, except what slurm.conf may name.
    converge(host, node())
    assert not any(host.exists(path) for path in (containers.CODE, containers.COMMAND))
    assert not converge(host, node()).changed


def test_every_node_has_a_prolog_and_an_epilog_so_that_no_order_of_runs_drains_it(host):
    for program in ("", "/bin/false"):
        converge(host, {**node(), "containers": {"directory": "", "prolog": program, "epilog": program}})
        for path in (names.PROLOG_PROGRAM, names.EPILOG_PROGRAM):
            assert subprocess.run([host.path(path)], env={}, check=False).returncode == bool(program)


@pytest.mark.parametrize("directory", ["scratch", "/scratch/a b", "/", "/scratch/../x"])
def test_a_wrong_directory_of_containers_is_refused(host, directory):
    with pytest.raises(HostError):
        converge(host, {**node(), "containers": {"directory": directory, "prolog": "", "epilog": ""}})
    assert not host.exists("/usr/lib/sailloft")


def test_a_daemon_of_another_name_is_refused(host, tmp_path):
    unit = tmp_path / "usr/lib/systemd/system/slurmd.service"
    unit.write_text("[Service]\nExecStart=/usr/sbin/slurmd-wlm -D\n")
    with raises(HostError, "slurmd.service", "slurmd-wlm", "GPUs"):
        converge(host, node())
    unit.unlink()
    with raises(HostError, "slurmd.service", "installed"):
        converge(host, node())
    assert converge(host, node(), True).changed


def test_a_login_host_has_slurm_conf_only(host):
    options = {**controller(), "part": "login"}
    assert list(calls(host, options)[1].after) == ["/etc/slurm/slurm.conf"]
    assert not converge(host, options).changed
    with raises(HostError, "slurm.conf"):
        converge(host, {**options, "files": {}})
    with raises(HostError, "controllers"):
        converge(host, {**node(), "controllers": []})


def test_proved_nodes_are_released(host):
    host.shown = (
        "NodeName=a1 State=IDLE+DRAIN Reason=sailloft-gate: not proved yet [root@now]\n"
        "NodeName=a2 State=IDLE+DRAIN Reason=ticket 7 [root@now]\n"
    )
    options = {"proved": ["a1", "a2"], "spares": []}
    expected = release(host, options, True)
    assert host.calls == []
    outcome = release(host, options)
    assert host.calls == ["scontrol update NodeName=a1 State=RESUME"]
    assert outcome == expected
    assert outcome.facts["out"] == [Mentions("a2", "ticket 7")]
    host.shown = "error"
    with raises(HostError, "scontrol"):
        release(host, options)


def test_the_first_run_in_check_mode_has_no_slurmctld_to_ask(host):
    options = {"proved": [], "spares": []}
    outcome = release(host, options, True)
    assert (outcome.changed, outcome.facts["out"]) == (False, [Mentions("not known", "scontrol")])
    with raises(HostError, "scontrol"):
        release(host, options)
