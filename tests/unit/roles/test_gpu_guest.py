# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from pathlib import Path

import gpu_vm
import pytest
import yaml
from playing import play_of_hosts
from vsphere_guest import guest

ROOT = Path(__file__).parents[3]
ROLE = ROOT / "roles" / "gpu_guest"


def load(path):
    return yaml.safe_load((ROLE / path).read_text(encoding="utf-8"))


DEFAULTS = load("defaults/main.yml")
ROLE_TASK = {"name": "Role", "ansible.builtin.include_role": {"name": "sailloft.fleet.gpu_guest"}}

# Hosts that the role refuses: the variables and the message of each.
REFUSED = {
    "no-setting": ({"gpu_guest_nccl": {"LD_PRELOAD": "/tmp/x"}}, "LD_PRELOAD is not a setting of NCCL"),
    "two-lines": ({"gpu_guest_nccl": {"NCCL_DEBUG": "INFO\nLD_PRELOAD=x"}}, "the value of NCCL_DEBUG is not one line"),
    "no-size": (
        {"gpu_guest_max_read_request_bytes": 4097},
        "must be one of: 0, 128, 256, 512, 1024, 2048, 4096",
    ),
    "contradicts": (
        {"roce_policy": {}, "gpu_guest_nccl": {"NCCL_IB_TC": 104}},
        "NCCL_IB_TC is set to 104, but to 106 by this host's RoCE policy",
    ),
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """Return the results of the role for all hosts of REFUSED."""
    hosts = {host: variables for host, (variables, _said) in REFUSED.items()}
    return play_of_hosts(tmp_path_factory.mktemp("refused"), [ROLE_TASK], hosts, "--check")


@pytest.mark.parametrize("host", REFUSED)
def test_invalid_variables_are_refused_before_anything_is_changed(refused, host):
    *_before, (name, last) = refused[host].items()
    assert last["failed"] is True
    message = str([last["msg"], *last.get("argument_errors", [])])
    assert REFUSED[host][1] in message
    if host != "no-size":
        assert "/etc/nccl.conf: " in message
    assert name in (
        "Validating arguments against arg spec 'main' - Configure the guest of a GPU virtual machine",
        "Compute the settings of NCCL, and check them against the fabric's policy",
    )


TOPOLOGY = '<system version="1">\n  <cpu numaid="0"/>\n</system>\n'
SETTING = "NCCL_TOPO_FILE=/etc/nccl-topology.xml"


def plan(host):
    return {"domains": [{"name": "other", "nccl_topology": "no"}, {"name": host, "nccl_topology": TOPOLOGY}]}


def without_gpu(host):
    return {"domains": [{"name": host, "nccl_topology": None}]}


# Hosts: their variables, the text of the topology, and the lines of NCCL_TOPO_FILE.
OF_THE_PLAN = {
    "planned": ({"gpu_vm_result": plan("planned")}, TOPOLOGY, [SETTING]),
    # The last reading counts.
    "read": ({"gpu_vm_result": without_gpu("read"), "gpu_vm_read": plan("read")}, TOPOLOGY, [SETTING]),
    "no-gpu": ({"gpu_vm_result": without_gpu("no-gpu")}, "", []),
    "failed": ({"gpu_vm_result": {"failed": True}}, "", []),
    "not-asked": ({"gpu_vm_result": plan("not-asked"), "gpu_guest_nccl_topology": False}, "", []),
    "no-nccl": ({"gpu_vm_result": plan("no-nccl"), "gpu_guest_nccl": {}}, "", []),
    "own-file": (
        {"gpu_vm_result": plan("own-file"), "gpu_guest_nccl": {"NCCL_TOPO_FILE": "/x"}},
        "",
        ["NCCL_TOPO_FILE=/x"],
    ),
    # The role alone: there is no plan, and a topology of an earlier run is kept.
    "alone": ({}, "", []),
    "left-skipped": ({"__gpu_guest_nccl_topology_left": {"skipped": True}}, "", []),
    "left-nothing": ({"__gpu_guest_nccl_topology_left": {"stat": {"exists": False}}}, "", []),
    "left": ({"__gpu_guest_nccl_topology_left": {"stat": {"exists": True}}}, "", [SETTING]),
    "nowhere": ({"gpu_guest_host": "nowhere"}, "", []),
}
ON_A_FABRIC = {"roce_policy": {"classes": {"roce": {"dscp": 24}}}, "roce_host_nccl_choices": {"gid_index": 5}}
SILENT = {"unreachable": True, "msg": "no route"}
SHOWN = ("nccl", "nccl_conf", "nccl_files", "nccl_topology", "pci_tuning")


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Return the values of the role's expressions for hosts: {host: {name: value}}."""
    hosts = {
        host: {**({"gpu_guest_host": host} if "gpu_vm_result" in variables else {}), **variables}
        for host, (variables, _text, _settings) in OF_THE_PLAN.items()
    }
    tasks = [
        {"ansible.builtin.include_vars": str(ROLE / "vars/main.yml")},
        {"name": "Show", "ansible.builtin.debug": {"msg": {name: f"{{{{ __gpu_guest_{name} }}}}" for name in SHOWN}}},
    ]
    folder, known = tmp_path_factory.mktemp("shown"), {**DEFAULTS, "__gpu_guest_nccl_read": SILENT}
    results = play_of_hosts(folder, tasks, {**hosts, "on-a-fabric": ON_A_FABRIC}, "--check", **known)
    return {host: result["Show"]["msg"] for host, result in results.items()}


def test_the_defaults_give_nccl_settings_and_a_max_read_request(shown):
    conf = shown["alone"]["nccl_conf"]
    assert conf.splitlines()[1:] == [f"{name}={value}" for name, value in sorted(DEFAULTS["gpu_guest_nccl"].items())]
    assert conf.endswith("\n")
    settings = [{"devices": ["gpu", "nic", "nvme", "nvswitch"], "max_read_request_bytes": 4096}]
    assert shown["alone"]["pci_tuning"] == {"settings": settings}


def test_the_fabrics_policy_is_in_the_guests_nccl_file(shown):
    of_fabric = {"NCCL_IB_TC": 98, "NCCL_IB_GID_INDEX": 5}
    assert shown["on-a-fabric"]["nccl"] == {**DEFAULTS["gpu_guest_nccl"], **of_fabric}
    assert "NCCL_IB_TC=98" in shown["on-a-fabric"]["nccl_conf"].splitlines()


@pytest.mark.parametrize("host", OF_THE_PLAN)
def test_the_topology_is_that_of_the_plan(shown, host):
    variables, text, settings = OF_THE_PLAN[host]
    assert shown[host]["nccl_topology"] == text
    conf = shown[host]["nccl_conf"].splitlines()
    assert [line for line in conf if line.startswith("NCCL_TOPO_FILE")] == settings
    assert len(conf) > 2 or variables.get("gpu_guest_nccl") is not None


IMPORTED_ROLE = {"name": "Role", "ansible.builtin.import_role": {"name": "sailloft.fleet.gpu_guest"}}


@pytest.fixture(scope="module")
def on_vsphere(tmp_path_factory):
    """Return the results of the role for two guests; only one of them has the GPU at the address from vCenter."""
    host, ways = gpu_vm.host(), {"0000:13:00.0": ["15.0", "00.0"]}
    gpu = {"host_address": "0000:13:00.0", "kind": "gpu", "host_node": 0, "physical_function": None, "host_path": []}
    cell = {"id": 0, "host_node": 0, "memory_mib": 1, "vcpus": [0, 1]}
    hosts = {}
    for name, told in {"known": ways, "unknown": {}}.items():
        plan = {"name": name, "host": "esx01", "cells": [cell], "devices": [gpu], "configuration": {}, "notes": []}
        read = {
            "domains": [{"name": name, "host": "esx01", "plan": plan, "ways": ways}],
            "hosts": [{"name": "esx01", "topology": host.to_dict()}],
        }
        hosts[name] = {"gpu_guest_host": name, "gpu_vm_read": read, "inside": {"topology": guest(host, told).to_dict()}}
    # An extra variable, because the role's reading of this machine cannot replace it.
    given = ["--check", "--diff", "--tags=nccl", "-egpu_guest_topology_read={{ inside }}"]
    return play_of_hosts(tmp_path_factory.mktemp("vsphere"), [IMPORTED_ROLE], hosts, *given)


@pytest.mark.long
@pytest.mark.parametrize("known", [True, False], ids=["address known", "address not known"])
def test_the_topology_on_vsphere_has_the_addresses_read_from_the_guest(on_vsphere, known):
    results = on_vsphere["known" if known else "unknown"]
    assert not [result for result in results.values() if result.get("failed")]
    assert ('<pci busid="0000:03:00.0"' in str(results["Write the topology of the plan for NCCL"])) == known
    assert (SETTING in str(results["Write the settings of NCCL"])) == known
    assert ("skipped" in results["Report a missing topology for NCCL"]) == known


CONF = "# Ours\nNCCL_IB_TIMEOUT=22\n\n"
# Hosts: the contents of /etc/nccl.conf (a) and of the topology (b).
FILES = {
    "none": {},
    "conf": {"a": CONF},
    "topology": {"b": TOPOLOGY},
    "both": {"a": CONF, "b": TOPOLOGY},
    "empty": {"a": "", "b": "<x/>"},
}


@pytest.fixture(scope="module")
def files_read(tmp_path_factory):
    """Return the directory, and the readings for each host of FILES: {host: {path: text}}."""
    folder = tmp_path_factory.mktemp("files")
    for host, files in FILES.items():
        (folder / host).mkdir()
        for name, text in files.items():
            (folder / host / name).write_text(text)
    (task,) = [item for item in load("tasks/read.yml") if "ansible.builtin.command" in item]
    argv = task["ansible.builtin.command"]["argv"]
    for old, new in (
        ("'/etc/nccl.conf'", f"'{folder}/' ~ inventory_hostname ~ '/a'"),
        ("__gpu_guest_nccl_topology_path", f"'{folder}/' ~ inventory_hostname ~ '/b'"),
        (" + __gpu_guest_guid_files", ""),
    ):
        assert argv.count(old) == 1
        argv = argv.replace(old, new)
    task["ansible.builtin.command"]["argv"] = argv
    tasks = [
        {"ansible.builtin.include_vars": str(ROLE / "vars/main.yml")},
        task,
        {"name": "Show", "ansible.builtin.debug": {"msg": "{{ __gpu_guest_nccl_files }}"}},
    ]
    results = play_of_hosts(folder, tasks, {host: {} for host in FILES}, "--check")
    return folder, {host: result["Show"]["msg"] for host, result in results.items()}


@pytest.mark.parametrize("host", FILES)
def test_both_files_are_read_in_one_call(files_read, host):
    folder, read = files_read
    none = {"/etc/nccl.conf": "", "/etc/nccl-topology.xml": ""}
    assert read[host] == {**none, **{f"{folder}/{host}/{name}": text for name, text in FILES[host].items()}}


def test_no_files_are_read_from_a_guest_that_does_not_answer(shown):
    assert shown["alone"]["nccl_files"] == {}
