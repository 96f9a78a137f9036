# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel modules that drive GPUs, and those of them that must not load because guests have the GPUs. Pure.

The kernel never loads a module that its argument module_blacklist= names, neither in the initramfs nor on an explicit
modprobe (Linux Documentation/admin-guide/kernel-parameters.txt; kernel/module/main.c, blacklisted()). Files in
/etc/modprobe.d are read by modprobe only, and in the initramfs only if it has a copy of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import NVIDIA, is_virtual
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.kinds import ACCELERATOR_CLASSES
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

# Display and compute drivers by PCI vendor. Other modules of these vendors depend on one of them (nvidia_drm,
# nvidia_modeset, nvidia_uvm and nvidia_peermem on nvidia, nova_drm on nova_core). Sources: the MODULE_DEVICE_TABLE of
# Linux drivers/gpu/drm (nouveau, amdgpu, radeon, i915, xe), drivers/gpu/nova-core, drivers/video/fbdev/nvidia and
# drivers/accel/habanalabs; nv_pci_table of NVIDIA/open-gpu-kernel-modules (nvidia, also for NVSwitches).
MODULES: dict[int, tuple[str, ...]] = {
    0x10DE: ("nouveau", "nova_core", "nvidia", "nvidiafb"),
    0x1002: ("amdgpu", "radeon"),
    0x8086: ("i915", "xe"),
    0x1DA3: ("habanalabs",),
}
ARGUMENT = "module_blacklist="


def keep_off(host: Host, guest_addresses: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the modules that must not load, sorted, and the reasons why others may load, as text.

    ``guest_addresses``: the addresses of functions that belong to guests. A vendor's modules stay off if guests have
    all of its GPUs, NVSwitches and displays.
    """
    modules: list[str] = []
    reasons: list[str] = []
    of_guests = [host.function(address) for address in guest_addresses]
    for vendor in sorted({function.vendor_id for function in of_guests if _driven(function)} & set(MODULES)):
        host_addresses = [
            function.address
            for function in host.functions
            if function.vendor_id == vendor and _driven(function) and function.address not in guest_addresses
        ]
        if host_addresses:
            reasons.append(f"{', '.join(MODULES[vendor])} may load: {', '.join(host_addresses)} stays with the host")
        else:
            modules += MODULES[vendor]
    return sorted(modules), reasons


def of_any_host(vendors: Iterable[int] | None) -> list[str]:
    """Return the modules of these vendors, sorted, for hosts not read yet; None: of all vendors."""
    return sorted(
        module for vendor, names in MODULES.items() if vendors is None or vendor in vendors for module in names
    )


def kept_off(kernel_arguments: Iterable[str]) -> set[str]:
    """Return the modules that a kernel with these arguments does not load; the last of several arguments counts."""
    values = [argument for argument in kernel_arguments if argument.startswith(ARGUMENT)]
    return {name.replace("-", "_") for name in values[-1][len(ARGUMENT) :].split(",")} if values else set()


def following_switches(host: Host, guest_addresses: Collection[str]) -> list[Function]:
    """Return the NVSwitches of ``host`` if guests have all NVIDIA GPUs: the driver then runs only in guests."""
    gpus = [
        item.address
        for item in host.functions
        if item.kind == "gpu" and item.vendor_id == NVIDIA and not is_virtual(item)
    ]
    if not gpus or set(gpus) - set(guest_addresses):
        return []
    return [item for item in host.functions if item.kind == "nvswitch"]


def _driven(function: Function) -> bool:
    """Return True if a vendor's modules drive the function. VFs do not count: they come and go with their PF."""
    if function.physical_function:
        return False
    return function.kind in ("gpu", "nvswitch") or function.class_code >> 16 in ACCELERATOR_CLASSES
