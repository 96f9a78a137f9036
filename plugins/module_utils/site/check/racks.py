# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check the units and the power of racks, with and without a failed supply, and the lengths of cables."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.site.check.finding import BrokenRule
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Block, Site


def check_racks(site: Site) -> Iterator[BrokenRule]:
    """Return the findings about units and power of the racks; racks with the same fault are one finding."""
    faults: dict[tuple[str, str, str], list[str]] = {}
    for rack in site.racks:
        for rule, message in (*_units(rack), *_power(rack)):
            faults.setdefault((rule, message, rack.kind), []).append(rack.name)
    for (rule, message, block), racks in faults.items():
        yield BrokenRule(rule, fold(racks), message, site.blueprint.where("blocks", block))


def _units(rack: Block) -> Iterator[tuple[str, str]]:
    spec = rack.rack_spec
    used: dict[int, str] = {}
    for device in rack.devices:
        for unit in range(device.unit, device.unit + device.model.units):
            if unit > spec.units:
                yield (
                    "rack units",
                    f"{device.kind.name} number {device.index + 1} needs unit {unit}, but the rack has {spec.units}",
                )
                break
            occupant = used.setdefault(unit, device.name)
            if occupant != device.name:
                yield "rack units", f"unit {unit} is assigned to two devices, one of them a {device.kind.name}"
                break


def _power(rack: Block) -> Iterator[tuple[str, str]]:
    spec = rack.rack_spec
    if not spec.supplies:
        return
    models = [device.model for device in rack.devices]
    watts, capped = sum(model.watts for model in models), sum(model.capped_watts for model in models)
    all_watts = spec.supplies * spec.supply_watts
    if watts > all_watts:
        yield "rack power", f"{watts:g} W exceed the capacity of {spec.supplies} supplies of {spec.supply_watts:g} W"
        return
    remaining_watts = all_watts - spec.supply_watts
    if spec.supplies == 1 or watts <= remaining_watts:
        return
    if capped > remaining_watts:
        yield (
            "rack power with a failed supply",
            f"{capped:g} W after the power brake ({watts:g} W before) exceed the remaining {remaining_watts:g} W",
        )
    elif not spec.brake_s < spec.breaker_s:
        yield (
            "rack power with a failed supply",
            f"{watts:g} W overload the remaining {remaining_watts:g} W for {spec.brake_s:g} s until the servers brake, "
            f"but breakers hold for {spec.breaker_s:g} s",
        )


def check_lengths(site: Site) -> Iterator[BrokenRule]:
    """Return the findings about cables that are too long for their medium, by link rule and length."""
    long: dict[tuple[str, float, float, float], list[str]] = {}
    for cable in site.cables:
        limit = cable.rule.medium.limit_m(cable.speed_gbit_s)
        if limit is not None and cable.route_m > limit:
            key = (cable.rule.name, cable.speed_gbit_s, cable.route_m, limit)
            long.setdefault(key, []).append(f"{cable.a.name} {cable.a_port} - {cable.b.name} {cable.b_port}")
    by_rule: dict[tuple[str, float, float], tuple[float, str, int]] = {}
    for (rule, speed, route, limit), cables in long.items():
        longest, example, count = by_rule.get((rule, speed, limit), (0.0, "", 0))
        longest, example = max((longest, example), (route, cables[0]))
        by_rule[rule, speed, limit] = (longest, example, count + len(cables))
    media = {rule.name: rule.medium.name for rule in site.blueprint.links}
    for (rule, speed, limit), (longest, example, count) in by_rule.items():
        yield BrokenRule(
            "cable length",
            example,
            f"its route is {longest:g} m long, but {media[rule]} supports {speed:g} Gbit/s over at most {limit:g} m; "
            f"{count} cables of {rule} are too long",
            site.blueprint.where("links", rule, "medium"),
        )
