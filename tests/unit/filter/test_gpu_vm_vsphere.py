# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The virtual machines of all hosts of a play, by cluster."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.filter.gpu_vm_vsphere import gather


def test_hosts_of_one_cluster_are_one_call():
    site = {"hostname": "vc", "cluster": "gpu", "password": "a secret"}
    hostvars = {
        "a": {"gpu_vm_vsphere": site, "gpu_vm_domains": [{"name": "one"}]},
        "b": {"gpu_vm_vsphere": {**site, "host": "b.example.com"}, "gpu_vm_domains": [{"name": "two", "vsphere": {}}]},
        "c": {"gpu_vm_vsphere": {**site, "cluster": "other"}},
    }
    assert gather(["a", "b", "c"], hostvars) == [
        {
            "first": "a",
            "name": "vc gpu",
            "hosts": ["a", "b.example.com"],
            "domains": [
                {"name": "one", "vsphere": {"host": "a"}},
                {"name": "two", "vsphere": {"host": "b.example.com"}},
            ],
        },
        {"first": "c", "name": "vc other", "hosts": ["c"], "domains": []},
    ]
    assert "a secret" not in str(gather(["a", "b", "c"], hostvars))
