# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The inventory's entries for accelerators that the table of kinds lacks or lists as another kind. Pure."""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import NVIDIA
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.kinds import ACCELERATOR_CLASSES
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

# The same form as other selectors have (topology/selectors.py): vendor:device, or all devices of a vendor.
IDS = re.compile(r"([0-9a-f]{4}):([0-9a-f]{4}|\*)")

# PCIe cards with connectors for NVLink bridges, by the names in pci.ids: A100 PCIe, A30, A40, H100 PCIe, H800 PCIe,
# H100 NVL and H200 NVL.
WITH_NVLINK_BRIDGES = (0x20B1, 0x20B5, 0x20B7, 0x20F1, 0x2235, 0x2321, 0x2322, 0x2331, 0x233B)


def recognise(host: Host, accelerators: dict[str, bool]) -> None:
    """Set the kind of functions that ``accelerators`` names ("1002:744c" or "1002:*" -> True if it is a GPU).

    An entry for a device takes precedence over an entry for its vendor. A name that matches nothing on this host is no
    error: servers of a fleet differ. Raises TopologyError for a malformed name, and for a named device that cannot be
    a GPU.
    """
    rules: dict[str, bool] = {}
    for name, is_gpu in accelerators.items():
        text = str(name).strip().lower()
        if not IDS.fullmatch(text) or not isinstance(is_gpu, bool):
            raise TopologyError(
                f"accelerators: {name!r}: {is_gpu!r} is not vendor:device with true or false",
                'write it like "1002:744c": true',
            )
        rules[text] = is_gpu
    for function in host.functions:
        vendor, device = f"{function.vendor_id:04x}", f"{function.device_id:04x}"
        exact, all_of_it = rules.get(f"{vendor}:{device}"), rules.get(f"{vendor}:*")
        possible = function.class_code >> 16 in ACCELERATOR_CLASSES and function.kind in ("gpu", "other")
        if exact and not possible:
            raise TopologyError(
                f"accelerators: {vendor}:{device} ({function.address}) has class {function.class_code:06x} and kind "
                f"{function.kind}, which is not an accelerator",
                "leave it out",
            )
        answer = all_of_it if exact is None else exact
        if possible and answer is not None:
            function.kind = "gpu" if answer else "other"


def models(functions: list[Function]) -> dict[str, list[str]]:
    """Return the addresses of ``functions`` by model ("10de:2330"), both in order."""
    addresses_of_model: dict[str, list[str]] = {}
    for function in functions:
        addresses_of_model.setdefault(f"{function.vendor_id:04x}:{function.device_id:04x}", []).append(function.address)
    return {model: sorted(addresses_of_model[model]) for model in sorted(addresses_of_model)}


def bridged(function: Function) -> bool:
    """Return True if NVLink bridges can join the GPU with some GPUs beside it; no recording says with which."""
    return function.vendor_id == NVIDIA and function.device_id in WITH_NVLINK_BRIDGES
