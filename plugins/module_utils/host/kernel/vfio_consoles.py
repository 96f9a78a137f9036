# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Keep the firmware's framebuffer console off a GPU that a guest gets.

If the firmware has chosen a GPU as the display to boot with, the kernel's framebuffer drivers (efifb, vesafb,
simplefb) hold a part of its memory, and the guest cannot map it. Since Linux 6.0 vfio-pci removes these drivers itself
(commit d17378062079 "vfio/pci: Remove console drivers"). In older kernels sysfb_init must not run, because it creates
the devices that the drivers bind to (arch/x86/kernel/sysfb.c, since 5.15 drivers/firmware/sysfb.c; Linux
Documentation/admin-guide/kernel-parameters.txt, initcall_blacklist=). Not tested on a host with such a display.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import vfio_binding
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.kernel_release import includes
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host

REMOVED_BY_VFIO_SINCE = (6, 0)
ARGUMENT = "initcall_blacklist=sysfb_init"


def arguments(system: System, host: Host, binding: Any) -> list[str]:
    """Return the kernel arguments for the devices in ``binding``, as vfio_binding takes it. Raises HostError."""
    if includes(host.kernel_release, REMOVED_BY_VFIO_SINCE):
        return []
    displays = [
        function
        for function in vfio_binding.for_guests(binding, host)
        if system.read(f"/sys/bus/pci/devices/{function.address}/boot_vga") == "1"
    ]
    return [ARGUMENT] if displays else []
