# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/gpu_hosts.yml: reboots, their order and their number at once, and servers that need no change."""

from __future__ import annotations

import json

import pytest
from fleet import Fleet, recap
from playing import ROOT

pytestmark = pytest.mark.fleet
DUE = {"needs_reboot": True}
EVERYTHING = "host and virtual machines"


def changed(output):
    return {name: counts["changed"] for name, counts in recap(output).items()}


def failed(output):
    return [name for name, counts in recap(output).items() if counts["failed"]]


def test_hosts_reboot_one_by_one_after_all_others_are_done(tmp_path):
    fleet = Fleet(tmp_path, a={}, b=DUE, c={}, d=DUE)
    status, predicted = fleet.play("--check")
    assert status == 0, predicted
    assert fleet.log() == []
    status, output = fleet.play()
    assert status == 0, output
    log = fleet.log()
    assert sorted(log[:2]) == ["a settled", "c settled"]
    assert log[2:] == ["b down", "b up", "b settled", "d down", "d up", "d settled"]
    assert changed(predicted) == changed(output) == {"a": 1, "b": 3, "c": 1, "d": 3}
    status, again = fleet.play()
    assert status == 0
    assert changed(again) == {"a": 0, "b": 0, "c": 0, "d": 0}
    assert "Could not match" not in again
    assert fleet.log() == []


GUESTS_RUN = (
    "a needs a reboot but was not rebooted, because guests run on it: db1 (process 4711); db2 (process 4711). "
    "Shut them down or move them and run again, or set gpu_host_reboot_with_guests: true for this run, which "
    "ends them. The reboot is for: the running kernel was not started with iommu=pt: reboot"
)


def test_a_host_with_guests_is_not_rebooted_and_its_guests_are_named(tmp_path):
    fleet = Fleet(tmp_path, a={**DUE, "guests": [["db1", "db2"]]}, b=DUE)
    status, output = fleet.play()
    assert status == 2
    assert failed(output) == ["a"]
    assert GUESTS_RUN in " ".join(output.split())
    assert fleet.log() == ["b down", "b up", "b settled"]
    assert fleet.state("a")["needs_reboot"]


@pytest.mark.long
def test_check_mode_names_the_guests_and_they_are_ended_only_with_permission(tmp_path):
    fleet = Fleet(tmp_path, a={**DUE, "guests": [["db1", "db2"]]})
    status, output = fleet.play("--check")
    assert status == 2
    assert GUESTS_RUN in " ".join(output.split())
    assert fleet.log() == []
    status, output = fleet.play("-e", "gpu_host_reboot_with_guests=true")
    assert status == 0, output
    assert fleet.log() == ["a down", "a up", "a settled"]


@pytest.mark.long
def test_a_guest_that_starts_before_the_reboot_is_found_and_stops_later_batches(tmp_path):
    fleet = Fleet(tmp_path, a={**DUE, "guests": [[], ["late"]], "answers_after_s": 3}, b=DUE)
    status, output = fleet.play()
    assert status == 2
    assert failed(output) == ["a"]
    assert "because guests run on it: late (process 4711)" in " ".join(output.split())
    assert fleet.log() == []
    assert fleet.state("b")["needs_reboot"]


@pytest.mark.long
def test_reboot_batches_have_the_given_size_and_stop_at_the_failure_limit(tmp_path):
    fleet = Fleet(tmp_path, a=DUE, b={**DUE, "does_not_come_up": True}, c=DUE)
    status, output = fleet.play("-e", "play_serial=2")
    assert status == 2
    assert failed(output) == ["b"]
    log = fleet.log()
    assert sorted(log[:2]) == ["a down", "b down"]
    assert "c down" not in log
    status, output = fleet.play("-e", "play_serial=2", "-e", "play_max_fail_percentage=50")
    assert status == 2
    assert "c up" in fleet.log()


@pytest.mark.long
def test_a_host_with_pending_firmware_changes_reboots_at_most_twice(tmp_path):
    fleet = Fleet(tmp_path, a={"firmware_boots": 2}, b={"firmware_boots": 3})
    status, output = fleet.play()
    assert status == 2
    assert failed(output) == ["b"]
    log = fleet.log()
    assert log[:5] == ["a down", "a up", "a down", "a up", "a settled"]
    assert log[5:] == ["b down", "b up", "b down", "b up"]
    assert "b was rebooted, but changes are still pending: firmware of 0000:14:00.0" in " ".join(output.split())


@pytest.mark.long
def test_no_host_reboots_without_permission_and_firmware_errors_stop_no_other(tmp_path):
    lacking = "nic_firmware: the firmware of 0000:14:00.0 does not know ATS_ENABLED"
    fleet = Fleet(tmp_path, a=DUE, b={"firmware_failures": [lacking]})
    status, output = fleet.play("-e", "gpu_host_reboot_ok=false")
    assert status == 2
    assert failed(output) == ["b"]
    assert sorted(fleet.log()) == ["a settled", "b settled"]
    assert "the running kernel was not started with iommu=pt: reboot" in output
    assert lacking in " ".join(output.split())


@pytest.mark.long
def test_the_role_without_the_playbook_reboots_and_settles_each_host(tmp_path):
    fleet = Fleet(tmp_path, a=DUE, b={})
    playbook = tmp_path / "play.yml"
    playbook.write_text("[{hosts: gpu_hosts, gather_facts: false, roles: [sailloft.fleet.gpu_host]}]")
    status, output = fleet.play(playbook=str(playbook))
    assert status == 0, output
    log = fleet.log()
    assert [line for line in log if line.startswith("a")] == ["a down", "a up", "a settled"]
    assert [line for line in log if line.startswith("b")] == ["b settled"]


@pytest.mark.long
def test_a_batch_size_of_0_is_refused_before_anything_is_changed(tmp_path):
    fleet = Fleet(tmp_path, a=DUE)
    status, output = fleet.play("-e", "play_serial=0")
    assert status != 0
    assert "play_serial is '0'" in " ".join(output.split())
    assert not fleet.state("a")["written"]


def test_state_absent_removes_the_settings_without_a_reboot(tmp_path):
    fleet = Fleet(tmp_path, a={"written": True, "settled": True}, b=DUE)
    status, output = fleet.play("-e", "gpu_host_state=absent")
    assert status == 0, output
    assert sorted(fleet.log()) == ["a restored", "b restored"]
    assert changed(output) == {"a": 1, "b": 0}
    assert "the running kernel keeps its arguments until the next boot: reboot" in output


def both(tmp_path):
    """Return a playbook that runs gpu_hosts and gpu_vms."""
    path = tmp_path / "both.yml"
    path.write_text(
        json.dumps([{"import_playbook": f"{ROOT}/playbooks/{name}.yml"} for name in ("gpu_hosts", "gpu_vms")])
    )
    return str(path)


def counted(output, what):
    return {name: counts[what] for name, counts in recap(output).items()}


@pytest.mark.long
def test_a_server_without_differences_is_compared_only_once(tmp_path):
    fleet = Fleet(tmp_path, a={"runs": False}, b={})
    status, output = fleet.play(playbook=both(tmp_path))
    assert status == 0, output
    assert counted(output, "changed") == {"a": 2, "b": 1}
    # Both servers were changed: their virtual machines are converged without a comparison.
    assert [fleet.compared(name) for name in "ab"] == [[EVERYTHING]] * 2
    fleet.change("b", written=False)
    assert fleet.play(playbook=both(tmp_path))[0] == 0
    # The comparison of the other host is not older than ten minutes.
    assert [fleet.compared(name) for name in "ab"] == [[EVERYTHING]] * 2
    fleet.log()

    status, output = fleet.play("-e", "gpu_host_nonesuch=1", playbook=both(tmp_path))
    assert status == 0, output
    assert counted(output, "changed") == {"a": 0, "b": 0}
    assert [fleet.compared(name) for name in "ab"] == [[EVERYTHING]] * 2
    assert fleet.log() == []
    # Only the comparison counts for each host; tasks that run once count for the first host.
    assert counted(output, "ok")["b"] == 1
    # A wrong name of a variable is reported even if no role runs.
    assert output.count("the role gpu_host has no variable gpu_host_nonesuch,") == 1

    fleet.change("b", runs=False)
    status, predicted = fleet.play("--check", playbook=both(tmp_path))
    assert status == 0, predicted
    status, output = fleet.play(playbook=both(tmp_path))
    assert status == 0, output
    assert counted(predicted, "changed") == counted(output, "changed") == {"a": 0, "b": 1}
    # gpu_host changed no server, so there is no second comparison.
    assert fleet.compared("b") == [EVERYTHING] * 2
    assert fleet.log() == []


@pytest.mark.long
def test_invalid_variables_and_unreachable_hosts_are_still_reported(tmp_path):
    fleet = Fleet(tmp_path, a={}, b={})
    assert fleet.play()[0] == 0
    fleet.log()
    for given, message in {
        "gpu_host_iommu=pt": "gpu_host_iommu is 'pt', which is not one of: passthrough, translated, unchanged",
    }.items():
        status, output = fleet.play("-e", given)
        assert status == 2
        assert message in " ".join(output.split())
        assert fleet.log() == []

    inventory = json.loads((tmp_path / "hosts.json").read_text())
    gone = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    inventory["gpu_hosts"]["hosts"]["gone"] = gone
    (tmp_path / "hosts.json").write_text(json.dumps(inventory))
    status, output = fleet.play(playbook=both(tmp_path))
    assert status == 2, output
    assert "gone cannot be reached at 127.0.0.1, port 1: ssh: connect to host 127.0.0.1 port 1" in " ".join(
        output.split()
    )
    assert counted(output, "failed") == {"a": 0, "b": 0, "gone": 1}
    assert counted(output, "changed") == {"a": 0, "b": 0, "gone": 0}
