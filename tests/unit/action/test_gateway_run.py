# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A playbook runs on slices of the inventory, one run a gateway, and the record says which hosts are done.

Here a slice is a function that returns its outcome; tests/unit/playbooks/test_gateways.py runs real slices.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.collections import ImmutableDict
from ansible.parsing.vault import VaultLib, VaultSecret
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.action import gateway_run
from ansible_collections.sailloft.fleet.plugins.module_utils.gateways.outcome import FAILED, OK, HostOutcome
from ansible_collections.sailloft.fleet.plugins.plugin_utils.network import gateway_slice
from ansible_collections.sailloft.fleet.plugins.plugin_utils.network.gateway_slice import SliceResult

GATEWAYS = {"gpu1": "gw1", "gpu2": "gw1", "gpu3": "gw2"}
# What ansible-inventory printed, by its command with the texts of the inventories: a start takes a second.
LISTED: dict[tuple[str, ...], subprocess.CompletedProcess[str]] = {}


def run_once(command, check, **options):
    """Run ansible-inventory, or return what it printed for the same inventory before."""
    texts = tuple(Path(word).read_text() if word.endswith(".yml") and Path(word).exists() else word for word in command)
    if texts not in LISTED:
        LISTED[texts] = subprocess.run(command, check=check, **options)
    return LISTED[texts]


@pytest.fixture
def gateways(make, monkeypatch, tmp_path):
    """Return a function that runs the action; ``ended`` are the slices' results, by gateway."""
    (tmp_path / "play.yml").write_text("- hosts: all\n  gather_facts: false\n  tasks: []\n")
    (tmp_path / "hosts.yml").write_text("all: {hosts: {gpu1: {a: 1}, gpu2: {}, gpu3: {}}}\n")
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict({}))
    shown, ran = [], {}
    monkeypatch.setattr(gateway_run.display, "display", shown.append)
    monkeypatch.setattr(gateway_run, "subprocess", SimpleNamespace(run=run_once, DEVNULL=subprocess.DEVNULL))
    # A copy of the collection takes half a second; its own test is below.
    monkeypatch.setattr(gateway_run, "make_project", lambda _folder, playbook: Path(playbook).name)

    def run(ended=None, check_mode=False, diff=False, **given):
        results = {
            "gw1": SliceResult({"gpu1": HostOutcome(OK), "gpu2": HostOutcome(OK)}, False, None),
            "gw2": SliceResult({"gpu3": HostOutcome(OK)}, False, None),
            **(ended or {}),
        }

        def run_slice(job, gateway, inventory, hosts, folder):
            ran[gateway] = (job, inventory, hosts, folder)
            return results[gateway]

        ran.clear()
        monkeypatch.setattr(gateway_run, "run_slice", run_slice)
        arguments = {
            "playbook": str(tmp_path / "play.yml"),
            "gateways": GATEWAYS,
            "inventory": [str(tmp_path / "hosts.yml")],
            "folder": str(tmp_path / "run"),
            **given,
        }
        arguments = {name: value for name, value in arguments.items() if value is not None}
        return make(gateway_run, check_mode, diff, **arguments).run(task_vars={}), ran, shown

    return run


def test_each_gateway_runs_its_slice(gateways, tmp_path):
    found, ran, shown = gateways()
    assert (found["changed"], found.get("failed", False), found["hosts"]) == (False, False, {"ok": 3})
    assert found["record"] == str(tmp_path / "run/record.json")
    assert {gateway: hosts for gateway, (_job, _inventory, hosts, _folder) in ran.items()} == {
        "gw1": ["gpu1", "gpu2"],
        "gw2": ["gpu3"],
    }
    job, inventory, _hosts, folder = ran["gw1"]
    assert folder == tmp_path / "run/gw1"
    assert (job.arguments, job.forks, job.path) == ([], 50, "")
    assert job.connect == [
        *("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"),
        *("-o", "ServerAliveInterval=15"),
    ]
    assert "gpu1" in str(inventory)
    assert "gpu3" not in str(inventory)
    assert shown[:2] == ["gw1: starting on 2 hosts", "gw2: starting on 1 host"]
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "run/record.json").stat().st_mode & 0o777 == 0o600


def test_a_project_has_the_playbook_and_the_collection(tmp_path):
    (tmp_path / "play.yml").write_text("[]")
    (tmp_path / "project").mkdir()
    assert gateway_slice.make_project(tmp_path / "project", str(tmp_path / "play.yml")) == "play.yml"
    assert (tmp_path / "project/play.yml").read_text() == "[]"
    collection = tmp_path / "project/collections/ansible_collections/sailloft/fleet"
    for part in ("galaxy.yml", "plugins/modules/gpu_plan.py", "roles/gpu_host/tasks/main.yml"):
        assert (collection / part).exists(), part
    assert not list(collection.rglob("__pycache__"))


@pytest.mark.parametrize("gateway", ["gw1", "gw2"])
def test_a_change_of_one_slice_is_a_change(gateways, gateway):
    hosts = {host: HostOutcome(OK) for host, own in GATEWAYS.items() if own == gateway}
    assert gateways({gateway: SliceResult(hosts, True, None)})[0]["changed"] is True


def test_check_mode_and_diff_reach_the_slices(gateways):
    _found, ran, _shown = gateways(check_mode=True, diff=True, arguments=["-l", "gpu*"], forks=7, connect="connect -x")
    job = ran["gw2"][0]
    assert (job.arguments, job.forks, job.connect) == (["-l", "gpu*", "--check", "--diff"], 7, ["connect", "-x"])


def test_a_lost_slice_fails_the_run_and_is_resumed(gateways, tmp_path):
    lost = SliceResult({"gpu3": HostOutcome(FAILED, "Check", "no link")}, False, "the gateway is gone")
    found, _ran, _shown = gateways({"gw2": lost})
    assert found["failed"]
    assert found["msg"] == Mentions("1 of 3 hosts", "gateways_resume=true")
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert record["hosts"]["gpu1"] == {"gateway": "gw1", "state": "ok", "task": "", "message": ""}
    again, ran, _shown = gateways(resume=True)
    assert list(ran) == ["gw2"]
    assert (again.get("failed", False), again["hosts"]) == (False, {"ok": 3})
    last, ran, _shown = gateways(resume=True)
    assert (ran, last["hosts"], last["changed"]) == ({}, {"ok": 3}, False)


def test_the_record_exists_before_the_first_slice_starts(gateways, monkeypatch, tmp_path):
    def stop(*_given):
        raise KeyboardInterrupt

    monkeypatch.setattr(gateway_run, "make_project", stop)
    with pytest.raises(KeyboardInterrupt):
        gateways()
    hosts = json.loads((tmp_path / "run/record.json").read_text())["hosts"]
    assert {host: (each["gateway"], each["state"]) for host, each in hosts.items()} == {
        host: (gateway, "unknown") for host, gateway in GATEWAYS.items()
    }


def test_a_host_that_is_done_needs_a_gateway_when_the_run_is_resumed(gateways):
    gateways()
    with pytest.raises(AnsibleActionFail, match="gpu1: no gateway; set runner_gateway"):
        gateways(resume=True, gateways={**GATEWAYS, "gpu1": ""})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"resume": True}, r"run/record\.json: cannot be read: No such file or directory; run without gateways_resume"),
        ({"gateways": {"gpu1": "a/b"}}, "a/b"),
        (
            {"inventory": ["/nowhere/hosts.yml"]},
            r"inventory: ansible-inventory failed: .*nowhere.*; correct the inventory",
        ),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(gateways, monkeypatch, tmp_path, given, why):
    monkeypatch.setenv("ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED", "true")
    with pytest.raises(AnsibleActionFail, match=why):
        gateways(**given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("missing", ["playbook", "gateways", "inventory", "folder"])
def test_an_argument_that_is_missing_is_named(gateways, missing):
    with pytest.raises(AnsibleActionFail, match=f"missing required arguments: {missing}"):
        gateways(**{missing: None})


def test_the_folder_of_the_record_may_be_in_a_new_folder_or_exist(gateways, tmp_path):
    for _twice in range(2):
        assert gateways(folder=str(tmp_path / "new/run"))[0]["hosts"] == {"ok": 3}
    assert (tmp_path / "new/run/record.json").exists()


def test_a_missing_ansible_runner_is_named(gateways, monkeypatch, tmp_path):
    monkeypatch.setattr(gateway_run.importlib.util, "find_spec", lambda name: None if name == "ansible_runner" else 1)
    with raises(AnsibleActionFail, "pip install ansible-runner"):
        gateways()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("option", ["vault_ids", "vault_password_files"])
def test_the_inventory_is_read_with_the_passwords_of_the_command_line(gateways, monkeypatch, tmp_path, option):
    (tmp_path / "password").write_text("of the vault")
    vault = VaultLib([("default", VaultSecret(b"of the vault"))])
    inventory = vault.encrypt("all: {hosts: {gpu1: {}, gpu2: {}, gpu3: {}}}\n").decode()
    (tmp_path / "hosts.yml").write_text(inventory)
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict({option: (str(tmp_path / "password"),)}))
    assert gateways()[0]["hosts"] == {"ok": 3}
