# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Requests for vSphere: the common spec of a virtual machine, and what only vSphere has. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.given import values
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec

HARDWARE = re.compile(r"vmx-[0-9]{1,3}")
PASSTHROUGH = ("fixed", "dynamic")
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


@dataclass
class Request:
    """One requested virtual machine. ``networks`` are port groups, ``disks_mib`` the sizes of its disks."""

    spec: DomainSpec
    vsphere: VsphereSettings
    networks: list[str] = field(default_factory=list)
    disks_mib: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Return the virtual machine's name."""
        return self.spec.name


def parse(data: list[dict[str, Any]], sizes: bool = True) -> list[Request]:
    """Return checked requests from plain data. With ``sizes`` False nothing is made, so disks need no size.

    Raises DomainError on the first error.
    """
    common = [
        {key: value for key, value in item.items() if key not in OWN} if isinstance(item, dict) else item
        for item in data
    ]
    specs = parse_specs(common)
    return [_request(spec, item, sizes) for spec, item in zip(specs, data)]


def _request(spec: DomainSpec, data: dict[str, Any], sizes: bool) -> Request:
    given = data.get("vsphere") or {}
    known = [item.name for item in fields(VsphereSettings)]
    if not isinstance(given, dict) or set(given) - set(known):
        raise DomainError(
            f"vsphere: {given!r:.80} has unknown settings", f"valid settings: {', '.join(known)}", spec.name
        )
    for key, value in given.items():
        if value is not None and not isinstance(value, str):
            raise DomainError(f"vsphere.{key}: {value!r} is not text", "put it in quotes", spec.name)
    own = VsphereSettings(**{key: value for key, value in given.items() if value is not None})
    if own.passthrough not in PASSTHROUGH:
        raise DomainError(f"vsphere.passthrough: {own.passthrough!r} is unknown", "use fixed or dynamic", spec.name)
    if own.latency_sensitivity not in ("high", "normal"):
        raise DomainError(
            f"vsphere.latency_sensitivity: {own.latency_sensitivity!r} is unknown", "use high or normal", spec.name
        )
    if own.hardware_version and not HARDWARE.fullmatch(own.hardware_version):
        raise DomainError(
            f"vsphere.hardware_version: {own.hardware_version!r} is not a hardware version",
            "write it like vmx-21",
            spec.name,
        )
    disks_mib = [_size(disk, number, spec.name) for number, disk in enumerate(data.get("disks") or [])] if sizes else []
    for number, interface in enumerate(spec.interfaces):
        if not interface.source:
            raise DomainError(f"interfaces[{number}]: no source", "name a port group as source", spec.name)
    return Request(spec, own, [str(item.source) for item in spec.interfaces], disks_mib)


def _size(disk: Any, number: int, name: str) -> int:
    """Return the size of a disk in MiB. Path, base and format are for libvirt only."""
    try:
        return values.whole(disk.get("size_mib") if isinstance(disk, dict) else None, 1, DISK_MIB_MAX, "MiB")
    except values.InvalidValueError as error:
        raise DomainError(
            f"disks[{number}]: no size_mib ({error.cause}); vSphere makes a new disk of that size in the datastore",
            "give size_mib",
            name,
        ) from error
