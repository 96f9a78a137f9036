# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The host's processes and interrupts leave pinned CPUs, and come back."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import parse_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import irqbalance, pinned_cpus

UNITS = ("init.scope", "system.slice", "user.slice")
OPTIONS = {"topology": None, "uri": "qemu:///system", "keep_host_off_pinned_cpus": True}


def arrange(server):
    """Give the server systemd, cgroup version 2, eight CPUs and a stopped irqbalance.

    This systemd applies drop-ins at daemon-reload, and leaves the kernel's value where there is none.
    """
    server.put("/run/systemd/system/x", "")
    server.put(f"{pinned_cpus.CGROUP}/cgroup.controllers", "cpuset cpu io memory\n")
    server.put(pinned_cpus.ONLINE, "0-7\n")
    server.put(irqbalance.PLACES[0], "")
    plain = server._systemctl

    def systemctl(argv, stdin):
        for unit in UNITS if argv[-1] == "daemon-reload" else ():
            text = server.read(pinned_cpus.drop_in(unit))
            if text:
                server.put(effective(unit), text.rpartition("=")[2])
        return plain(argv, stdin)

    server._systemctl = systemctl


def effective(unit):
    return f"/sys/fs/cgroup/{unit}/cpuset.cpus.effective"


@pytest.fixture
def with_systemd(server):
    arrange(server)
    return server


def test_processes_and_interrupts_leave_the_pinned_cpus_and_a_second_run_changes_nothing(with_systemd):
    predicted = pinned_cpus.ensure(with_systemd, [2, 3, 6, 7], check=True)
    assert with_systemd.effects == []
    outcome = pinned_cpus.ensure(with_systemd, [2, 3, 6, 7])
    assert (predicted.before, predicted.after) == (outcome.before, outcome.after)
    assert outcome.facts["pinned"] == "2-3,6-7"
    assert outcome.facts["units"] == dict.fromkeys(UNITS, "0-1,4-5")
    assert "IRQBALANCE_BANNED_CPULIST=2-3,6-7" in with_systemd.read(irqbalance.DROP_IN)
    assert "machine.slice" not in str(with_systemd.effects)
    assert not pinned_cpus.ensure(with_systemd, [2, 3, 6, 7]).changed
    # Another guest takes further CPUs.
    assert pinned_cpus.ensure(with_systemd, [2, 3, 4, 6, 7]).facts["units"] == dict.fromkeys(UNITS, "0-1,5")


def test_the_end_of_the_last_pinned_guest_gives_all_cpus_back(with_systemd):
    pinned_cpus.ensure(with_systemd, [2, 3])
    outcome = pinned_cpus.ensure(with_systemd, [])
    assert outcome.facts["units"] == dict.fromkeys(UNITS, "0-7")
    files = [pinned_cpus.drop_in(unit) for unit in UNITS] + [irqbalance.DROP_IN]
    assert [path for path in files if with_systemd.exists(path)] == []
    assert not pinned_cpus.ensure(with_systemd, []).changed


def test_limits_that_others_have_set_stay_if_no_cpu_is_pinned(with_systemd):
    with_systemd.put(effective("user.slice"), "0-3\n")
    assert not pinned_cpus.ensure(with_systemd, []).changed
    assert with_systemd.effects == []


def test_a_limit_that_is_not_in_effect_is_applied_again(with_systemd):
    pinned_cpus.ensure(with_systemd, [2, 3])
    with_systemd.put(effective("system.slice"), "0-7\n")
    outcome = pinned_cpus.ensure(with_systemd, [2, 3])
    assert outcome.before == {"CPUs of system.slice": "0-7"}
    assert with_systemd.read(effective("system.slice")) == "0-1,4-7"


def test_a_wider_limit_of_another_file_is_named(with_systemd):
    with_systemd._systemctl = lambda _argv, _stdin: ""
    with pytest.raises(HostError, match=r"init\.scope.*CPUs.*0-7"):
        pinned_cpus.ensure(with_systemd, [2, 3])


@pytest.mark.parametrize(
    ("path", "text", "pinned", "reason"),
    [
        ("/run/systemd/system", None, [2], Mentions("systemd")),
        (f"{pinned_cpus.CGROUP}/cgroup.controllers", "", [2], Mentions("2", "cgroup")),
        (f"{pinned_cpus.CGROUP}/cgroup.controllers", "cpu io\n", [2], Mentions("2", "cgroup")),
        (pinned_cpus.ONLINE, "2-3\n", [2, 3], Mentions("CPU")),
    ],
)
def test_a_host_that_cannot_have_it_is_left_alone(with_systemd, path, text, pinned, reason):
    if text is None:
        shutil.rmtree(with_systemd.path(path))
    else:
        with_systemd.put(path, text)
    outcome = pinned_cpus.ensure(with_systemd, pinned)
    assert (outcome.changed, with_systemd.effects) == (False, [])
    assert outcome.facts["not_applicable"] == reason


def test_the_option_turns_it_off_and_another_host_is_not_touched(with_systemd):
    pinned_cpus.of_options(with_systemd, OPTIONS, [2, 3])
    assert with_systemd.exists(pinned_cpus.drop_in("user.slice"))
    for other in ({"topology": {}}, {"uri": "qemu+ssh://other/system"}):
        assert not pinned_cpus.of_options(with_systemd, {**OPTIONS, **other}, []).changed
    pinned_cpus.of_options(with_systemd, {**OPTIONS, "keep_host_off_pinned_cpus": False}, [2, 3])
    assert not with_systemd.exists(pinned_cpus.drop_in("user.slice"))


def test_a_run_killed_at_any_point_is_completed_by_the_next_run(killed_anywhere):
    assert killed_anywhere(arrange, lambda server: pinned_cpus.ensure(server, [2, 3])) > 3

    def pinned_before(server):
        arrange(server)
        pinned_cpus.ensure(server, [2, 3])

    assert killed_anywhere(pinned_before, lambda server: pinned_cpus.ensure(server, [])) > 3


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_understands_the_drop_ins(with_systemd, tmp_path):
    pinned_cpus.ensure(with_systemd, [2, 3])
    for unit in ("system.slice", "user.slice"):
        shutil.copytree(os.path.dirname(with_systemd.path(pinned_cpus.drop_in(unit))), tmp_path / f"{unit}.d")
        (tmp_path / unit).write_text("[Unit]\nDescription=a copy\n")
        done = subprocess.run(
            ["systemd-analyze", "verify", unit],
            env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, "sailloft.conf" in done.stderr) == (0, False), done.stderr
    assert parse_ranges(with_systemd.read(effective("init.scope"))) == [0, 1, 4, 5, 6, 7]
