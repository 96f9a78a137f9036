# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The service that restores the settings of a GPU host after a reboot."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import boot, unit

SETTINGS = "/etc/sailloft/gpu_host.json"
CODE = "/usr/lib/sailloft/gpu_host.pyz"
UNIT = "sailloft-gpu-host.service"
# udev rules start driverctl's own units. If they ran at the same time as this unit, both could rebind the same device.
ORDER_FILE = "/etc/systemd/system/driverctl@.service.d/sailloft.conf"
ORDER = f"""# Written by sailloft.fleet.gpu_host_boot; changes here are lost.
[Unit]
Before={UNIT}
"""
SERVICE = unit.BootService(
    module="gpu_host_boot",
    start=boot.__name__,
    settings=SETTINGS,
    code=CODE,
    unit=UNIT,
    description="VFs, VFIO bindings, huge pages and PCIe settings of a GPU host",
    # tuned sets some of the same settings when it starts, so it must run first.
    after=("tuned.service",),
    # libvirt is either one daemon, or one daemon per driver. A guest that starts earlier would find no VFs, no huge
    # pages and ACS off.
    before=("libvirtd.service", "virtqemud.service", "libvirt-guests.service"),
    others={ORDER_FILE: ORDER},
)
UNIT_FILE = SERVICE.unit_file
WANTS = SERVICE.wants
