# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute the arguments that the roles gpu_host and gpu_vm pass to their modules, from the roles' variables. Pure.

A test compares them with the arguments in the roles' tasks (``prepare.yml``, ``next_boot.yml`` and ``settle.yml`` of
gpu_host, ``libvirt.yml`` of gpu_vm). Ansible compiles each template again in each process that it starts for a host:
the templates of these tasks would take twice the time of the comparison itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

ACS_PURPOSES = {"auto": "virtual_machines", "bare_metal": "bare_metal", "unchanged": ""}
SERIAL = re.compile(r"[1-9][0-9]{0,5}|([1-9][0-9]?|100)%")


def refused(of: Mapping[str, Any]) -> bool:
    """Return True if the role refuses a value that no module checks: the number of hosts that reboot at once."""
    most = str(of["gpu_host_max_fail_percentage"])
    return not (SERIAL.fullmatch(str(of["gpu_host_serial"])) and most.isdecimal() and int(most) <= 100)


def whole_host(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the virtual machine with the whole host from gpu_vm's variables; {} if there is none."""
    return {} if variables["gpu_vm_domains"] else dict(variables["gpu_vm_whole_host"])


def of_gpu_host(
    of: Mapping[str, Any], packages: Mapping[str, Any], whole_host: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the arguments of gpu_host_compare from the role's variables, whose values have the right types.

    ``packages``: the packages and sockets that the role installs, as ``packages.options``. ``whole_host``: see there.
    """
    tuning = _pci_tuning(of)
    binding = {
        "devices": of["gpu_host_vfio"],
        "release": of["gpu_host_vfio_released"],
        "keep_drivers_off": of["gpu_host_keep_drivers_off"],
    }
    kernel: dict[str, Any] = {
        "pages": of["gpu_host_hugepages"] if of["gpu_host_hugepages_at_boot"] else [],
        "arguments": of["gpu_host_kernel_arguments"],
        "remove": of["gpu_host_kernel_arguments_removed"],
        "vfio_binding": binding,
        "whole_host": whole_host,
    }
    if of["gpu_host_iommu"] != "unchanged":
        kernel["iommu"] = of["gpu_host_iommu"]
    if "avic" in of["gpu_host_kernel_settings"]:
        kernel["avic"] = of["gpu_host_kernel_settings"]["avic"]
    if of["gpu_host_acs_at_boot"] and "acs_by_port" in tuning:
        kernel["acs_by_port"] = tuning["acs_by_port"]
    firmware = {"settings": of["gpu_host_nic_firmware"]}
    if of["gpu_host_nic_firmware_by_family"]:
        firmware["by_family"] = _firmware_family(of)
    return {
        "packages": dict(packages) if of["gpu_host_packages_install"] else {},
        "bios_info": {"required": of["gpu_host_bios_required"]},
        "kernel_arguments": kernel,
        "nic_firmware": firmware,
        "gpu_host_boot": {
            "now": True,
            "hugepages": {"pages": of["gpu_host_hugepages"]},
            "sriov": {"functions": of["gpu_host_sriov"]},
            "vfio_binding": binding,
            "pci_tuning": tuning,
            "kernel_settings": of["gpu_host_kernel_settings"],
            "whole_host": whole_host,
        },
    }


def of_gpu_vm(of: Mapping[str, Any], host_name: str) -> dict[str, dict[str, Any]]:
    """Return the arguments of gpu_host_compare from the role's variables, whose values have the right types.

    ``host_name``: of the inventory, which gives the virtual machine with the whole host its name.
    """
    guest = whole_host(of)
    return {
        "gpu_domain": {
            "domains": of["gpu_vm_domains"],
            "whole_host": {"name": f"{host_name}-vm", **guest} if guest else {},
            "gpu_module_ids": of["gpu_vm_gpu_module_ids"],
            "gpu_partitions": of["gpu_vm_gpu_partitions"],
            "accelerators": of["gpu_vm_accelerators"],
            "state": of["gpu_vm_state"],
            "allow_restart": of["gpu_vm_allow_restart"],
            "shutdown_timeout_s": of["gpu_vm_shutdown_timeout_s"],
            "keep_host_off_pinned_cpus": of["gpu_vm_keep_host_off_pinned_cpus"],
            "remove_disks": of["gpu_vm_remove_disks"],
        }
    }


def _pci_tuning(of: Mapping[str, Any]) -> dict[str, Any]:
    acs = of["gpu_host_acs"]
    by_word = isinstance(acs, str)
    # The modules refuse any other word.
    purpose = ACS_PURPOSES.get(acs, "unknown") if by_word else ""
    settings = {"settings": [*of["gpu_host_pci"], *([] if by_word else acs)]}
    by_port = {"acs_by_port": {"devices": of["gpu_host_acs_devices"], "purpose": purpose}}
    return {**settings, **(by_port if purpose else {})}


def _firmware_family(of: Mapping[str, Any]) -> dict[str, Any]:
    purpose = "bare_metal" if of["gpu_host_acs"] == "bare_metal" else "virtual_machines"
    return {"devices": of["gpu_host_acs_devices"], "purpose": purpose}
