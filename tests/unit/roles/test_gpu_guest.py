# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import json
import sys
from pathlib import Path

import gpu_vm
import pytest
import yaml
from playing import ansible_playbook
from vsphere_guest import guest

ROOT = Path(__file__).parents[3]
ROLE = ROOT / "roles" / "gpu_guest"


def load(path):
    return yaml.safe_load((ROLE / path).read_text(encoding="utf-8"))


DEFAULTS = load("defaults/main.yml")


def play(tmp_path, tasks, *more, **variables):
    """Run tasks with the role's variables on this machine, in check mode; returns (exit status, output)."""
    playbook = tmp_path / "play.yml"
    playbook.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    options = ["--check", *more, "-i", "localhost,", "-c", "local", "-e", json.dumps(variables)]
    return ansible_playbook(*options, str(playbook), ANSIBLE_CALLBACK_RESULT_FORMAT="json")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"LD_PRELOAD": "/tmp/x"}, "LD_PRELOAD is no setting of NCCL"),
        ({"NCCL_DEBUG": "INFO\nLD_PRELOAD=x"}, "the value of NCCL_DEBUG is not one line"),
    ],
)
def test_what_is_no_nccl_setting_is_refused_before_anything_is_touched(tmp_path, settings, named):
    role = [{"ansible.builtin.include_role": {"name": "sailloft.fleet.gpu_guest"}}]
    status, output = play(tmp_path, role, gpu_guest_nccl=settings)
    assert status != 0
    assert "/etc/nccl.conf: " in output
    assert named in output
    assert "MaxReadReq is set" not in output


def test_a_read_request_that_does_not_exist_is_refused(tmp_path):
    role = [{"ansible.builtin.include_role": {"name": "sailloft.fleet.gpu_guest"}}]
    status, output = play(tmp_path, role, gpu_guest_max_read_request_bytes=4097)
    assert status != 0
    assert "must be one of: 0, 128, 256, 512, 1024, 2048, 4096" in output


def test_what_is_written_and_what_is_set(tmp_path):
    show = [
        {"ansible.builtin.include_vars": str(ROLE / "defaults/main.yml")},
        {"ansible.builtin.include_vars": str(ROLE / "vars/main.yml")},
        {"ansible.builtin.debug": {"msg": "<<{{ [__gpu_guest_nccl_conf, __gpu_guest_pci_tuning] | to_json }}>>"}},
    ]
    status, output = play(tmp_path, show)
    assert status == 0, output
    shown = json.loads(output.split('"msg": "<<')[1].split('>>"')[0].join(['"', '"']))
    conf, tuning = json.loads(shown)
    assert conf.splitlines()[1:] == [f"{name}={value}" for name, value in sorted(DEFAULTS["gpu_guest_nccl"].items())]
    assert conf.endswith("\n")
    assert tuning == {"settings": [{"devices": DEFAULTS["gpu_guest_devices"], "max_read_request_bytes": 4096}]}


def test_the_fabrics_policy_is_in_the_guests_one_file(tmp_path):
    show = [
        {"ansible.builtin.include_vars": str(ROLE / "defaults/main.yml")},
        {"ansible.builtin.include_vars": str(ROLE / "vars/main.yml")},
        {"ansible.builtin.debug": {"msg": "<<{{ [__gpu_guest_nccl, __gpu_guest_nccl_conf] | to_json }}>>"}},
    ]
    status, output = play(tmp_path, show, roce_policy={"classes": {"roce": {"dscp": 24}}}, roce_host_gid_index=5)
    assert status == 0, output
    wanted, conf = json.loads(json.loads(output.split('"msg": "<<')[1].split('>>"')[0].join(['"', '"'])))
    assert wanted == {**DEFAULTS["gpu_guest_nccl"], "NCCL_IB_TC": 98, "NCCL_IB_GID_INDEX": 5}
    assert "NCCL_IB_TC=98" in conf.splitlines()


def test_settings_that_contradict_the_fabrics_policy_are_refused(tmp_path):
    role = [{"ansible.builtin.include_role": {"name": "sailloft.fleet.gpu_guest"}}]
    status, output = play(tmp_path, role, roce_policy={}, gpu_guest_nccl={"NCCL_IB_TC": 104})
    assert status != 0
    assert "NCCL_IB_TC is set to 104, and by the RoCE policy of this host it is 106" in output
    assert "MaxReadReq is set" not in output


TOPOLOGY = '<system version="1">\n  <cpu numaid="0"/>\n</system>\n'
PLAN = {"domains": [{"name": "other", "nccl_topology": "no"}, {"name": "localhost", "nccl_topology": TOPOLOGY}]}
WITHOUT_GPU = {"domains": [{"name": "localhost", "nccl_topology": None}]}
SETTING = "NCCL_TOPO_FILE=/etc/nccl-topology.xml"


@pytest.mark.parametrize(
    ("variables", "text", "settings"),
    [
        ({"gpu_vm_result": PLAN}, TOPOLOGY, [SETTING]),
        # What was read last counts.
        ({"gpu_vm_result": WITHOUT_GPU, "gpu_vm_read": PLAN}, TOPOLOGY, [SETTING]),
        ({"gpu_vm_result": WITHOUT_GPU}, "", []),
        ({"gpu_vm_result": {"failed": True}}, "", []),
        ({"gpu_vm_result": PLAN, "gpu_guest_nccl_topology": False}, "", []),
        ({"gpu_vm_result": PLAN, "gpu_guest_nccl": {}}, "", []),
        ({"gpu_vm_result": PLAN, "gpu_guest_nccl": {"NCCL_TOPO_FILE": "/x"}}, "", ["NCCL_TOPO_FILE=/x"]),
        # The role alone: no plan is at hand, and what an earlier run left stays.
        ({}, "", []),
        ({"__gpu_guest_nccl_topology_left": {"skipped": True}}, "", []),
        ({"__gpu_guest_nccl_topology_left": {"stat": {"exists": False}}}, "", []),
        ({"__gpu_guest_nccl_topology_left": {"stat": {"exists": True}}}, "", [SETTING]),
        ({"gpu_guest_host": "nowhere"}, "", []),
    ],
)
def test_the_topology_is_that_of_the_plan(tmp_path, variables, text, settings):
    show = [
        {"ansible.builtin.include_vars": str(ROLE / "defaults/main.yml")},
        {"ansible.builtin.include_vars": str(ROLE / "vars/main.yml")},
        {"ansible.builtin.debug": {"msg": "<<{{ [__gpu_guest_nccl_topology, __gpu_guest_nccl_conf] | to_json }}>>"}},
    ]
    known = {"gpu_guest_host": "localhost"} if "gpu_vm_result" in variables else {}
    status, output = play(tmp_path, show, **{**known, **variables})
    assert status == 0, output
    shown = json.loads(output.split('"msg": "<<')[1].split('>>"')[0].join(['"', '"']))
    topology, conf = json.loads(shown)
    assert topology == text
    assert [line for line in conf.splitlines() if line.startswith("NCCL_TOPO_FILE")] == settings
    assert len(conf.splitlines()) > 2 or variables.get("gpu_guest_nccl") is not None


@pytest.mark.parametrize("known", [True, False], ids=["address known", "address not known"])
def test_on_vsphere_the_topology_has_the_addresses_that_the_guest_tells(tmp_path, known):
    host, ways = gpu_vm.host(), {"0000:13:00.0": ["15.0", "00.0"]}
    gpu = {"host_address": "0000:13:00.0", "kind": "gpu", "host_node": 0, "physical_function": None, "host_path": []}
    cell = {"id": 0, "host_node": 0, "memory_mib": 1, "vcpus": [0, 1]}
    plan = {"name": "localhost", "host": "esx01", "cells": [cell], "devices": [gpu], "configuration": {}, "notes": []}
    read = {
        "domains": [{"name": "localhost", "host": "esx01", "plan": plan, "ways": ways}],
        "hosts": [{"name": "esx01", "topology": host.to_dict()}],
    }
    inside = {"topology": guest(host, ways if known else {}).to_dict()}
    role = [{"ansible.builtin.import_role": {"name": "sailloft.fleet.gpu_guest"}}]
    given = {"gpu_guest_host": "localhost", "gpu_vm_read": read, "gpu_guest_topology_read": inside}
    given["ansible_python_interpreter"] = sys.executable
    status, output = play(tmp_path, role, "--diff", "--tags", "nccl", **given)
    assert status == 0, output
    assert ('+    <pci busid=\\"0000:03:00.0\\"' in output or '<pci busid="0000:03:00.0"' in output) == known
    assert (SETTING in output) == known
    assert ("NCCL gets no topology file" in output) == (not known)


CONF = "# Ours\nNCCL_IB_TIMEOUT=22\n\n"


@pytest.mark.parametrize(
    "files", [{}, {"a": CONF}, {"b": TOPOLOGY}, {"a": CONF, "b": TOPOLOGY}, {"a": "", "b": "<x/>"}]
)
def test_both_files_are_read_in_one_call(tmp_path, files):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (task,) = [item for item in load("tasks/read.yml") if "ansible.builtin.command" in item]
    task["ansible.builtin.command"]["argv"][-2:] = [str(tmp_path / "a"), str(tmp_path / "b")]
    tasks = [
        {"ansible.builtin.include_vars": str(ROLE / "vars/main.yml")},
        task,
        {"ansible.builtin.debug": {"msg": "<<{{ __gpu_guest_nccl_files | to_json }}>>"}},
    ]
    status, output = play(tmp_path, tasks, ansible_python_interpreter=sys.executable)
    assert status == 0, output
    shown = json.loads(json.loads(output.split('"msg": "<<')[1].split('>>"')[0].join(['"', '"'])))
    none = {"/etc/nccl.conf": "", "/etc/nccl-topology.xml": ""}
    assert shown == {**none, **{str(tmp_path / name): text for name, text in files.items()}}


def test_of_a_guest_that_does_not_answer_no_file_was_read(tmp_path):
    show = [
        {"ansible.builtin.include_vars": str(ROLE / "vars/main.yml")},
        {"ansible.builtin.debug": {"msg": "<<{{ __gpu_guest_nccl_files | to_json }}>>"}},
    ]
    status, output = play(tmp_path, show, __gpu_guest_nccl_read={"unreachable": True, "msg": "no route"})
    assert status == 0, output
    assert '"msg": "<<{}>>"' in output
