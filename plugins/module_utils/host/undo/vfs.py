# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read and restore the VFs of a physical function: count, drivers, mode of the switch, settings."""

from __future__ import annotations

import os
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import (
    eswitch,
    libvirt_vfs,
    sriov,
    vf_settings,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices.vf_request import VfRequest

COUNT, AUTOPROBE = "sriov_numvfs", "sriov_drivers_autoprobe"
FILES = (COUNT, AUTOPROBE)


def changed_by(system: System, argv: list[str], stdin: str | None) -> list[str]:
    """Return the addresses of the physical functions whose VFs or switch a command changes."""
    if argv[:4] == eswitch.SET:
        return [eswitch.address_of(argv[4])]
    if argv[:2] != ["ip", "-batch"]:
        return []
    # /sys/class/net/NAME leads to /sys/devices/.../ADDRESS/net/NAME.
    places = [system.path(f"/sys/class/net/{name}") for name in vf_settings.interfaces_of(stdin or "")]
    return [os.path.realpath(place).split("/")[-3] for place in places]


def read(system: System, address: str) -> dict[str, Any] | None:
    """Return the state of a physical function's VFs; None if the function is gone.

    ``settings``: those that the driver reports, by index as text.
    """
    count = system.read(f"{vf_settings.DEVICES}/{address}/{COUNT}")
    if count is None:
        return None
    settings: dict[str, dict[str, Any]] = {}
    if vf_settings.interfaces(system, address):
        for index, reported in vf_settings.read(system, address).vfs.items():
            settings[str(index)] = {name: value for name, value in reported.items() if value is not None}
    return {
        "count": int(count),
        "drivers_autoprobe": system.read(f"{vf_settings.DEVICES}/{address}/{AUTOPROBE}"),
        "eswitch_mode": _mode(system, address),
        "settings": settings,
    }


def restore(system: System, address: str, former: dict[str, Any]) -> None:
    """Restore the VFs to the state ``former``. Raises HostError."""
    now = read(system, address)
    if now is None:
        return
    libvirt_vfs.refuse_removal(system, address, former["count"])
    if former["drivers_autoprobe"] not in (None, now["drivers_autoprobe"]):
        system.poke(f"{vf_settings.DEVICES}/{address}/{AUTOPROBE}", former["drivers_autoprobe"])
    remode = former["eswitch_mode"] not in (None, now["eswitch_mode"])
    if remode or now["count"] != former["count"]:
        request = VfRequest(former["count"], None, former["eswitch_mode"])
        sriov.remake(system, address, now["count"], request, remode)
        now = read(system, address) or now
    batch = []
    for index, settings in former["settings"].items():
        current = now["settings"].get(index, {})
        differing = {name: value for name, value in settings.items() if current.get(name) != value}
        if differing:
            interface = vf_settings.read(system, address).interface
            batch.append((vf_settings.line(interface, int(index), differing), f"VF {index} of {address}"))
    vf_settings.apply(system, batch)


def _mode(system: System, address: str) -> str | None:
    try:
        return eswitch.mode(system, address)
    except HostError:
        return None  # its driver has no embedded switch
