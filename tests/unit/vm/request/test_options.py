# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The defaults of settings that a user omits: a change of a default changes existing virtual machines."""

from __future__ import annotations

from dataclasses import asdict

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.options import (
    domain_options,
    gpu_domain_options,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

DEVICES = {"count": 0, "addresses": []}
DEFAULTS = {
    **dict.fromkeys(kinds.SETTINGS.values(), DEVICES),
    "nics": {"per_gpu": 0, "functions": "vf", "addresses": []},
    "memory_mib": 0,
    "vcpus": None,
    "huge_page_mib": 1024,
    "lock_memory": True,
    "memory_threads": 0,
    "strict_memory": True,
    "pin_cpus": True,
    "host_cores_per_node": 1,
    "iothreads": 1,
    "mirror_topology": True,
    "firmware": "efi",
    "machine": "q35",
    "accelerator": "auto",
    "physical_address_bits": "auto",
    "guest_iommu": False,
    "interrupt_remapping": False,
    "numa_nodes": [],
    "ats": True,
    "gpudirect_cliques": True,
    "hpet": True,
    "kvm_dedicated": False,
    "rom_bar": True,
    "rng": False,
    "mmio_window_mib": 0,
    "disks": [],
    "interfaces": [],
    "boot": None,
    "console_log": None,
    "autostart": True,
}
DISK = {
    "format": "qcow2",
    "read_only": False,
    "base": None,
    "base_format": "qcow2",
    "size_mib": 0,
    "cache": "auto",
    "io": "auto",
}
INTERFACE = {"type": "network", "source": None, "mac": None, "queues": 1}


def test_what_a_request_leaves_out():
    assert asdict(parse_specs([{"name": "a"}])[0]) == {"name": "a", **DEFAULTS}
    (spec,) = parse_specs([{"name": "a", "disks": [{"path": "/a"}], "interfaces": [{"source": "lan"}]}])
    assert asdict(spec.disks[0]) == {"path": "/a", **DISK}
    assert asdict(spec.interfaces[0]) == {**INTERFACE, "source": "lan"}


def test_the_module_has_the_same_defaults():
    options = domain_options()
    given = {name: option["default"] for name, option in options.items() if "default" in option}
    assert {name: DEFAULTS[name] for name in given} == given
    assert [name for name, option in options.items() if option.get("required")] == ["name"]
    inner = {name: option["default"] for name, option in options["disks"]["options"].items() if "default" in option}
    assert {name: DISK[name] for name in inner} == inner


def test_the_module_restarts_and_removes_nothing_unasked():
    options = gpu_domain_options("qemu:///system")
    assert {name: option.get("default") for name, option in options.items()} == {
        "domains": None,
        "state": "running",
        "topology": None,
        "gpu_module_ids": {},
        "accelerators": {},
        "uri": "qemu:///system",
        "allow_restart": False,
        "remove_disks": False,
        "shutdown_timeout_s": 120,
    }
    assert options["domains"]["required"] is True
