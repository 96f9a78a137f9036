# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Expand the devices: names, racks and units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.blocks import racks_in
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Block, SiteDevice
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.names import HOST_NAME, template
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.read import DEVICES_MAX, NUMBERS
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.spec import SITE, Blueprint, DeviceKind, Model


def expand_devices(
    blueprint: Blueprint, blocks: Mapping[str, list[Block]]
) -> tuple[dict[str, SiteDevice], dict[str, list[SiteDevice]]]:
    """Return all devices by name and by kind. Raises SiteError where two devices have the same name."""
    devices: dict[str, SiteDevice] = {}
    by_kind: dict[str, list[SiteDevice]] = {}
    for kind in blueprint.kinds.values():
        kind_devices = _placed(blueprint, kind, kind.model, blocks) if kind.model else _virtual(kind, by_kind[kind.on])
        by_kind[kind.name] = kind_devices
        for device in kind_devices:
            same_name = devices.setdefault(device.name, device)
            if same_name is not device:
                raise SiteError(
                    f"two devices are called {device.name}: number {same_name.number} of {same_name.kind.name} "
                    f"and number {device.number} of {kind.name}",
                    "name the devices by {n}, or by {i} and their block",
                    subject=f"devices.{kind.name}.name",
                    where=blueprint.where("devices", kind.name, "name"),
                )
    for name in devices:
        if not HOST_NAME.fullmatch(name):
            kind = devices[name].kind
            raise SiteError(
                f"{name!r} is not a valid host name",
                "shorten the template",
                subject=f"devices.{kind.name}.name",
                where=blueprint.where("devices", kind.name, "name"),
            )
    return devices, by_kind


def _placed(
    blueprint: Blueprint, kind: DeviceKind, model: Model, blocks: Mapping[str, list[Block]]
) -> list[SiteDevice]:
    total = min(kind.count * len(blocks[kind.per]), kind.total)
    if total > DEVICES_MAX:
        raise SiteError(
            f"{total} devices exceed the maximum of {DEVICES_MAX}",
            "correct the counts",
            subject=f"devices.{kind.name}.count",
            where=blueprint.where("devices", kind.name, "count"),
        )
    label = template(kind.label, (*NUMBERS, SITE, *blueprint.blocks))
    devices: list[SiteDevice] = []
    for block in blocks[kind.per]:
        racks = racks_in(block, kind.rack)
        count = min(kind.count, kind.total - len(devices))
        used: Counter[int] = Counter()
        for index in range(count):
            rack_index = index * len(racks) // kind.count
            rack = racks[rack_index]
            number = len(devices) + 1
            name = label({**rack.numbers, **block.numbers, "n": number, "i": index + 1})
            unit = kind.unit + used[rack_index] * model.units
            used[rack_index] += 1
            device = SiteDevice(kind, name, number, index, block, rack, unit)
            devices.append(device)
            rack.devices.append(device)
    return devices


def _virtual(kind: DeviceKind, hosts: list[SiteDevice]) -> list[SiteDevice]:
    label = template(kind.label, (*NUMBERS, *hosts[0].rack.numbers))
    devices = []
    for host in hosts:
        name = label({**host.rack.numbers, "n": host.number, "i": host.index + 1})
        device = SiteDevice(kind, name, host.number, host.index, host.block, host.rack, host.unit)
        device.host = host
        devices.append(device)
    return devices
