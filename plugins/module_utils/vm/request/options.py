# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The argument specification of a virtual machine, shared by the modules; documented in the doc fragment gpu_domain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.machine_type import ALIAS
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import (
    ACCELERATORS,
    DISK_FORMATS,
    FIRMWARES,
    INTERFACE_TYPES,
    NIC_FUNCTIONS,
)


def module_of(make: Callable[..., Any], **given: Any) -> Any:
    """Return the AnsibleModule that ``make`` makes of ``given``, with domains that ``parse_specs`` can refuse.

    Ansible expects a nested dictionary, and ends with a TypeError where it gets another value (``gpus: 8``)
    (ansible.module_utils.common.parameters, _validate_sub_spec). Then ``parse_specs`` checks the nested options.
    """
    try:
        return make(**given)
    except TypeError:
        domains = {key: value for key, value in given["argument_spec"]["domains"].items() if key != "options"}
        return make(**{**given, "argument_spec": {**given["argument_spec"], "domains": domains}})


def domain_options() -> dict[str, Any]:
    """Return the options of one element of ``domains``."""
    devices = {
        "count": {"type": "int", "default": 0},
        "addresses": {"type": "list", "elements": "str", "default": []},
    }
    return {
        "name": {"type": "str", "required": True},
        "memory_mib": {"type": "int"},
        "gpus": {"type": "dict", "options": devices},
        "nics": {
            "type": "dict",
            "options": {
                "per_gpu": {"type": "int", "default": 0},
                "functions": {"type": "str", "choices": list(NIC_FUNCTIONS), "default": "vf"},
                "addresses": {"type": "list", "elements": "str", "default": []},
            },
        },
        "nvme": {"type": "dict", "options": devices},
        "vcpus": {"type": "int"},
        "huge_page_mib": {"type": "int", "default": 1024},
        "lock_memory": {"type": "bool", "default": True},
        "strict_memory": {"type": "bool", "default": True},
        "pin_cpus": {"type": "bool", "default": True},
        "host_cores_per_node": {"type": "int", "default": 1},
        "iothreads": {"type": "int", "default": 1},
        "mirror_topology": {"type": "bool", "default": True},
        "firmware": {"type": "str", "choices": list(FIRMWARES), "default": "efi"},
        "machine": {"type": "str", "default": ALIAS},
        "accelerator": {"type": "str", "choices": list(ACCELERATORS), "default": "auto"},
        "physical_address_bits": {"type": "str", "default": "auto"},
        "guest_iommu": {"type": "bool", "default": False},
        "interrupt_remapping": {"type": "bool", "default": False},
        "numa_nodes": {"type": "list", "elements": "str", "default": []},
        "ats": {"type": "bool", "default": True},
        "mmio_window_mib": {"type": "int", "default": 0},
        "disks": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "path": {"type": "str", "required": True},
                "format": {"type": "str", "choices": list(DISK_FORMATS), "default": "qcow2"},
                "read_only": {"type": "bool", "default": False},
                "base": {"type": "str"},
                "base_format": {"type": "str", "choices": list(DISK_FORMATS), "default": "qcow2"},
                "size_mib": {"type": "int", "default": 0},
            },
        },
        "interfaces": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "type": {"type": "str", "choices": list(INTERFACE_TYPES), "default": "network"},
                "source": {"type": "str"},
                "mac": {"type": "str"},
            },
        },
        "boot": {
            "type": "dict",
            "options": {
                "kernel": {"type": "str", "required": True},
                "initrd": {"type": "str"},
                "arguments": {"type": "str"},
            },
        },
        "console_log": {"type": "str"},
        "autostart": {"type": "bool", "default": True},
    }
