# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read what a BMC says over IPMI: its event log and its sensors, by ipmitool, which reads and never clears.

The log has the beginnings (Asserted) and ends (Deasserted) of states, and what happened once. A state without an end
counts until the sensor itself shows that it is over. What happened once is reported for a day, by the BMC's clock.
"""

from __future__ import annotations

import calendar
import hashlib
import math
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Event, Measurement, Place, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.bmc.target import Bmc
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError, run

LOG, SENSORS = ("-c", "sel", "elist"), ("sdr", "elist")
LOG_SOURCE, SENSORS_SOURCE = "ipmitool sel elist", "ipmitool sdr elist"
ASSERTED, DEASSERTED = "Asserted", "Deasserted"
# How long what happened once is reported.
NEWS_S = 24 * 3600.0
# By the type of a sensor and the event (IPMI 2.0, tables 42-1 and 42-3; ipmitool's ipmi_sel.h): the check.
CRITICAL = r"(?:Lower|Upper) (?:Critical|Non-recoverable) going"
TRANSITION = r"Transition to (?:Critical|Non-recoverable)"
STATES = (
    ("Power Supply", r"AC lost|AC out-of-range", "bmc_power_input"),
    ("Power Supply", r"Failure detected|Predictive failure|Config Error", "bmc_power_supply"),
    ("Power Unit", r"Redundancy Lost|Non-Redundant|Redundancy Degraded", "bmc_redundancy"),
    ("Fan", rf"{CRITICAL}|{TRANSITION}|Device Absent", "bmc_fan"),
    ("Fan", r"Redundancy Lost|Non-Redundant", "bmc_redundancy"),
    ("Temperature", rf"{CRITICAL}|{TRANSITION}", "bmc_temperature"),
    ("Voltage", rf"{CRITICAL}|{TRANSITION}", "bmc_voltage"),
)
ONCE = (
    ("Memory", r"Uncorrectable ECC", "bmc_memory"),
    ("Memory", r"Correctable ECC", "bmc_memory_corrected"),
    ("Critical Interrupt", r"PCI PERR|PCI SERR|Bus Uncorrectable|Bus Fatal|Bus Degraded", "bmc_pci_error"),
)
# Of the sensors that show a state now: the letters of ipmitool for critical and not recoverable thresholds.
BEYOND, WITHIN = ("cr", "nr", "lcr", "lnr", "ucr", "unr"), ("ok", "nc", "lnc", "unc")
NO_READING = "ns"
NUMBER = re.compile(r"#0x([0-9a-fA-F]{1,2})$")
# Records of makers and of Linux, which have no sensor.
WITHOUT_SENSOR = re.compile(r",(?:OEM record|Linux kernel panic)")
# All states of a power supply, as ipmitool (ipmi_sel.h) writes them.
SUPPLY_STATE = (
    r"(?:Presence detected|Failure detected|Predictive failure|(?:Power Supply )?AC lost|AC lost or out-of-range"
    r"|AC out-of-range, but present|Config Error[^,]*|Power Supply Inactive)"
)
SUPPLY_STATES = re.compile(rf"{SUPPLY_STATE}(?:, {SUPPLY_STATE})*")
# What a reading in a known unit begins with.
AMOUNT = re.compile(r"-?[0-9]{1,9}(?:\.[0-9]{1,9})? ")
# The units of a reading in `sdr elist` tell what a sensor measures.
UNITS = (
    ("degrees C", "bmc_temperature"),
    ("degrees F", "bmc_temperature"),
    ("RPM", "bmc_fan"),
    ("Volts", "bmc_voltage"),
)


@dataclass(frozen=True)
class EventLogEntry:
    """A line of the event log. ``moment``: date and time as the BMC shows them, in one of several forms."""

    number: str  # hexadecimal: "1ff"
    moment: str
    sensor: str  # type and name, or type and number: "Fan #0x80", "Voltage PVPP"
    event: str
    is_asserted: bool


@dataclass(frozen=True)
class Sensor:
    """A line of the list of sensors."""

    name: str  # "PSU2 Status"
    number: str  # "52"
    status: str  # "ok", "ns" (no reading), "cr"
    reading: str


def read(bmc: Bmc) -> Reading:
    """Measure a BMC in the network, with the account in the environment, not in the list of processes."""
    host, port = _address(bmc.address)
    connection = ["ipmitool", "-I", "lanplus", "-H", host, *port, "-U", bmc.username, "-E"]
    start = time.monotonic()
    end = start + bmc.timeout_s
    log = _run([*connection, *LOG], bmc.password, end)
    sensors = _run([*connection, *SENSORS], bmc.password, end)
    return replace(parse(log, sensors, time.time() - NEWS_S), seconds=time.monotonic() - start)


def _address(address: str) -> tuple[str, list[str]]:
    """Return the host of "10.0.0.7", "10.0.0.7:623" or "[fd00::7]:623", and the port's option."""
    match = re.fullmatch(r"\[([0-9a-fA-F:.]+)\](?::([0-9]{1,5}))?|([^:/]+)(?::([0-9]{1,5}))?", address)
    if match is None:
        return address, []
    port = match.group(2) or match.group(4)
    return match.group(1) or match.group(3), ["-p", port] if port else []


def _run(argv: Sequence[str], password: str, end: float) -> str:
    """Return what ipmitool prints. Its message on an error has no password, but may repeat parts of the command."""
    account = {"TZ": "UTC", "IPMI_PASSWORD": password, "IPMITOOL_PASSWORD": password}
    ran = run(argv, round(max(0.1, end - time.monotonic()), 1), environment=account)
    if ran.rc:
        message = ran.stderr.strip().splitlines()
        text = message[-1] if message else ""
        text = text.replace(password, "***") if password else text
        raise NotMeasuredError(f"ipmitool ended with {ran.rc}: {text:.200}")
    return ran.stdout


def parse(log: str, sensors: str, since_unix_s: float = 0.0) -> Reading:
    """Return the reading of the output of LOG and SENSORS. Raises NotMeasuredError if neither is one.

    ``since_unix_s``: what happened once before is not reported, but for a record without a date.
    """
    records, sensor_list = parse_log(log), parse_sensors(sensors)
    if not sensor_list and not records and (log.strip() or sensors.strip()):
        raise NotMeasuredError("ipmitool wrote neither a log nor sensors")
    unread = [*_unread("bmc_memory", "event log", LOG_SOURCE, filter(_is_no_record, log.splitlines()))]
    unread += _unread("bmc_temperature", "sensors", SENSORS_SOURCE, filter(_is_no_sensor, sensors.splitlines()))
    measurements = {(item.check, item.place): item for item in (*unread, *_of_sensors(sensor_list))}
    for state in _states(records, sensor_list):
        key = (state.check, state.place)
        # A sensor's reading of now is worth more than a line of the log.
        if key not in measurements:
            measurements[key] = state
        elif state.value and measurements[key].value is False:
            measurements[key] = Measurement(
                *key, False, SENSORS_SOURCE, f"the log has no end of {state.reason!r}, but the sensor shows none"
            )
    news = [record for record in records if (_unix_s(record) or math.inf) >= since_unix_s]
    return Reading("ipmi", tuple(measurements.values()), tuple(_events(news, sensor_list)))


def parse_log(text: str) -> list[EventLogEntry]:
    """Return the records of `ipmitool -c sel elist` that have a sensor; those of makers (OEM) have none.

    The texts of events may contain commas, which ipmitool does not quote.
    """
    return [*filter(None, map(_record, text.splitlines()))]


def _record(line: str) -> EventLogEntry | None:
    fields = [field.strip() for field in line.split(",")]
    direction = next((place for place, field in enumerate(fields) if field in (ASSERTED, DEASSERTED)), 0)
    moment, event = " ".join(fields[1:3]), ", ".join(fields[4:direction])
    # Names of sensors are the maker's, the events ipmitool's own.
    if direction < 5 or not re.fullmatch("[0-9a-fA-F]{1,4}", fields[0]) or not event.isascii():
        return None
    return EventLogEntry(fields[0].lower(), moment, fields[3], event, fields[direction] == ASSERTED)


def _is_no_record(line: str) -> bool:
    return _is_odd(line, _record(line) or WITHOUT_SENSOR.search(line))


def parse_sensors(text: str) -> list[Sensor]:
    """Return the sensors of `ipmitool sdr elist`: "PSU1 Status | 51h | ok | 10.1 | Presence detected"."""
    return [*filter(None, map(_sensor, text.splitlines()))]


def _sensor(line: str) -> Sensor | None:
    fields = [field.strip() for field in line.split("|")]
    if len(fields) != 5 or not re.fullmatch("[0-9a-fA-F]{2}h", fields[1]):
        return None
    if fields[2] not in (*BEYOND, *WITHIN, NO_READING) or not fields[4].isascii():
        return None
    return Sensor(fields[0], fields[1][:2].lower(), fields[2], fields[4])


def _is_no_sensor(line: str) -> bool:
    return _is_odd(line, _sensor(line))


def _is_odd(line: str, parsed: object) -> bool:
    """Return True of a line of another form, or with bytes that are no text: its event may be another."""
    return bool(line.strip()) and (not parsed or not line.isprintable() or "\ufffd" in line)


def _unread(check: str, name: str, source: str, lines: Iterable[str]) -> Iterator[Measurement]:
    """Return that lines could not be read: the others say nothing of what is in these."""
    number = len([*lines])
    if number:
        yield Measurement(check, Place("bmc", name), None, source, f"lines that cannot be read: {number}")


def _identity(record: EventLogEntry) -> str:
    """Return what names a record: numbers are used again after somebody cleared the log."""
    text = "|".join((record.number, record.moment, record.sensor, record.event, str(record.is_asserted)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _unix_s(record: EventLogEntry) -> float | None:
    """Return the time of a record, None before the BMC knew it ("Pre-Init"). Versions of ipmitool write two forms."""
    fields = record.moment.split()[:2]
    for form in ("%m/%d/%y %H:%M:%S", "%m/%d/%Y %H:%M:%S"):
        try:
            return float(calendar.timegm(time.strptime(" ".join(fields), form)))
        except ValueError:
            continue
    return None


def _check(record: EventLogEntry, table: Sequence[tuple[str, str, str]]) -> str:
    matching = (
        check for kind, event, check in table if record.sensor.startswith(kind) and re.search(event, record.event)
    )
    return next(matching, "")


def _sensor_of(record: EventLogEntry, sensors: Iterable[Sensor]) -> Sensor | None:
    """Return the sensor of a record, by its number or by its name behind the type."""
    number = NUMBER.search(record.sensor)
    for sensor in sensors:
        if number and int(number.group(1), 16) == int(sensor.number, 16):
            return sensor
        if not number and record.sensor.endswith(f" {sensor.name}"):
            return sensor
    return None


def _place(record: EventLogEntry, sensors: Iterable[Sensor]) -> Place:
    sensor = _sensor_of(record, sensors)
    return Place("bmc", sensor.name if sensor else record.sensor)


def _states(records: Sequence[EventLogEntry], sensors: Sequence[Sensor]) -> list[Measurement]:
    """Return each state of the log with its last value: begun, or ended. One place may have several of a check."""
    last: dict[tuple[str, Place, str], EventLogEntry] = {}
    for record in records:
        check = _check(record, STATES)
        if check:
            last[check, _place(record, sensors), record.event] = record
    measurements: dict[tuple[str, Place], Measurement] = {}
    for (check, place, event), record in last.items():
        if (check, place) not in measurements or record.is_asserted:
            reason = f"{event}, {record.moment}" if record.is_asserted else f"{event}: over since {record.moment}"
            measurements[check, place] = Measurement(check, place, record.is_asserted, LOG_SOURCE, reason)
    return list(measurements.values())


def _events(records: Iterable[EventLogEntry], sensors: Sequence[Sensor]) -> Iterator[Event]:
    for record in records:
        check = _check(record, ONCE)
        if check and record.is_asserted:
            text = f"{record.moment}: {record.sensor}, {record.event}"
            yield Event(check, _place(record, sensors), text, LOG_SOURCE, _identity(record))


def _of_sensors(sensors: Iterable[Sensor]) -> Iterator[Measurement]:
    """Return what the sensors show now. One without a reading shows nothing."""
    for sensor in sensors:
        place = Place("bmc", sensor.name)
        # What is critical in another unit, Watts or Amps, has no check of its own.
        default = "bmc_health" if sensor.status in BEYOND else ""
        check = next((check for unit, check in UNITS if sensor.reading.endswith(unit)), default)
        if check and sensor.status in (*BEYOND, *WITHIN):
            is_beyond = sensor.status in BEYOND
            value = is_beyond if is_beyond or AMOUNT.match(sensor.reading) else None
            yield Measurement(check, place, value, SENSORS_SOURCE, sensor.reading)
        elif sensor.status == "ok" and "Presence detected" in sensor.reading:
            # Only a power supply's sensor shows this together with the states below.
            absent = False if SUPPLY_STATES.fullmatch(sensor.reading) else None
            for kind, event, check in STATES:
                if kind == "Power Supply":
                    value = True if re.search(event, sensor.reading) else absent
                    yield Measurement(check, place, value, SENSORS_SOURCE, sensor.reading)
