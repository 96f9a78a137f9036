# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The hosts and virtual machines of a play by cluster, a host's part of the results, and NCCL's file of a guest."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import gpu_vm
import pytest
from ansible.errors import AnsibleFilterError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from messages import raises
from vsphere_guest import guest

from ansible_collections.sailloft.fleet.plugins.filter.gpu_host_vsphere import settings_of
from ansible_collections.sailloft.fleet.plugins.filter.gpu_vm_vsphere import gather
from ansible_collections.sailloft.fleet.plugins.filter.gpu_vm_vsphere_nccl import nccl
from ansible_collections.sailloft.fleet.plugins.plugin_utils import playbook_registry

SITE = {"hostname": "vc", "cluster": "gpu", "password": "a secret"}


def test_a_virtual_machine_with_the_whole_host_is_refused():
    whole = {"gpu_vm_vsphere": SITE, "gpu_vm_whole_host": {"image": "/a.qcow2"}, "request": {}}
    with pytest.raises(AnsibleFilterError, match=r"^a: .*gpu_vm_domains"):
        gather(["a"], {"a": whole}, "request")
    assert gather(["a"], {"a": {**whole, "gpu_vm_domains": [{"name": "one"}]}}, "request")[0]["domains"]


def test_hosts_of_one_cluster_are_one_call():
    hostvars = {
        "a": {"gpu_vm_vsphere": SITE, "gpu_vm_domains": [{"name": "one"}]},
        "b": {"gpu_vm_vsphere": {**SITE, "host": "b.example.com"}, "gpu_vm_domains": [{"name": "two", "vsphere": {}}]},
        "c": {"gpu_vm_vsphere": {**SITE, "cluster": "other"}},
    }
    hostvars = {name: {**given, "request": {"state": "running"}} for name, given in hostvars.items()}
    found = gather(["a", "b", "c"], hostvars, "request")
    assert found == [
        {
            "first": "a",
            "name": "vc gpu",
            "request": {"state": "running"},
            "inventory_hosts": ["a", "b"],
            "hosts": ["a", "b.example.com"],
            "domains": [
                {"name": "one", "vsphere": {"host": "a"}},
                {"name": "two", "vsphere": {"host": "b.example.com"}},
            ],
        },
        {
            "first": "c",
            "name": "vc other",
            "request": {"state": "running"},
            "inventory_hosts": ["c"],
            "hosts": ["c"],
            "domains": [],
        },
    ]
    assert "a secret" not in str(found)


def test_hosts_with_different_requests_are_separate_calls():
    """One host's virtual machines are to be removed, and the others' to run."""
    states = {"a": "absent", "b": "running", "c": "absent"}
    hostvars = {
        name: {"gpu_vm_vsphere": SITE, "gpu_vm_domains": [{"name": f"vm-{name}"}], "request": {"state": state}}
        for name, state in states.items()
    }
    found = gather(list("abc"), hostvars, "request")
    assert [(item["request"]["state"], [domain["name"] for domain in item["domains"]]) for item in found] == [
        ("absent", ["vm-a", "vm-c"]),
        ("running", ["vm-b"]),
    ]


@pytest.mark.parametrize("other", [{"username": "b"}, {"password": "b"}, {"validate_certs": False}, {"port": 8443}])
def test_the_login_of_one_host_is_not_used_for_another(other):
    hostvars = {name: {"gpu_vm_vsphere": {**SITE, **more}, "request": {}} for name, more in (("a", other), ("b", {}))}
    hostvars["c"] = hostvars["b"]
    found = gather(list("abc"), hostvars, "request")
    assert [(item["first"], item["inventory_hosts"]) for item in found] == [("a", ["a"]), ("b", ["b", "c"])]


def test_hosts_of_another_backend_are_left_out():
    hostvars = {"kvm": {"gpu_vm_domains": [{"name": "vm"}]}, "esx": {"gpu_vm_vsphere": SITE, "request": {}}}
    (item,) = gather(["kvm", "esx"], hostvars, "request")
    assert (item["inventory_hosts"], item["domains"]) == (["esx"], [])


def trusted(value: Any) -> Any:
    """Return a value of the role's files, as Ansible's loader marks it."""
    if isinstance(value, dict):
        return {name: trusted(item) for name, item in value.items()}
    return trust_as_template(value) if isinstance(value, str) else value


def part(results: list[dict[str, Any]], host: str, domains: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the role records for a host."""
    variables = {"__gpu_vm_clusters": {"results": results}, "inventory_hostname": host, "gpu_vm_domains": domains}
    role = trusted(playbook_registry.role_vars("gpu_vm"))
    return Templar(DataLoader(), variables={**role, **variables}).template(role["__gpu_vm_part"])


def test_a_host_gets_its_own_virtual_machines_from_all_hosts_of_the_cluster():
    one, two = {"name": "one", "host": "b", "restart_required": True}, {"name": "two", "host": "b"}
    first = {
        "item": {"inventory_hosts": ["a", "b"]},
        "domains": [one, two],
        "hosts": [{"name": "a", "topology": {}}, {"name": "b", "topology": {}}],
    }
    # Another vCenter has a virtual machine of the same name.
    other = {"item": {"inventory_hosts": ["c"]}, "domains": [{"name": "one", "host": "c"}]}
    hosts = [{"name": "b", "topology": {}}]
    assert part([first, other], "a", [{"name": "one"}]) == {"domains": [one], "hosts": hosts, "restart_required": True}
    assert part([first, other], "b", [{"name": "two"}]) == {"domains": [two], "hosts": hosts, "restart_required": False}
    assert part([first, other], "c", []) == {"domains": [], "hosts": [], "restart_required": False}


WAYS = {"0000:13:00.0": ["15.0", "00.0"]}
PLAN = {
    "name": "vm",
    "host": "esx01",
    "cells": [{"id": 0, "host_node": 0, "memory_mib": 1, "vcpus": [0, 1]}],
    "devices": [
        {"host_address": "0000:13:00.0", "kind": "gpu", "host_node": 0, "physical_function": None, "host_path": []}
    ],
    "configuration": {},
    "notes": [],
}
DOMAIN = {"name": "vm", "host": "esx01", "plan": PLAN, "ways": WAYS}


def test_the_nccl_file_is_created_from_the_readings():
    host = gpu_vm.host()
    hosts, inside = [{"name": "esx01", "topology": host.to_dict()}], guest(host, WAYS).to_dict()
    assert '<pci busid="0000:03:00.0"' in nccl(DOMAIN, hosts, inside)
    assert nccl({**DOMAIN, "plan": None}, hosts, inside) == ""
    assert nccl(DOMAIN, [], inside) == ""
    assert nccl(DOMAIN, hosts, {}) == ""
    with raises(AnsibleFilterError, "format", "None", "sailloft-topology/1"):
        nccl(DOMAIN, hosts, {"x": 1})
    with pytest.raises(AnsibleFilterError, match="complete"):
        nccl({**DOMAIN, "plan": {"name": "vm"}}, hosts, inside)


def test_the_ways_tell_gpus_of_one_model_apart():
    host = gpu_vm.host()
    hosts = [{"name": "esx01", "topology": host.to_dict()}]
    one = guest(host, WAYS)
    assert '<pci busid="0000:03:00.0"' in nccl({**DOMAIN, "ways": None}, hosts, one.to_dict())
    twin = replace(one.functions[-1], address="0000:03:01.0")
    one.functions.append(twin)
    assert '<pci busid="0000:03:00.0"' in nccl(DOMAIN, hosts, one.to_dict())
    assert "<pci" not in nccl({**DOMAIN, "ways": None}, hosts, one.to_dict())


def test_settings_of_vsphere_that_are_no_dictionary_are_refused():
    hostvars = {"esx1": {"__request": "r", "gpu_vm_domains": [{"name": "train-01", "vsphere": "esx1"}]}}
    with pytest.raises(AnsibleFilterError, match=r"esx1.*train-01.*vsphere 'esx1' is not a dictionary"):
        gather(["esx1"], hostvars, "__request")


def request(**more: Any) -> dict[str, Any]:
    return {"state": "present", "vfio": ["gpu"], "vfio_released": [], "sriov": [], **more}


def test_the_variables_of_kvm_become_settings_in_ascending_precedence():
    wanted = request(vfio_released=["0000:3b:00.0"], sriov=[{"devices": ["nic"], "count": 8}])
    assert settings_of(wanted) == [
        {"devices": ["gpu"], "passthrough": True},
        {"devices": ["0000:3b:00.0"], "passthrough": False},
        {"devices": ["nic"], "passthrough": False, "virtual_functions": 8},
    ]


def test_state_absent_turns_all_settings_off():
    wanted = request(state="absent", sriov=[{"devices": ["nic"], "count": 8}])
    assert settings_of(wanted) == [
        {"devices": ["gpu"], "passthrough": False},
        {"devices": ["nic"], "passthrough": False, "virtual_functions": 0},
    ]


@pytest.mark.parametrize(
    ("entry", "others"),
    [
        ({"devices": ["nic"], "count": 8, "trust": True, "drivers_autoprobe": False}, "drivers_autoprobe, trust"),
        ({"devices": ["nic"]}, "fewer"),
        ({"devices": ["nic"], "count": 8, True: "x", 5: "x"}, "5, True"),
    ],
)
def test_an_entry_that_vcenter_cannot_set_is_refused(entry, others):
    message = (
        f"gpu_host_sriov[1]: on vSphere an entry must have devices and count, not {others}; set other settings in "
        "vCenter, at the port group"
    )
    with pytest.raises(AnsibleFilterError, match=f"^{re.escape(message)}$"):
        settings_of(request(sriov=[{"devices": ["nic"], "count": 1}, entry]))
