# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The health check is installed and removed with only the commands that this needs, on a node and in an image."""

from __future__ import annotations

import subprocess
import sys

import pytest
from gpu_server import KilledError, Server
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.health import install
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Expected, ExpectedDevice
from ansible_collections.sailloft.fleet.plugins.module_utils.health.round import EXPECTED_FILE
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError

EXPECTED = stored.text(
    Expected("gpu01", (ExpectedDevice("0000:1b:00.0", "gpu", "GPU 0"), ExpectedDevice("0000:3b:00.0", "gpu", "GPU 1")))
)
ALL = (
    install.CODE,
    EXPECTED_FILE,
    install.COMMAND,
    install.SERVICE_FILE,
    install.TIMER_FILE,
)


@pytest.fixture
def server(tmp_path):
    return Server(tmp_path)


def ensure(server, in_image=False, check=False, **changes):
    request = {"state": "present", "expected": EXPECTED, "interval_s": 60, **changes}
    return install.ensure(server, request, in_image, check, "/usr/bin/python3")


def commands(server):
    """Return the commands since the last call."""
    found = [*server.commands]
    server.commands.clear()
    return found


def test_check_mode_predicts_and_a_second_run_changes_nothing(server):
    predicted = ensure(server, check=True)
    assert (commands(server), server.effects) == ([], [])
    done = ensure(server)
    assert (predicted.before, predicted.after) == (done.before, done.after)
    assert set(done.after) == {*ALL, f"{install.COMMAND} executable", f"{install.TIMER} enabled"}
    assert commands(server) == [
        "systemctl daemon-reload",
        f"systemctl restart {install.TIMER}",
        f"systemctl enable {install.TIMER}",
    ]
    assert server.is_executable(install.COMMAND)
    assert not ensure(server).changed
    assert commands(server) == []


def test_a_changed_device_is_one_file_without_a_restart(server):
    ensure(server)
    commands(server)
    other = EXPECTED.replace('"GPU 1"', '"GPU 9"')
    outcome = ensure(server, expected=other)
    assert list(outcome.after) == [EXPECTED_FILE]
    old, new = outcome.before[EXPECTED_FILE].splitlines(), outcome.after[EXPECTED_FILE].splitlines()
    assert [line for line in new if line not in old] == [line for line in new if "GPU 9" in line]
    assert commands(server) == []


def test_another_interval_restarts_the_timer(server):
    ensure(server)
    commands(server)
    assert set(ensure(server, interval_s=30).after) == {install.SERVICE_FILE, install.TIMER_FILE}
    assert commands(server) == ["systemctl daemon-reload", f"systemctl restart {install.TIMER}"]


def test_a_timer_that_somebody_stopped_is_started_again(server):
    ensure(server)
    server.running.clear()
    commands(server)
    assert list(ensure(server, check=True).after) == [f"{install.TIMER} running"]
    assert list(ensure(server).after) == [f"{install.TIMER} running"]
    assert commands(server) == ["systemctl daemon-reload", f"systemctl restart {install.TIMER}"]
    assert not ensure(server).changed


def test_without_expected_the_file_is_left_as_it_is(server):
    ensure(server)
    assert not ensure(server, expected=None).changed
    assert server.read_bytes(EXPECTED_FILE) == EXPECTED.encode()


def test_in_an_image_the_timer_is_only_enabled(server):
    server.put("/lib/systemd/systemd", "")
    ensure(server, in_image=True, expected=None)
    assert commands(server) == [f"systemctl --root=/ enable {install.TIMER}"]
    assert not server.exists(EXPECTED_FILE)
    assert not ensure(server, in_image=True, expected=None).changed


def test_removal_leaves_only_the_state(server):
    assert not ensure(server, state="absent").changed
    ensure(server)
    server.put("/var/lib/sailloft-health/state.json", "{}")
    commands(server)
    predicted = ensure(server, state="absent", check=True)
    assert commands(server) == []
    done = ensure(server, state="absent")
    assert (predicted.before, predicted.after) == (done.before, done.after)
    assert commands(server) == [f"systemctl disable --now {install.TIMER}", "systemctl daemon-reload"]
    assert not any(map(server.exists, ALL))
    assert server.exists("/var/lib/sailloft-health/state.json")
    assert not ensure(server, state="absent").changed


@pytest.mark.parametrize("interval_s", [0, 9, 3601])
def test_an_interval_that_makes_no_sense_is_refused(server, interval_s):
    with raises(RequestError, "interval_s", interval_s):
        ensure(server, interval_s=interval_s)
    assert server.effects == []


@pytest.mark.parametrize("expected", ["{", '{"format": "x"}'])
def test_a_damaged_expectation_is_refused(server, expected):
    with raises(RequestError, "expected"):
        ensure(server, expected=expected)
    assert server.effects == []


def test_an_install_that_was_killed_is_completed_by_the_next(tmp_path):
    whole = Server(tmp_path / "whole")
    ensure(whole)
    for number in range(len(whole.effects)):
        server = Server(tmp_path / str(number))
        server.kill_at = number
        with pytest.raises(KilledError):
            ensure(server)
        server.kill_at = None
        ensure(server)
        assert server.state() == whole.state()
        assert not ensure(server).changed


def test_systemd_is_needed(server):
    with raises(HostError, "node_health", "systemd"):
        ensure(server, in_image=True)


def test_a_round_leaves_a_process_behind_that_cannot_be_killed():
    files = install.files({"interval_s": 60, "expected": EXPECTED}, sys.executable)
    text = files[install.SERVICE_FILE].decode()
    assert "KillMode=process" in text
    assert f"ExecStart={sys.executable} {install.CODE} round --period 60" in text
    assert "OnUnitActiveSec=60" in files[install.TIMER_FILE].decode()


def test_the_code_runs_by_itself(tmp_path):
    """The zip has all that it imports: the command prints its help with Python alone."""
    code = tmp_path / "health.pyz"
    code.write_bytes(install.files({"interval_s": 60, "expected": None}, "python3")[install.CODE])
    run = subprocess.run([sys.executable, "-I", code, "--help"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert "sailloft-health" in run.stdout
