# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every role reports a user's misspelt variables in real plays, and no other variables."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml
from ansible import constants
from ansible.errors import AnsibleActionFail
from playing import ROOT, ansible_playbook

from ansible_collections.sailloft.fleet.plugins.action import role_variables

ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
SECRET = "what nobody may see"
IGNORED = re.compile(r"\[WARNING\]: (.*?, which is ignored; .*)")


class Site:
    """An inventory in a directory, and plays on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, path: str, data: object) -> str:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(data if isinstance(data, str) else yaml.safe_dump(data, sort_keys=False))
        return str(file)

    def play(self, play: dict[str, object], *arguments: str) -> tuple[int, list[str], str]:
        """Return (exit status, warnings about ignored variables, whole output)."""
        playbook = self.write("play.yml", [{"hosts": "all", "gather_facts": False, **play}])
        status, output = ansible_playbook(f"-i{self.folder}/hosts.yml", playbook, *arguments, COLUMNS="1000")
        return status, sorted(IGNORED.findall(output)), output


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path)
    hosts = {f"leaf{number}": {} for number in range(1, 6)}
    hosts["leaf2"] = {"roce_switch_headrom": 1, "roce_switch_headroom": {"bytes": 1}}
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    site.write("hosts.yml", {"all": {"vars": local, "children": {"roce_switches": {"hosts": hosts}}}})
    return site


CHECK = {"sailloft.fleet.role_variables": {"role": "roce_switch", "others": ["roce_switch_headroom"]}, "run_once": True}


def ignored(hosts: str, name: str, remedy: str) -> str:
    return f"{hosts}: the role roce_switch has no variable {name}, which is ignored; {remedy}"


LISTED = "ansible-doc -t role sailloft.fleet.roce_switch lists its variables"


def test_unknown_variables_from_all_sources_are_reported_with_their_hosts(site):
    site.write("group_vars/all.yml", {"roce_switch_sistem": "eos", "roce_switch_system": "eos", "roce_switches_x": 1})
    site.write("host_vars/leaf3.yml", {"roce_switch_mine": SECRET})
    site.write("more.yml", {"roce_switch_of_a_file": SECRET})
    play = {
        "vars": {"roce_switch_of_play": "{{ roce_switch_undefined }}"},
        "vars_files": ["more.yml"],
        "tasks": [CHECK],
    }
    status, told, output = site.play(play, "-eroce_switch_extra=1", "--check")
    assert status == 0
    assert told == [
        ignored("leaf1, leaf2, leaf3 and 2 more", "roce_switch_extra", LISTED),
        ignored("leaf1, leaf2, leaf3 and 2 more", "roce_switch_sistem", "did you mean roce_switch_system?"),
        ignored("leaf1", "roce_switch_of_a_file", LISTED),
        ignored("leaf1", "roce_switch_of_play", LISTED),
        ignored("leaf2", "roce_switch_headrom", "did you mean roce_switch_headroom?"),
        ignored("leaf3", "roce_switch_mine", LISTED),
    ]
    assert SECRET not in output
    assert "changed=0 " in output
    # The task runs once for all hosts.
    assert output.count("ok=") == 1


@pytest.mark.long
def test_variables_that_tasks_set_are_not_reported(site):
    tasks = [
        {"ansible.builtin.set_fact": {"roce_switch_fact": 1}},
        {"ansible.builtin.command": "true", "register": "roce_switch_done", "changed_when": False},
        {"block": [{**CHECK, "vars": {"roce_switch_of_task": 1}}], "vars": {"roce_switch_of_block": 1}},
        {"ansible.builtin.include_tasks": "included.yml", "vars": {"roce_switch_of_include": 1}},
    ]
    site.write("included.yml", [CHECK])
    status, told, _output = site.play({"tasks": tasks})
    assert status == 0
    assert told == [ignored("leaf2", "roce_switch_headrom", "did you mean roce_switch_headroom?")]


@pytest.mark.long
def test_a_vaulted_variable_is_reported_without_its_value(site):
    """The variable is not decrypted: the password is not given."""
    vaulted = "$ANSIBLE_VAULT;1.1;AES256\n" + "3" * 80
    text = "roce_switch_ports_z: !vault |\n" + "".join(f"  {line}\n" for line in vaulted.splitlines())
    site.write("host_vars/leaf4.yml", text)
    status, told, output = site.play({"tasks": [CHECK]})
    assert status == 0
    assert ignored("leaf4", "roce_switch_ports_z", "did you mean roce_switch_ports_s?") in told
    assert "3333" not in output


@pytest.mark.long
def test_each_batch_reports_only_its_own_hosts(site):
    status, told, _output = site.play({"serial": 1, "tasks": [CHECK]}, "-eroce_switch_extra=1", "-lleaf1,leaf3")
    assert status == 0
    assert told == [ignored("leaf1", "roce_switch_extra", LISTED), ignored("leaf3", "roce_switch_extra", LISTED)]


@pytest.mark.long
@pytest.mark.parametrize("role", ["roce_swich", ""])
def test_a_missing_role_is_refused(site, role):
    status, _told, output = site.play({"tasks": [{"sailloft.fleet.role_variables": {"role": role}, "run_once": True}]})
    assert status == 2
    assert f"there is no role '{role}' in sailloft.fleet; set role to an existing role" in output


@pytest.mark.long
def test_every_role_reports_its_own_unknown_variables(site):
    """No task has the given tag; tasks tagged ``always`` still run, and change nothing."""
    given = {f"{role}_no_such_name": 1 for role in ROLES}
    required = {
        "boot_server_interface": "eth0",
        "boot_server_address": "10.0.0.1",
        "boot_server_netmask": "255.255.255.0",
        "lab_cache_dir": "/nonexistent/cache",
        "node_boot_bmc": {"address": "https://10.0.0.3", "username": "a", "password": SECRET},
        "node_crash_dump_key": "age1",
        "roce_switch_system": "eos",
        "roce_switch_ports": {},
    }
    roles = [{"role": f"sailloft.fleet.{role}"} for role in ROLES]
    status, told, output = site.play({"vars": {**given, **required}, "roles": roles}, "--tags=none", "-lleaf1")
    assert status == 0, output
    assert told == [
        f"leaf1: the role {role} has no variable {role}_no_such_name, which is ignored; ansible-doc -t role "
        f"sailloft.fleet.{role} lists its variables"
        for role in ROLES
    ]
    assert "changed=0 " in output


@pytest.mark.long
@pytest.mark.parametrize("inventory", ["lab", "small", "vela", "blue_vela"])
def test_the_example_inventories_and_the_lab_have_no_unknown_role_variables(site, inventory):
    checks = [{"sailloft.fleet.role_variables": {"role": role, "hosts": "{{ groups.all }}"}} for role in ROLES]
    others = {
        "lab": ["boot_mode", "break", "machines_dir", "opened", "ssh_dir", "ssh_options", "store_dir"],
        "roce_switch": ["asic", "headroom", "queue_buffer_bytes"],
        "gpu_guest": ["host"],
    }
    for check in checks:
        arguments = check["sailloft.fleet.role_variables"]
        arguments["others"] = [f"{arguments['role']}_{name}" for name in others.get(arguments["role"], [])]
    play = site.write("inventory.yml", [{"hosts": "localhost", "gather_facts": False, "tasks": checks}])
    status, output = ansible_playbook(f"-iinventories/{inventory}", play, COLUMNS="1000")
    assert status == 0, output
    assert IGNORED.findall(output) == []


@pytest.mark.long
def test_missing_variables_of_boot_servers_give_one_error(site):
    site.write("hosts.yml", {"boot_servers": {"hosts": {"bs01": {}, "bs02": {"boot_server_address": "10.0.0.2"}}}})
    status, output = ansible_playbook(f"-i{site.folder}/hosts.yml", "playbooks/boot_servers.yml", COLUMNS="1000")
    assert status == 2
    assert (
        "bs01: boot_server_address, boot_server_interface, boot_server_netmask not set; bs02: boot_server_interface, "
        "boot_server_netmask not set. Set them in the inventory: ansible-doc -t role sailloft.fleet.boot_server "
        "describes them"
    ) in output
    assert "<unknown>" not in output


def test_the_role_without_the_playbook_names_its_missing_variables(site):
    status, _told, output = site.play({"roles": [{"role": "sailloft.fleet.boot_server"}]}, "-lleaf1")
    assert status == 2
    assert "missing required arguments: boot_server_address, boot_server_interface, boot_server_netmask" in output
    assert "is undefined" not in output


def test_a_role_that_decides_about_its_hosts_takes_no_fact_as_a_variable(make, monkeypatch):
    """Ansible's default is that what a host returns overrides the inventory."""
    monkeypatch.setattr(constants, "INJECT_FACTS_AS_VARS", True)
    with pytest.raises(AnsibleActionFail, match="inject_facts_as_vars"):
        make(role_variables, role="node_identity", untrusted_hosts=True).run(task_vars={})
