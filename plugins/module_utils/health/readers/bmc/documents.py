# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Redfish's documents of power supplies, fans, temperatures and systems as measurements. Pure.

Properties that a BMC does not have, or gives with another type, are not measured. A member of a list that is no object
counts as one without properties, so that no part is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Measurement, Place

SUPPLIES = "power supplies"
# DMTF's values of Status.Health and of Status.State.
OK, SICK = "OK", ("Warning", "Critical")
ABSENT, OFF = "Absent", ("Disabled", "StandbyOffline", "Qualified", "NotQualified")
LOST = ("UnavailableOffline", "Degraded")
OTHER_STATES = ("Enabled", "StandbySpare", "InTest", "Starting", "Deferring", "Quiesced", "Updating")
STATES = (ABSENT, *OFF, *LOST, *OTHER_STATES)
# A larger number is no reading of a sensor.
MOST = 1e9
# LineInputStatus: the values that are faults, and the good one.
INPUT_LOST, INPUT_GOOD = ("LossOfInput", "OutOfRange"), "Normal"
# Groups that are without redundancy on purpose: RedundancyType, and the old Mode.
NOT_REDUNDANT = ("NotRedundant", "NonRedundant")

Document = Mapping[str, Any]


def part(document: Document, key: str) -> dict[str, Any]:
    """Return an object in a document, an empty one if it is none."""
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def parts(value: object) -> list[dict[str, Any]]:
    """Return the objects of a list, none without a list; what is no object is an empty one."""
    if value is None:
        return []
    return [item if isinstance(item, dict) else {} for item in value] if isinstance(value, list) else [{}]


def link(value: object) -> str:
    """Return the path that an object links to, "" if it is no path of the BMC itself."""
    path = value.get("@odata.id") if isinstance(value, dict) else None
    is_path = isinstance(path, str) and path.startswith("/") and not path.startswith("//")
    return (
        path if is_path and isinstance(path, str) and path.isascii() and path.isprintable() and " " not in path else ""
    )


def links(value: object) -> list[str]:
    """Return the paths of a list of links, "" for what is no link."""
    return [*map(link, parts(value))]


def _name(document: Document, default: str) -> str:
    """Return the BMC's name of a part. Old resources have no Id; there the label on the chassis or a name counts."""
    label = part(part(document, "Location"), "PartLocation").get("ServiceLabel")
    for value in (document.get("Id"), label, document.get("Name"), document.get("MemberId"), default):
        if isinstance(value, str) and value.strip():
            return value.strip()
    return default


def _status(document: Document) -> tuple[str, str]:
    """Return Status.State and Status.Health, "" where the BMC gives none. What DMTF does not know is in the text."""
    status = part(document, "Status")
    state, health = status.get("State"), status.get("Health")
    if state is not None and state not in STATES:
        state = f"{state!s:.40} is unknown"
    return str(state or ""), health if isinstance(health, str) else ""


def _flag(check: str, place: Place, document: Document) -> Measurement:
    """Return a part's health as a flag."""
    state, health = _status(document)
    source = f"Redfish {document.get('@odata.id', place.name)!s:.200}: Status"
    if health in SICK or state in LOST:
        return Measurement(check, place, True, source, f"Health {health or 'not given'}, State {state or 'not given'}")
    is_known = health == OK and state in ("", *STATES)
    reason = "" if is_known else f"Health {health or 'not given'}, State {state or 'not given'}"
    return Measurement(check, place, False if is_known else None, source, reason)


def power_supplies(supplies: Sequence[Document]) -> Iterator[Measurement]:
    """Return the measurements of each supply, and how many there are. Without any it says nothing."""
    present = unknown = 0
    for index, supply in enumerate(supplies):
        place = Place("bmc", _name(supply, f"power supply {index}"))
        if _status(supply)[0] == ABSENT:
            continue
        present += 1
        unknown += not part(supply, "Status")
        line_input = supply.get("LineInputStatus")
        source = f"Redfish {supply.get('@odata.id', place.name)!s:.200}: LineInputStatus"
        voltage = _number(supply.get("LineInputVoltage"))
        if line_input in INPUT_LOST:
            # The supply is sick because it has no input: one fault.
            yield Measurement("bmc_power_input", place, True, source, str(line_input))
            continue
        if line_input == INPUT_GOOD:
            yield Measurement("bmc_power_input", place, False, source, INPUT_GOOD)
        elif voltage is not None and voltage >= 0:
            yield Measurement(
                "bmc_power_input", place, voltage == 0, source.replace("Status", "Voltage"), f"{voltage:g} V"
            )
            if voltage == 0:
                continue
        else:
            yield Measurement(
                "bmc_power_input", place, None, source, "this BMC does not say whether there is input power"
            )
        yield _flag("bmc_power_supply", place, supply)
    if supplies:
        yield Measurement(
            "bmc_power_supplies",
            Place("bmc", SUPPLIES),
            None if unknown else present,
            "Redfish: power supplies that are present",
            f"{unknown} of {present} cannot be read" if unknown else "",
        )


def redundancy(value: object) -> Iterator[Measurement]:
    """Return whether each group that should be redundant is."""
    for index, group in enumerate(parts(value)):
        state = _status(group)[0]
        if group.get("RedundancyType") in NOT_REDUNDANT or group.get("Mode") in NOT_REDUNDANT or state in OFF:
            continue
        if group.get("RedundancyEnabled") is False:
            continue
        members = parts(group.get("RedundancyGroup")) or parts(group.get("RedundancySet"))
        name = group.get("Name") if isinstance(group.get("Name"), str) else f"redundancy group {index}"
        yield _flag("bmc_redundancy", Place("bmc", f"{name} of {_names(members)}" if members else str(name)), group)


def _names(members: Sequence[Document]) -> str:
    """Return the last words of the members' links: "Bay1, Bay2"."""
    paths = [str(member.get("@odata.id", "")).rstrip("/") for member in members]
    return ", ".join(path.rsplit("/", 1)[-1] for path in paths)


def power(document: Document) -> Iterator[Measurement]:
    """Return the measurements of the old resource Power."""
    # Its supplies have no Id, but names that may be the same.
    yield from power_supplies(_named(parts(document.get("PowerSupplies"))))
    yield from redundancy(document.get("Redundancy"))
    for voltage in parts(document.get("Voltages")):
        yield from _sensor("bmc_voltage", voltage, "ReadingVolts")


def _named(documents: Sequence[Document]) -> list[Document]:
    """Give each of several parts with one name its number."""
    names = [_name(item, "") for item in documents]
    return [
        item if names.count(name) == 1 else {**item, "Id": f"{name} {index}".strip()}
        for index, (item, name) in enumerate(zip(documents, names))
    ]


def fans(documents: Sequence[Document]) -> Iterator[Measurement]:
    """Return the health of each fan that is present."""
    for index, fan in enumerate(documents):
        if _status(fan)[0] != ABSENT:
            yield _flag("bmc_fan", Place("bmc", _name(fan, f"fan {index}")), fan)


def thermal_status(subsystem: Document) -> Iterator[Measurement]:
    """Return the health of the whole cooling."""
    if _status(subsystem)[1]:
        yield _flag("bmc_temperature", Place("bmc", "cooling"), subsystem)


def thermal(document: Document) -> Iterator[Measurement]:
    """Return the measurements of the old resource Thermal."""
    for fan in parts(document.get("Fans")):
        yield from _sensor("bmc_fan", fan, "Reading")
    for temperature in parts(document.get("Temperatures")):
        yield from _sensor("bmc_temperature", temperature, "ReadingCelsius")
    yield from redundancy(document.get("Redundancy"))


def _sensor(check: str, sensor: Document, key: str) -> Iterator[Measurement]:
    """Return the health of a sensor; without one, its reading against the thresholds that it has.

    A sensor without any of these shows nothing.
    """
    state, health = _status(sensor)
    if state in (ABSENT, *OFF):
        return
    place = Place("bmc", _name(sensor, "sensor"))
    if health:
        yield _flag(check, place, sensor)
        return
    names = (key, "UpperThresholdCritical", "LowerThresholdCritical")
    reading, upper, lower = (_number(sensor.get(name)) for name in names)
    source = f"Redfish {sensor.get('@odata.id', place.name)!s:.200}: {key}"
    malformed = [name for name in names if sensor.get(name) is not None and _number(sensor[name]) is None]
    if malformed or not sensor:
        yield Measurement(
            check, place, None, source, f"{malformed[0]} is no number" if malformed else "it is no object"
        )
        return
    if reading is None or (upper is None and lower is None):
        return
    is_beyond = (upper is not None and reading >= upper) or (lower is not None and reading <= lower)
    yield Measurement(check, place, is_beyond, source, f"{reading:g}, limits {_limit(lower)} to {_limit(upper)}")


def _number(value: object) -> float | None:
    """Return a number that a sensor can show, None for anything else: "N/A", NaN, 1e400."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and isinstance(value, (int, float)) and abs(value) < MOST else None


def _limit(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"


def health(system: Document, is_explained: bool) -> Measurement:
    """Return a system's health of all parts together. ``is_explained``: a part's fault already says more."""
    place, source = Place("bmc", f"system {_name(system, '')}".rstrip()), "Redfish: Status of the system"
    status = part(system, "Status")
    value = next((text for text in (status.get("HealthRollup"), status.get("Health")) if isinstance(text, str)), "")
    if value in SICK and is_explained:
        return Measurement("bmc_health", place, None, source, f"Health {value}, which the parts explain")
    is_known = value == OK or value in SICK
    reason = f"Health {value}" if is_known else "the BMC gives no Health of the system"
    return Measurement("bmc_health", place, value in SICK if is_known else None, source, reason)
