# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The defaults of gpu_domain's own options. test_gpu_domain_options.py has those of a virtual machine."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.options import (
    gpu_domain_options,
)


def test_the_module_does_not_restart_or_remove_by_default():
    options = gpu_domain_options("qemu:///system")
    assert {name: option.get("default") for name, option in options.items()} == {
        "domains": None,
        "whole_host": None,
        "state": "running",
        "topology": None,
        "gpu_module_ids": {},
        "gpu_partitions": {},
        "accelerators": {},
        "uri": "qemu:///system",
        "allow_restart": False,
        "keep_host_off_pinned_cpus": True,
        "remove_disks": False,
        "shutdown_timeout_s": 120,
    }
