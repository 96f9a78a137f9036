# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""PCIe AtomicOps of GPUs: which GPUs need them, and whether the ports above complete and route them. Pure.

Sources: Linux drivers/gpu/drm/amd/amdgpu/amdgpu_device.c, which enables AtomicOps of 32 and 64 bits, or reports "PCIE
atomic ops is not supported", and asks a virtual function's host driver instead; drivers/pci/pci.c,
pci_enable_atomic_ops_to_root. Drivers of other vendors run without AtomicOps.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

AMD = 0x1002
SIZES_BITS = {32, 64}


def needed(function: Function) -> bool:
    """Return True for a GPU whose driver needs AtomicOps that a root port completes."""
    return function.kind == "gpu" and function.vendor_id == AMD and function.physical_function is None


def obstacle(host: Host, address: str) -> str | None:
    """Return the reason why a GPU's AtomicOps do not reach memory, or None. See ``is_path_read``."""
    path = host.path(address)
    for function, label in ((path[0], "the root port above"), (path[-1], "the GPU itself")):
        if function.atomic_ops and not set(function.atomic_ops.completes_bits) >= SIZES_BITS:
            return f"{label} does not complete those of 32 and 64 bits"
    for switch in path[1:-1]:
        ops = switch.atomic_ops
        if ops and (not ops.routes or (switch.port_type == "switch_upstream" and ops.blocks_egress)):
            return "a switch above does not pass them"
    return None


def is_path_read(host: Host, address: str) -> bool:
    """Return True if the capabilities of all functions from a GPU to its root port were read."""
    path = host.path(address)
    return len(path) > 1 and all(function.atomic_ops for function in path)
