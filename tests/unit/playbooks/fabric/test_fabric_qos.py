# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/fabric_qos.yml and fabric_restore.yml on two simulated leaves."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from playing import ansible_playbook
from simulated_fabric import LOSSLESS, LOSSY, SWITCHES

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import backups

pytestmark = pytest.mark.fleet


def settings(tree: Any) -> Any:
    """Return an NVUE tree without empty nodes, which set nothing."""
    if not isinstance(tree, dict):
        return tree
    found = {key: settings(value) for key, value in tree.items()}
    return {key: value for key, value in found.items() if value != {}}


def changed(output: str) -> dict[str, int]:
    return {name: int(count) for name, count in re.findall(r"^(\w+) +: ok=\d+ +changed=(\d+)", output, re.M)}


def test_check_mode_predicts_the_changes_and_changes_nothing(fabric):
    fabric.apply(LOSSLESS, "leaf2")
    before = fabric.sonic(), copy.deepcopy(fabric.nvue.applied)
    status, output = fabric.play("--check", "--diff", policy=LOSSLESS)
    assert status == 0, output
    assert changed(output) == {"leaf1": 1, "leaf2": 0, "localhost": 0}
    assert '+{"op": "add", "path": "/SCHEDULER/SAILLOFT_STRICT", "value": {"type": "STRICT"}},' in output
    assert "1. switches have their classes, queues and headroom: leaf1" in output
    assert (fabric.sonic(), fabric.nvue.applied) == before
    assert set(fabric.sonic_log()) == {"read"}
    assert set(fabric.nvue.events) == {"read"}
    assert not (fabric.path / "backups").exists()
    assert not (fabric.path / "proofs").exists()


@pytest.mark.long
def test_a_run_limited_to_hosts_without_roce_does_nothing(fabric):
    """One case is `site.yml --limit gpu_hosts,localhost`: only localhost is left in the plays that apply and prove."""
    inventory = json.loads((fabric.path / "inventory.json").read_text())
    inventory["gpu_hosts"] = {"hosts": {"localhost": {"ansible_connection": "local"}}}
    (fabric.path / "inventory.json").write_text(json.dumps(inventory))
    before = fabric.sonic(), copy.deepcopy(fabric.nvue.applied)
    status, output = fabric.play("--limit", "gpu_hosts", "-e", "run_part=true", policy=LOSSLESS)
    assert status == 0, output
    assert (fabric.sonic(), fabric.nvue.applied) == before


def test_the_first_run_applies_and_the_second_changes_nothing(fabric):
    before = json.dumps(fabric.sonic(), indent=4), copy.deepcopy(fabric.nvue.applied)
    # Each of the two stages asks once before its change; the first change blocks the port.
    fabric.set_links("up", "down", "up", "up", "up", "done")
    status, output = fabric.play(policy=LOSSLESS)
    assert status == 0, output
    assert fabric.has(LOSSLESS)
    # It waited for the blocked port.
    assert fabric.links() == ["done"]
    assert "not known to be up" not in output
    assert json.loads((fabric.leaf1 / "startup.json").read_text()) == fabric.sonic()
    assert fabric.nvue.startup == fabric.nvue.applied
    assert fabric.nvue.applied["system"]["hostname"] == "leaf2"
    assert json.loads((fabric.path / "proofs/fabric.json").read_text())["holds"] is True

    (folder,) = (fabric.path / "backups").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    assert (folder / "finished").exists()
    assert (folder / "leaf1.sonic").read_text() == before[0]
    assert json.loads((folder / "leaf2.cumulus").read_text()) == before[1]

    status, output = fabric.play(policy=LOSSLESS)
    assert status == 0, output
    assert set(changed(output).values()) == {0}
    assert len(list((fabric.path / "backups").iterdir())) == 1


@pytest.mark.long
def test_a_run_waits_for_the_buffers_that_an_image_computes(fabric):
    fabric.compute_buffers()
    status, output = fabric.play(policy=LOSSLESS)
    assert status == 0, output
    status, output = fabric.play(policy=LOSSLESS)
    assert status == 0, output
    assert set(changed(output).values()) == {0}


@pytest.mark.long
def test_a_port_that_stays_down_ends_the_run_and_the_switches_are_restored(fabric):
    before = fabric.sonic(), settings(fabric.nvue.applied)
    fabric.set_links("up", "down")
    status, output = fabric.play("-e", "roce_switch_ports_s=1", policy=LOSSLESS)
    assert status != 0
    assert "leaf1: switches have their classes" in output
    assert "down 1 s after it: Ethernet0" in output
    assert (fabric.sonic(), settings(fabric.nvue.applied)) == before


@pytest.mark.long
def test_a_port_of_which_nothing_is_known_after_a_change_is_named(fabric):
    (fabric.leaf1 / "bin/sonic-db-dump").write_text(
        "#!/bin/sh\ncd $(dirname $0)/..; case $4 in PORT*) cat links; rm -f links;; esac\n"
    )
    (fabric.leaf1 / "bin/sonic-db-dump").chmod(0o755)
    (fabric.leaf1 / "links").write_text('{"PORT_TABLE:Ethernet0": {"value": {"oper_status": "up"}}}')
    status, output = fabric.play("-e", "roce_switch_ports_s=1", policy=LOSSY)
    assert status == 0, output
    assert "leaf1: not known to be up 1 s after the change: Ethernet0" in output


@pytest.mark.long
def test_a_failed_proof_restores_the_previous_configurations(fabric):
    """The change from lossy to lossless has two stages; before the proof's reading, someone else changes leaf1."""
    fabric.apply(LOSSY, *SWITCHES)
    before = fabric.sonic(), copy.deepcopy(fabric.nvue.applied)
    (fabric.leaf1 / "drift").write_text("4")  # the reading for the proof, after the first one and two for the stages
    status, output = fabric.play(policy=LOSSLESS)
    assert status != 0
    assert "the proof does not hold: leaf1: Ethernet0: queue 3: wanted 50%, ECN 600000 to 6000000 bytes" in output
    assert (fabric.sonic(), settings(fabric.nvue.applied)) == (before[0], settings(before[1]))
    assert json.loads((fabric.leaf1 / "startup.json").read_text()) == before[0]
    assert fabric.nvue.startup == fabric.nvue.applied
    assert json.loads((fabric.path / "proofs/fabric.json").read_text())["holds"] is False
    assert fabric.sonic_log().count("apply-patch") == 2


@pytest.mark.long
def test_what_failed_before_the_run_fails_it_and_undoes_nothing(fabric):
    config = fabric.sonic()
    config["PORT"]["Ethernet0"]["pfc_asym"] = "on"
    fabric.set_sonic(config)
    status, output = fabric.play(policy=LOSSLESS)
    assert status != 0
    assert "pfc_asym" in output
    assert fabric.has(LOSSLESS)
    assert json.loads((fabric.leaf1 / "startup.json").read_text()) == fabric.sonic()
    assert json.loads((fabric.path / "proofs/fabric.json").read_text())["holds"] is False
    (folder,) = (fabric.path / "backups").iterdir()
    assert (folder / "finished").exists()


@pytest.mark.long
def test_a_lost_connection_ends_the_run_and_the_other_switches_are_restored(fabric):
    before = copy.deepcopy(fabric.nvue.applied)
    (fabric.leaf1 / "die").write_text("1")
    status, output = fabric.play(policy=LOSSLESS)
    assert status != 0
    folder = next((fabric.path / "backups").iterdir())
    told = " ".join(output.split())
    assert re.search(r"leaf1: no longer reached; leaf1 was NOT restored \(.*leaf1 cannot be reached", told)
    assert f"its previous configuration is in {folder}/leaf1.sonic, restore it manually; leaf2 was restored" in told
    assert settings(fabric.nvue.applied) == settings(before) == settings(fabric.nvue.startup)
    assert (folder / "leaf1.sonic").exists()


@pytest.mark.long
def test_a_lost_switch_that_answers_again_is_restored(fabric):
    before = copy.deepcopy(fabric.nvue.applied), fabric.sonic()
    (fabric.leaf1 / "die").write_text("2")  # after one of its patches was applied
    (fabric.leaf1 / "returns").touch()
    status, output = fabric.play(policy=LOSSLESS)
    assert status != 0
    assert "leaf1: no longer reached; leaf1 was restored; leaf2 was restored" in " ".join(output.split()), output
    assert (settings(fabric.nvue.applied), fabric.sonic()) == (settings(before[0]), before[1])


@pytest.mark.long
def test_an_unreadable_configuration_ends_the_run_before_any_change(fabric):
    (fabric.leaf1 / "garbage").write_text("Traceback (most recent call last):")
    status, output = fabric.play(policy=LOSSLESS)
    assert status != 0
    assert re.search(r"leaf1: .*not JSON.*; nothing was changed", output)
    assert set(fabric.nvue.events) <= {"read"}  # leaf2 may have been read meanwhile
    assert not (fabric.path / "backups").exists()


@pytest.mark.long
def test_check_mode_shows_the_other_switches_and_a_limited_run_changes_them(fabric):
    """A run with the unreadable switch is refused; without it, the others are changed, saved and proved."""
    (fabric.leaf1 / "garbage").write_text("Traceback (most recent call last):")
    status, output = fabric.play("--check", "--diff", policy=LOSSLESS)
    assert status != 0
    assert changed(output) == {"leaf1": 0, "leaf2": 1, "localhost": 0}, output
    assert "1. switches have their classes, queues and headroom: leaf2" in output
    told = " ".join(output.split())
    assert re.search(r"leaf1: .*not JSON.*--limit 'all:!leaf1'", told), output
    status, output = fabric.play("--limit", "all:!leaf1", policy=LOSSLESS)
    assert status == 0, output
    assert fabric.nvue.startup == fabric.nvue.applied
    assert set(fabric.sonic_log()) == {"read"}
    proof = json.loads((fabric.path / "proofs/fabric.json").read_text())
    assert proof["holds"] is True
    assert any(claim["holds"] is None and "leaf1" in claim["claim"] for claim in proof["claims"])
    status, output = fabric.play("--limit", "all:!leaf1", policy=LOSSLESS)
    assert (status, set(changed(output).values())) == (0, {0}), output


@pytest.mark.long
def test_check_mode_shows_the_other_switches_where_devices_do_not_answer_and_a_run_changes_nothing(fabric):
    inventory = json.loads((fabric.path / "inventory.json").read_text())
    gone = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_ssh_common_args": "-o ConnectTimeout=2"}
    inventory["roce_hosts"] = {"hosts": {"gpu01": {"roce_host_nics": {"mlx5_0": {"speed_gbit_s": 400}}, **gone}}}
    (fabric.path / "inventory.json").write_text(json.dumps(inventory))
    (fabric.leaf1 / "down").touch()
    before = copy.deepcopy(fabric.nvue.applied)
    status, output = fabric.play("--check", "--diff", policy=LOSSLESS)
    assert status != 0
    assert {name: changed(output)[name] for name in ("leaf1", "leaf2", "gpu01")} == {"leaf1": 0, "leaf2": 1, "gpu01": 0}
    assert "1. switches have their classes, queues and headroom: leaf2" in output
    told = " ".join(output.split())
    assert (told.count("leaf1 cannot be reached"), told.count("gpu01 cannot be reached at 127.0.0.1, port 1")) == (1, 1)
    last = told[told.index("Report an error") :]
    assert [fact for fact in ("2 of 3 devices were not read", "leaf1", "gpu01") if fact not in last] == []
    status, output = fabric.play(policy=LOSSLESS)
    assert status != 0
    told = " ".join(output.split())
    assert (told.count("leaf1 cannot be reached"), told.count("gpu01 cannot be reached")) == (1, 1)
    assert fabric.nvue.applied == before
    assert not (fabric.path / "backups").exists()


@pytest.mark.long
def test_an_api_that_refuses_the_login_is_named(fabric):
    api = {"url": fabric.nvue.url, "ca_path": str(fabric.nvue.certificate), "user": "nobody"}
    status, output = fabric.play("-e", json.dumps({"roce_switch_api": api}), policy=LOSSLESS)
    assert status != 0
    assert "leaf2: NVUE's API at https://127.0.0.1" in output
    assert "Unauthorized" in output
    assert set(fabric.sonic_log()) <= {"read"}  # leaf1 may have been read meanwhile


@pytest.mark.parametrize("playbook", ["fabric_qos.yml", pytest.param("fabric_config.yml", marks=pytest.mark.long)])
def test_devices_that_have_different_policies_are_refused(tmp_path, playbook):
    """The policy of the first device would otherwise be applied to all."""
    policies = {"leaf1": LOSSLESS, "leaf2": LOSSLESS, "leaf3": LOSSY}
    hosts = {name: {"ansible_connection": "local", "roce_policy": policy} for name, policy in policies.items()}
    hosts["leaf4"] = {"ansible_connection": "local"}
    nics = {"gpu01": hosts.pop("leaf4")}
    groups = {"roce_switches": {"hosts": hosts}, "roce_hosts": {"hosts": nics}}
    (tmp_path / "inventory.json").write_text(json.dumps(groups))
    written = ("-e", f"fabric_path={tmp_path}/fabric")
    inventory = str(tmp_path / "inventory.json")
    status, output = ansible_playbook("-i", inventory, f"playbooks/{playbook}", *written, COLUMNS="2000")
    assert status != 0
    assert "leaf3, gpu01: roce_policy differs from that of leaf1" in " ".join(output.split()), output
    assert "Read the switch" not in output
    assert not (tmp_path / "fabric").exists()


@pytest.mark.long
def test_an_empty_policy_is_the_default_one(fabric):
    folder = fabric.path / "fabric"
    given = ("-e", f"fabric_path={folder}", "-e", json.dumps({"roce_policy": None}))
    status, output = fabric.play(*given, policy=LOSSLESS, playbook="playbooks/fabric_config.yml")
    assert status == 0, output
    assert sorted(file.name for file in folder.iterdir()) == ["leaf1.sonic", "leaf2.cumulus"]


@pytest.mark.long
def test_a_run_that_was_killed_between_stages_is_completed_by_the_next(fabric):
    fabric.apply(LOSSY, *SWITCHES)
    fabric.apply(LOSSLESS, "leaf1", what="changes")  # leaf2 is not changed yet
    assert [stage["switches"] for stage in fabric.plan(LOSSLESS)["stages"]] == [["leaf2"], ["leaf1", "leaf2"]]
    status, output = fabric.play(policy=LOSSLESS)
    assert status == 0, output
    assert fabric.has(LOSSLESS)
    assert fabric.sonic_log().count("apply-patch") == 1
    assert fabric.nvue.events.count("apply") == 2


@pytest.mark.long
def test_unsaved_changes_of_a_killed_run_are_saved_by_the_next_run(fabric):
    fabric.apply(LOSSLESS, *SWITCHES)
    last = fabric.path / "backups/20260101T000000Z"
    last.mkdir(parents=True)
    for name in ("leaf1.sonic.change", "leaf2.cumulus.change"):
        (last / name).write_text("")
    status, output = fabric.play("--check", policy=LOSSLESS)
    assert (status, changed(output)) == (0, {"leaf1": 1, "leaf2": 1, "localhost": 0}), output
    assert not (fabric.leaf1 / "startup.json").exists()
    status, output = fabric.play(policy=LOSSLESS)
    assert (status, changed(output)) == (0, {"leaf1": 1, "leaf2": 1, "localhost": 1}), output  # there was no proof
    assert json.loads((fabric.leaf1 / "startup.json").read_text()) == fabric.sonic()
    assert fabric.nvue.startup == fabric.nvue.applied
    status, output = fabric.play(policy=LOSSLESS)
    assert (status, set(changed(output).values())) == (0, {0}), output


@pytest.mark.long
def test_a_refused_change_is_named_and_all_switches_are_restored(fabric):
    before = fabric.sonic(), copy.deepcopy(fabric.nvue.applied)
    fabric.nvue.fails = "invalid"
    status, output = fabric.play(policy=LOSSLESS)
    assert status != 0
    told = " ".join(output.split())
    assert "NVUE did not apply revision changeset%2Fcumulus%2F1, its state is invalid" in told
    assert "leaf1 was restored; leaf2 was restored" in told
    assert (fabric.sonic(), fabric.nvue.applied) == before


@pytest.mark.long
def test_the_role_without_the_playbook_restores_all_switches_if_a_stage_fails(fabric):
    before = fabric.sonic(), copy.deepcopy(fabric.nvue.applied)
    fabric.nvue.fails = "invalid"
    plays = [{"hosts": "roce_switches", "gather_facts": False, "roles": ["sailloft.fleet.roce_switch"]}]
    (fabric.path / "role.json").write_text(json.dumps(plays))
    status, output = fabric.play(policy=LOSSLESS, playbook=str(fabric.path / "role.json"))
    assert status != 0
    assert "leaf1 was restored; leaf2 was restored" in " ".join(output.split())
    assert (fabric.sonic(), fabric.nvue.applied) == before


RESTORE = "playbooks/fabric_restore.yml"


@pytest.mark.long
def test_a_backup_is_restored_and_damaged_or_missing_ones_are_refused(fabric):
    before = fabric.sonic(), settings(fabric.nvue.applied)
    assert fabric.play(policy=LOSSLESS)[0] == 0
    (folder,) = (fabric.path / "backups").iterdir()
    fabric.nvue.applied["system"]["hostname"] = "later"
    after = fabric.sonic(), copy.deepcopy(fabric.nvue.applied)
    events = fabric.sonic_log(), list(fabric.nvue.events)

    status, output = fabric.play(policy=LOSSLESS, playbook=RESTORE)
    assert status != 0
    assert f"{folder.name} (leaf1.sonic, leaf2.cumulus)" in output, output
    backup = (folder / "leaf2.cumulus").read_bytes()
    (folder / "leaf2.cumulus").write_bytes(backup[:-1])
    status, output = fabric.play("-e", f"fabric_backup={folder}", policy=LOSSLESS, playbook=RESTORE)
    assert status != 0
    assert f"{folder}/leaf2.cumulus: damaged" in output, output
    assert (fabric.sonic_log(), fabric.nvue.events) == events, "a switch was reached"
    (folder / "leaf2.cumulus").write_bytes(backup)

    status, output = fabric.play("-e", f"fabric_backup={folder}", "--check", "--diff", policy={}, playbook=RESTORE)
    assert (status, changed(output)) == (0, {"leaf1": 1, "leaf2": 1, "localhost": 0}), output
    assert '+{"op": "remove", "path": "/SCHEDULER/SAILLOFT_STRICT"}' in output
    assert (fabric.sonic(), fabric.nvue.applied) == after
    assert list((fabric.path / "backups").iterdir()) == [folder]

    status, output = fabric.play("-e", f"fabric_backup={folder}", "--limit", "leaf1", policy={}, playbook=RESTORE)
    assert status == 0, output
    assert "leaf1 was restored" in output
    assert (fabric.sonic(), fabric.nvue.applied) == (before[0], after[1])
    assert json.loads((fabric.leaf1 / "startup.json").read_text()) == before[0]

    status, output = fabric.play("-e", f"fabric_backup={folder}", policy={}, playbook=RESTORE)
    assert status == 0, output
    assert "leaf1: as in its backup" in output
    assert "leaf2 was restored" in output
    assert fabric.sonic() == before[0]
    assert settings(fabric.nvue.applied) == {**before[1], "system": {"hostname": "later"}}, "others' changes stay"
    assert fabric.nvue.startup == fabric.nvue.applied

    status, output = fabric.play("-e", f"fabric_backup={folder}", policy={}, playbook=RESTORE)
    assert (status, set(changed(output).values())) == (0, {0}), output
    assert all((each / "finished").exists() for each in (fabric.path / "backups").iterdir())


@pytest.mark.long
@pytest.mark.parametrize("cause", ["down", "garbage"])
def test_check_mode_shows_the_restoration_of_the_other_switches(fabric, cause):
    folder = fabric.path / "backups/20260131T235959Z"
    readings = {"leaf1.sonic": fabric.sonic(), "leaf2.cumulus": fabric.nvue.applied}
    backups.write(str(folder), {name: json.dumps(reading) for name, reading in readings.items()})
    fabric.apply(LOSSLESS, "leaf1", "leaf2")
    (fabric.leaf1 / cause).write_text("Traceback (most recent call last):")
    status, output = fabric.play("-e", f"fabric_backup={folder}", "--check", "--diff", policy={}, playbook=RESTORE)
    assert status != 0
    assert changed(output) == {"leaf1": 0, "leaf2": 1, "localhost": 0}, output
    assert "--limit 'all:!leaf1'" in " ".join(output.split())


@pytest.mark.long
def test_a_switch_that_cannot_be_restored_is_named_and_the_others_are_restored(fabric):
    before = fabric.sonic()
    assert fabric.play(policy=LOSSLESS)[0] == 0
    (folder,) = (fabric.path / "backups").iterdir()
    fabric.nvue.fails = "invalid"
    status, output = fabric.play("-e", f"fabric_backup={folder}", policy={}, playbook=RESTORE)
    assert status != 0
    told = " ".join(output.split())
    assert "leaf2 was NOT restored" in told
    assert f"its previous configuration is in {folder}/leaf2.cumulus" in told
    assert fabric.sonic() == before
