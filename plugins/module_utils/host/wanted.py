# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The whole wanted state of a GPU host: the options of the module gpu_host, and the arguments of each part. Pure.

The variables of the role gpu_host have the same names with the prefix ``gpu_host_``, and the same types and defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host import bios_settings
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot.now_and_at_boot import KERNEL_SETTINGS
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel.kernel_arguments import IOMMU_MODES

# In the order in which they are compared and applied.
PARTS = ("bios", "packages", "kernel_arguments", "nic_firmware", "settings")
ACS_PURPOSES = {"auto": "virtual_machines", "bare_metal": "bare_metal", "unchanged": ""}
READS = [{"devices": ["gpu", "nvswitch", "nic", "nvme"], "max_read_request_bytes": 4096}]
KEPT_QUIET = {"governor": "performance", "numa_balancing": False, "ksm": False}


def options() -> dict[str, Any]:
    """Return the options of the module gpu_host as an argument_spec, without those of virtual machines."""
    texts: dict[str, Any] = {"type": "list", "elements": "str", "default": []}
    entries: dict[str, Any] = {"type": "list", "elements": "dict", "default": []}
    return {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "parts": {"type": "list", "elements": "str", "choices": list(PARTS), "default": list(PARTS)},
        "now": {"type": "bool", "default": True},
        "reboot_ok": {"type": "bool", "default": False},
        "outcomes": {"type": "bool", "default": False},
        "packages": {"type": "dict", "default": {}},
        "sockets": {"type": "dict", "default": {}},
        "bios_required": {
            "type": "list",
            "elements": "str",
            "choices": list(bios_settings.NAMES),
            "default": ["extensions", "iommu"],
        },
        "iommu": {"type": "str", "choices": [*IOMMU_MODES, "unchanged"], "default": "passthrough"},
        "hugepages": entries,
        "kernel_arguments": texts,
        "kernel_arguments_removed": texts,
        "sriov": entries,
        "vfio": texts,
        "vfio_released": texts,
        "keep_drivers_off": {"type": "bool", "default": True},
        "pci": {**entries, "default": READS},
        # A copy, because Ansible adds the suboptions that are not given to the default itself.
        "kernel_settings": {"type": "dict", "options": KERNEL_SETTINGS, "default": dict(KEPT_QUIET)},
        "acs": {"type": "raw", "default": "auto"},
        "acs_devices": {**texts, "default": ["gpu", "nic"]},
        "acs_at_boot": {"type": "bool", "default": True},
        "nic_firmware_by_family": {"type": "bool", "default": True},
        "nic_firmware": entries,
        "whole_host": {"type": "dict", "default": {}},
    }


def defaults() -> dict[str, Any]:
    """Return the default of each option."""
    return {name: option["default"] for name, option in options().items()}


def kernel_arguments(host: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``kernel_arguments.ensure`` from the options of ``host``. Raises RequestError."""
    arguments: dict[str, Any] = {
        "pages": host["hugepages"],
        "arguments": host["kernel_arguments"],
        "remove": host["kernel_arguments_removed"],
        "vfio_binding": _vfio_binding(host),
        "avic": host["kernel_settings"].get("avic"),
        "nic_firmware": host["nic_firmware"],
    }
    if host["iommu"] != "unchanged":
        arguments["iommu"] = host["iommu"]
    if host["acs_at_boot"] and _acs_purpose(host):
        arguments["acs_by_port"] = _acs_by_port(host)
    return arguments


def nic_firmware(host: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``nic_firmware.ensure``: ATS is as virtual machines need it, unless for bare metal."""
    purpose = "bare_metal" if host["acs"] == "bare_metal" else "virtual_machines"
    family = {"devices": host["acs_devices"], "purpose": purpose}
    return {"settings": host["nic_firmware"], "by_family": family if host["nic_firmware_by_family"] else None}


def settings(host: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``now_and_at_boot.ensure`` from the options of ``host``. Raises RequestError."""
    by_hand = [] if isinstance(host["acs"], str) else host["acs"]
    by_port = {"acs_by_port": _acs_by_port(host)} if _acs_purpose(host) else {}
    return {
        "now": host["now"],
        "hugepages": {"pages": host["hugepages"]},
        "sriov": {"functions": host["sriov"]},
        "vfio_binding": _vfio_binding(host),
        "pci_tuning": {"settings": [*host["pci"], *by_hand], **by_port},
        "kernel_settings": host["kernel_settings"],
    }


def _vfio_binding(host: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "devices": host["vfio"],
        "release": host["vfio_released"],
        "keep_drivers_off": host["keep_drivers_off"],
    }


def _acs_by_port(host: Mapping[str, Any]) -> dict[str, Any]:
    return {"devices": host["acs_devices"], "purpose": _acs_purpose(host)}


def _acs_purpose(host: Mapping[str, Any]) -> str:
    """Return the purpose of computed ACS; "" if ACS is left as it is or set by hand. Raises RequestError."""
    acs = host["acs"]
    if isinstance(acs, list):
        return ""
    if not isinstance(acs, str) or acs not in ACS_PURPOSES:
        raise RequestError(
            f"gpu_host: acs is {acs!r}, expected {', '.join(ACS_PURPOSES)} or a list of devices and acs",
            "correct gpu_host_acs",
        )
    if acs == "bare_metal" and host["vfio"]:
        raise RequestError(
            f"gpu_host: acs bare_metal turns off what keeps tenants apart, but vfio gives {', '.join(host['vfio'])} to "
            "guests",
            "set gpu_host_acs to auto, or leave gpu_host_vfio out",
        )
    return ACS_PURPOSES[acs]
