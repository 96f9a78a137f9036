# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The server of a virtual machine in the inventory."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.filter.gpu_vm_server import gpu_vm_server

HOSTVARS = {
    "gpu1": {"gpu_vm_domains": [{"name": "train-01"}, {"name": "twice"}]},
    "gpu2": {"gpu_vm_domains": [{"name": "twice"}]},
    "gpu3": {"gpu_vm_whole_host": {"bridge": "br0"}},
    "esx1": {"gpu_vm_backend": "vsphere", "gpu_vm_domains": [{"name": "on-esx"}]},
}


def server(vm, to="gpu3"):
    return gpu_vm_server(list(HOSTVARS), HOSTVARS, vm, to)


def test_the_server_is_the_one_that_has_it():
    assert server("train-01") == "gpu1"
    assert gpu_vm_server(["gpu1"], {}, "train-01", "gpu3") == "all:!all"


@pytest.mark.parametrize(
    ("vm", "to", "facts"),
    [
        ("train-1", "gpu3", ["train-01"]),
        ("gpu3-vm", "gpu2", ["gpu_vm_whole_host"]),
        ("twice", "gpu3", ["gpu1", "gpu2"]),
        ("train-01", "gpu9", ["gpu9"]),
        ("train-01", "gpu1", ["gpu1"]),
        ("train-01", "esx1", ["esx1", "vsphere"]),
        ("on-esx", "gpu3", ["esx1", "vsphere"]),
    ],
)
def test_a_virtual_machine_without_one_server_is_refused(vm, to, facts):
    with pytest.raises(AnsibleFilterError) as refused:
        server(vm, to)
    assert all(fact in str(refused.value) for fact in facts)
