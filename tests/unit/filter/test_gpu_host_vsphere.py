# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the devices of ESXi hosts get: one call for hosts that want the same, and what vCenter cannot set is refused."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.filter.gpu_host_vsphere import calls, settings_of

SITE = {"hostname": "vc", "cluster": "gpu", "password": "a secret"}


def request(**more: Any) -> dict[str, Any]:
    return {"state": "present", "vfio": ["gpu"], "vfio_released": [], "sriov": [], **more}


def test_the_variables_of_kvm_are_settings_and_a_later_one_counts_for_more():
    wanted = request(vfio_released=["0000:3b:00.0"], sriov=[{"devices": ["nic"], "count": 8}])
    assert settings_of(wanted) == [
        {"devices": ["gpu"], "passthrough": True},
        {"devices": ["0000:3b:00.0"], "passthrough": False},
        {"devices": ["nic"], "passthrough": False, "virtual_functions": 8},
    ]


def test_absent_turns_all_of_it_off():
    wanted = request(state="absent", sriov=[{"devices": ["nic"], "count": 8}])
    assert settings_of(wanted) == [
        {"devices": ["gpu"], "passthrough": False},
        {"devices": ["nic"], "passthrough": False, "virtual_functions": 0},
    ]


@pytest.mark.parametrize("entry", [{"devices": ["nic"], "count": 8, "drivers_autoprobe": False}, {"devices": ["nic"]}])
def test_an_entry_that_vcenter_cannot_set_is_refused(entry):
    with pytest.raises(AnsibleFilterError, match=r"gpu_host_sriov\[0\]: on vSphere an entry has devices and count"):
        settings_of(request(sriov=[entry]))


def test_hosts_that_want_the_same_are_one_call_and_those_that_want_nothing_none():
    hostvars = {name: {"gpu_vm_vsphere": {**SITE, "host": f"{name}.example.com"}} for name in "abcd"}
    requests = {"a": request(), "b": request(vfio=["nvme"]), "c": request(), "d": request(vfio=[])}
    found = calls(list("abcd"), hostvars, requests)
    assert [(item["first"], item["inventory_hosts"], item["hosts"]) for item in found] == [
        ("a", ["a", "c"], ["a.example.com", "c.example.com"]),
        ("b", ["b"], ["b.example.com"]),
    ]
    assert found[1]["settings"] == [{"devices": ["nvme"], "passthrough": True}]
    assert "a secret" not in str(found)
