# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The check of a run in the real playbooks, of a checkout and of an installed collection."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from fleet import Fleet
from playing import ANSIBLE, ROOT, ansible_playbook

PLAYBOOKS = sorted(yaml.safe_load((ROOT / "meta/run_specs.yml").read_text())["playbooks"])
LONG = [pytest.mark.fleet, pytest.mark.long]
BROKEN = ("blueprint", "missing", "empty", "syntax")


def installed(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run ansible-playbook as with an installed collection, without the checkout's ansible.cfg."""
    (folder / "empty.cfg").touch()
    ways = {"ANSIBLE_CONFIG": str(folder / "empty.cfg"), "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections")}
    return ansible_playbook(*arguments, folder=folder, COLUMNS="1000", **{**ways, **environment})


def broken(folder: Path, how: str) -> tuple[str, str]:
    """Return (an inventory that is not right, its cause in the error)."""
    if how == "blueprint":
        text = (ROOT / "inventories/small/blueprint.yml").read_text(encoding="utf-8")
        assert text.count("to_ports: down, medium: aoc") == 1
        path = folder / "site/blueprint.yml"
        path.parent.mkdir()
        path.write_text(text.replace("to_ports: down, medium: aoc", "to_ports: dwon, medium: aoc"), encoding="utf-8")
        (folder / "site/hosts.yml").write_text((ROOT / "inventories/small/hosts.yml").read_text(encoding="utf-8"))
        return str(path.parent), f"{path}:52: links.fabric.to_ports: leaf has no ports 'dwon'"
    path = folder / "hosts.yml"
    if how != "missing":
        path.write_text("all: {\n" if how == "syntax" else "")
    return str(path), {"missing": f"{path} does not exist", "syntax": f"{path}: YAML", "empty": str(path)}[how]


def errors(output: str) -> list[str]:
    """Return the errors that Ansible prints, without its own words before the cause."""
    lines = [line for line in output.splitlines() if line.startswith("[ERROR]: ")]
    return [line.removeprefix("[ERROR]: ").removeprefix("Task failed: ") for line in lines]


CASES = [
    pytest.param(
        playbook,
        how,
        # Each start of Ansible takes a second.
        marks=[] if (playbook, how) == ("prove", "blueprint") else LONG,
    )
    for playbook in PLAYBOOKS
    for how in BROKEN
    # They run on localhost alone, which needs no inventory.
    if how != "empty" or playbook not in ("controller", "netbox", "netbox_links", "site_plan", "fabric_config")
]


@pytest.mark.parametrize(("playbook", "how"), CASES)
def test_no_playbook_of_an_installed_collection_is_green_on_a_broken_inventory(tmp_path, playbook, how):
    inventory, why = broken(tmp_path, how)
    status, output = installed(tmp_path, "-i", inventory, f"sailloft.fleet.{playbook}")
    assert status == 2, output
    (told,) = errors(output)
    assert told.startswith(why) or (how == "empty" and why in told)
    assert output.count("fatal: ") == 1
    assert "ok=0" in output


@pytest.mark.fleet
@pytest.mark.long
@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_no_playbook_of_the_checkout_is_green_on_a_broken_blueprint(tmp_path, playbook):
    inventory, why = broken(tmp_path, "blueprint")
    status, output = ansible_playbook("-i", inventory, f"playbooks/{playbook}.yml", COLUMNS="1000")
    assert status != 0, output
    assert errors(output)[0].startswith(why)


@pytest.mark.parametrize("how", ["missing", pytest.param("empty", marks=LONG), pytest.param("syntax", marks=LONG)])
def test_a_limit_does_not_make_a_run_on_a_broken_inventory_green(tmp_path, how):
    inventory, why = broken(tmp_path, how)
    status, output = installed(tmp_path, "-i", inventory, "sailloft.fleet.gpu_hosts", "--limit", "hv01")
    assert status != 0, output
    assert why in errors(output)[0]


@pytest.mark.fleet
@pytest.mark.parametrize(
    ("strategy", "refused"),
    [
        ("free", True),
        pytest.param("host_pinned", True, marks=pytest.mark.long),
        pytest.param("ansible.builtin.free", True, marks=pytest.mark.long),
        pytest.param("linear", False, marks=pytest.mark.long),
    ],
)
def test_a_strategy_without_ansibles_order_is_refused_in_one_sentence_before_the_first_task(
    tmp_path, strategy, refused
):
    fleet = Fleet(tmp_path, a={"needs_reboot": True}, b={"needs_reboot": True})
    os.environ["ANSIBLE_STRATEGY"] = strategy
    try:
        status, output = fleet.play()
    finally:
        del os.environ["ANSIBLE_STRATEGY"]
    assert status == (2 if refused else 0), output
    if refused:
        (told,) = errors(output)
        assert told.startswith(f"gpu_hosts.yml does not run with the strategy {strategy}")
        assert output.count("TASK [") == 1
    assert fleet.log() == ([] if refused else [f"{name} {what}" for name in "ab" for what in ("down", "up", "settled")])


@pytest.mark.fleet
@pytest.mark.long
def test_one_fork_is_enough(tmp_path):
    fleet = Fleet(tmp_path, a={"needs_reboot": True}, b={})
    status, output = fleet.play("--forks", "1")
    assert status == 0, output
    assert fleet.log() == ["b settled", "a down", "a up", "a settled"]


@pytest.mark.fleet
@pytest.mark.parametrize(("strategy", "status"), [("free", 2), pytest.param("linear", 0, marks=pytest.mark.long)])
def test_a_users_play_with_a_role_that_needs_ansibles_order_is_refused_too(tmp_path, strategy, status):
    play = {
        "hosts": "leaf1",
        "gather_facts": False,
        "strategy": strategy,
        "tasks": [{"sailloft.fleet.role_variables": {"role": role}} for role in ("gpu_guest", "roce_switch")],
    }
    (tmp_path / "play.json").write_text(json.dumps([play]))
    ended, output = installed(tmp_path, "-i", "leaf1,", "-c", "local", str(tmp_path / "play.json"))
    assert ended == status, output
    assert ["the role roce_switch does not run" in told for told in errors(output)] == [True] * (status == 2)


@pytest.mark.fleet
@pytest.mark.parametrize("wrong", [{"PWD": "/"}, pytest.param({}, marks=pytest.mark.long)], ids=["another", "none"])
def test_relative_paths_belong_to_the_directory_of_the_process(tmp_path, wrong):
    (tmp_path / "machine.json").symlink_to(ROOT / "tests/recordings/llnl-corona.json")
    environment = {name: value for name, value in os.environ.items() if name != "PWD"}
    command = [ANSIBLE, str(ROOT / "playbooks/plan.yml"), "-e", "recording=machine.json"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**environment, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), **wrong},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "plans/machine").glob("*.xml"))
    assert "inventory" not in done.stderr
