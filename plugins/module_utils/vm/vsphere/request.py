# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Requests for vSphere: the common spec of a virtual machine, and what only vSphere has. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs, refusal
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec

HARDWARE = re.compile(r"vmx-[0-9]{1,3}")
# Settings that are read here and not by the common parser.
OWN = ("vsphere", "disks")
# 62 TiB, the largest virtual disk (VMware Configuration Maximums).
DISK_MIB_MAX = 62 << 20


@dataclass
class VsphereSettings:
    """The element ``vsphere`` of a spec. ``host`` "" is any host of the cluster, ``datastore`` "" the only one.

    ``sriov_network`` is the port group of virtual functions; ``hardware_version`` "" the newest of the host.
    """

    host: str = ""
    datastore: str = ""
    guest_id: str = "otherLinux64Guest"
    hardware_version: str = ""
    passthrough: str = "fixed"
    device_group: str = ""
    sriov_network: str = ""
    latency_sensitivity: str = "high"


def _hardware(value: Any) -> str:
    text = values.text(value)
    if not HARDWARE.fullmatch(text):
        raise values.InvalidValueError(f"{text!r} is not a hardware version", "write it like vmx-21")
    return text


CHECKS: dict[str, values.Check] = {
    **{item.name: values.text for item in fields(VsphereSettings)},
    "passthrough": values.among("fixed", "dynamic"),
    "latency_sensitivity": values.among("high", "normal"),
    "hardware_version": _hardware,
}


@dataclass
class VsphereRequest:
    """One requested virtual machine. ``networks`` are port groups, ``disks_mib`` the sizes of its disks."""

    spec: DomainSpec
    vsphere: VsphereSettings
    networks: list[str] = field(default_factory=list)
    disks_mib: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Return the virtual machine's name."""
        return self.spec.name


def parse(data: list[dict[str, Any]], sizes: bool = True) -> list[VsphereRequest]:
    """Return checked requests from plain data. With ``sizes`` False nothing is made, so disks need no size.

    Raises DomainError on the first error.
    """
    common = [
        {key: value for key, value in item.items() if key not in OWN} if isinstance(item, dict) else item
        for item in data
    ]
    specs = parse_specs(common)
    return [_request(spec, item, sizes) for spec, item in zip(specs, data)]


def _request(spec: DomainSpec, data: dict[str, Any], sizes: bool) -> VsphereRequest:
    reader = Settings(refusal(spec.name), "vsphere", data.get("vsphere") or {})
    reader.only(*CHECKS)
    vsphere_settings = VsphereSettings(
        **{key: reader.value(key, CHECKS[key]) for key, text in reader.data.items() if text != ""}
    )
    disks_mib = [_size(disk, number, spec.name) for number, disk in enumerate(data.get("disks") or [])] if sizes else []
    for number, interface in enumerate(spec.interfaces):
        if not interface.source:
            raise DomainError(f"interfaces[{number}]: no source", "name a port group as source", domain=spec.name)
    return VsphereRequest(spec, vsphere_settings, [str(item.source) for item in spec.interfaces], disks_mib)


def _size(disk: Any, number: int, name: str) -> int:
    """Return the size of a disk in MiB. Path, base and format are for libvirt only."""
    try:
        return values.integer(disk.get("size_mib") if isinstance(disk, dict) else None, 1, DISK_MIB_MAX, "MiB")
    except values.InvalidValueError as error:
        raise DomainError(
            f"disks[{number}]: no size_mib ({error.cause}); vSphere makes a new disk of that size in the datastore",
            "give size_mib",
            domain=name,
        ) from error
