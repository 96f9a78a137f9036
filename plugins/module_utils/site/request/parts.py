# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the models and cables of a blueprint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.media import MEDIA
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.ranges import expand
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.settings import Section
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.spec import Medium, Model, PortGroup


def read_model(name: str, settings: Section) -> Model:
    """Return a type of device."""
    settings.only("units", "watts", "capped_watts", "part", "ports")
    watts = settings.number("watts")
    capped = settings.number("capped_watts", watts, maximum=watts)
    ports: dict[str, PortGroup] = {}
    owner: dict[str, str] = {}
    for group, section in settings.sections("ports"):
        ports[group] = _read_ports(group, section)
        for port in ports[group].names:
            if port in owner:
                raise section.refuse_setting(
                    "names", f"port {port} is listed twice, also in {owner[port]}", "correct the range of one of them"
                )
            owner[port] = group
    return Model(name, settings.integer("units", 1, 1, 60), watts, capped, settings.text("part", name), ports)


def _read_ports(name: str, settings: Section) -> PortGroup:
    settings.only("names", "interfaces", "speed_gbit_s", "nic_ports", "lldp")
    names = _expanded(settings, "names")
    interfaces = _expanded(settings, "interfaces") if "interfaces" in settings.data else names
    if len(interfaces) != len(names):
        raise settings.refuse_setting(
            "interfaces",
            f"there are {len(interfaces)} interfaces and {len(names)} names",
            "give one interface for each name",
        )
    nic_ports = settings.integer("nic_ports", 1, 1, 16)
    if len(names) % nic_ports:
        raise settings.refuse_setting(
            "nic_ports", f"{len(names)} ports are not a multiple of nic_ports", "correct names or nic_ports"
        )
    speed = settings.number("speed_gbit_s", minimum=0.1, maximum=3200)
    return PortGroup(name, names, interfaces, speed, nic_ports, settings.flag("lldp", True))


def _expanded(settings: Section, setting: str) -> tuple[str, ...]:
    names: list[str] = []
    for text in settings.texts(setting, None) or [settings.text(setting)]:
        try:
            names += expand(text)
        except ValueError as error:
            raise settings.refuse_setting(setting, str(error), "write it like Ethernet[0:248:8]") from None
    return tuple(names)


def read_media(settings: Section) -> Mapping[str, Medium]:
    """Return the types of cables by name: the known ones, and the blueprint's own, which replace known ones."""
    media = dict(MEDIA)
    for name in settings.data:
        section = settings.part(name)
        section.only("most_m", "stock_m")
        most_m: Any = section.data.get("most_m")
        # The setting is one length for all speeds, or a length for each speed.
        if isinstance(most_m, Mapping):
            lengths = section.part("most_m")
            by_speed = {}
            for speed in lengths.data:
                try:
                    by_speed[float(speed)] = lengths.number(speed, minimum=0.1, maximum=100_000)
                except ValueError:
                    raise lengths.refuse(f"{speed!r} is not a speed", "write a number in Gbit/s") from None
        else:
            by_speed = {0.0: section.number("most_m", minimum=0.1, maximum=100_000)}
        stock = section.data.get("stock_m", [])
        # Python's True is a number, too.
        if not isinstance(stock, list) or not all(type(length) in (int, float) and length > 0 for length in stock):
            raise section.refuse_setting("stock_m", f"{stock!r} is not a list of lengths", "write it like [1, 2, 3, 5]")
        media[name] = Medium(name, tuple(sorted(stock)), by_speed)
    return media
