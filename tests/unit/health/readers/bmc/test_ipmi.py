# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A BMC's event log and sensors become states that begin and end, and events that are reported once."""

from __future__ import annotations

import os

import pytest
from health_nodes import failed, unmeasured, values
from hypothesis import given
from hypothesis import strategies as st
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.bmc.ipmi import (
    parse,
    parse_log,
    parse_sensors,
    read,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.bmc.target import Bmc
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError

SENSORS = """\
PSU1 Status      | 51h | ok  | 10.1 | Presence detected
PSU2 Status      | 52h | ns  | 10.2 | No Reading
FAN3             | 80h | ok  | 29.3 | 8400 RPM
Inlet Temp       | 70h | ok  | 55.1 | 24 degrees C
"""
LOST = "1ff,08/15/26,23:45:40 UTC,Power Supply #0x52,Power Supply AC lost,{}"


def reading(*lines, sensors=SENSORS, since_unix_s=0.0):
    """Return the reading of a log with these lines."""
    return parse("\n".join(lines), sensors, since_unix_s)


def test_an_empty_log_and_good_sensors_pass():
    once = reading()
    assert failed(once) == {}
    assert once.events == ()
    assert set(values(once).values()) == {False}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (LOST.format("Asserted"), {"bmc_power_input": ["PSU2 Status"]}),
        ("2,11/26/2026,22:22:43,Power Supply #0x52,Failure detected,Asserted", {"bmc_power_supply": ["PSU2 Status"]}),
        (
            "26,09/15/2022,15:34:46,Voltage PVPP,Lower Non-recoverable going low,Asserted,Reading 0.12 < 2.17",
            {"bmc_voltage": ["Voltage PVPP"]},
        ),
        ("7,11/26/26,22:22:46 GMT,Fan #0x81,Lower Critical going low ,Asserted", {"bmc_fan": ["Fan #0x81"]}),
        ("8,11/26/26,22:22:46,Power Unit PSUs,Redundancy Lost,Asserted", {"bmc_redundancy": ["Power Unit PSUs"]}),
        # No fault: below critical, over, or of a kind without a rule.
        ("a,07/05/2017,03:17:30,Temperature PECI CPU1,Upper Non-critical going high,Asserted,Reading 144", {}),
        (LOST.format("Deasserted"), {}),
        ("9,04/20/2017,06:03:07,Watchdog2 #0xca,Timer interrupt (),Asserted", {}),
        ("1,Pre-Init,0000000001,Event Logging Disabled SEL,Log area reset/cleared,Asserted", {}),
        ("c,11/26/26,22:22:46,OEM record c0,000000,000000000000", {}),
    ],
)
def test_each_state_is_a_fault_at_its_sensor(line, expected):
    assert failed(reading(line)) == expected


def test_a_state_ends_with_its_own_end_only():
    other = "200,08/15/26,23:46:00 UTC,Power Supply #0x53,Power Supply AC lost,Deasserted"
    assert failed(reading(LOST.format("Asserted"), other)) == {"bmc_power_input": ["PSU2 Status"]}
    assert failed(reading(LOST.format("Asserted"), other, LOST.format("Deasserted"))) == {}
    again = (LOST.format("Asserted"), LOST.format("Deasserted"), LOST.format("Asserted"))
    assert failed(reading(*again)) == {"bmc_power_input": ["PSU2 Status"]}


def test_a_sensor_that_shows_no_fault_now_ends_a_state_without_an_end():
    line = "1ff,08/15/2016,23:45:40,Power Supply PSU1 Status,Power Supply AC lost,Asserted"
    assert failed(reading(line)) == {}
    assert values(reading(line))["bmc_power_input", "PSU1 Status"] is False
    assert failed(reading("7,11/26/26,22:22:46,Fan FAN3,Lower Critical going low,Asserted")) == {}


@pytest.mark.parametrize(
    ("sensor", "expected"),
    [
        (
            "PSU1 Status | 51h | ok | 10.1 | Presence detected, Power Supply AC lost",
            {"bmc_power_input": ["PSU1 Status"]},
        ),
        ("PSU1 Status | 51h | ok | 10.1 | Presence detected, Failure detected", {"bmc_power_supply": ["PSU1 Status"]}),
        ("FAN3 | 80h | lcr | 29.3 | 200 RPM", {"bmc_fan": ["FAN3"]}),
        ("FAN3 | 80h | cr | 29.3 | 200 RPM", {"bmc_fan": ["FAN3"]}),
        ("FAN3 | 80h | nc | 29.3 | 3000 RPM", {}),
        ("FAN4 | 81h | ns | 29.4 | No Reading", {}),
        ("Inlet Temp | 70h | unr | 55.1 | 60 degrees C", {"bmc_temperature": ["Inlet Temp"]}),
        ("12V | 30h | cr | 7.1 | 10.1 Volts", {"bmc_voltage": ["12V"]}),
        ("Sys Power | 31h | ucr | 7.1 | 3400 Watts", {"bmc_health": ["Sys Power"]}),
        ("Sys Power | 31h | ok | 7.1 | 340 Watts", {}),
    ],
)
def test_each_sensor_that_shows_a_fault_now_is_one(sensor, expected):
    assert failed(reading(sensors=sensor)) == expected


@pytest.mark.parametrize("day", ["11/26/26", "11/26/2026"])
def test_what_happened_once_is_reported_for_a_time_and_without_a_date_always(day):
    lines = (
        f"2,{day},22:22:43 GMT,Memory #0x60,Correctable ECC,Asserted",
        f"4,{day},22:22:44,Critical Interrupt #0x90,PCI PERR,Asserted",
        "5,Pre-Init,0000000001,Memory #0x61,Uncorrectable ECC,Asserted",
    )
    second = 1795731763.0  # 2026-11-26 22:22:43 UTC
    checks = ["bmc_memory_corrected", "bmc_pci_error", "bmc_memory"]
    for number, since_unix_s in enumerate((second, second + 1, second + 2)):
        assert [event.check for event in reading(*lines, since_unix_s=since_unix_s).events] == checks[number:]
    assert len({event.identity for event in reading(*lines).events}) == 3


@pytest.mark.parametrize("text", ["Fehler: keine Verbindung", "\x00\x01", "a,b,c\n" * 9])
def test_other_text_is_an_error(text):
    with raises(NotMeasuredError, "ipmitool"):
        parse(text, text)


@given(
    st.text() | st.from_regex(r"([0-9a-f]{1,4},[0-9/]{8},[0-9:]{8},Fan #0x[0-9]{2},[a-zA-Z ,]*,(Dea|A)sserted\n){1,3}")
)
def test_no_text_is_an_error_of_another_class(text):
    parse_log(text)
    parse_sensors(text)


FAULTY = SENSORS.replace("ok  | 29.3", "lcr | 29.3").replace("Presence detected", "Presence detected, AC lost")
STATE = "26,09/15/2022,15:34:46,Voltage PVPP,Lower Critical going low,Asserted\n"


@pytest.mark.parametrize(
    ("log", "sensors", "wanted"),
    [
        (f"{STATE}1ff,08/15/26,23:45:40 UTC,Power Supply #0x52,Power Supply AC lost,Assert", SENSORS, "bmc_memory"),
        (f"{STATE}\x00\x01", SENSORS, "bmc_memory"),
        ("SEL Eintr\u00e4ge: keine\n", SENSORS, "bmc_memory"),
        ("", SENSORS.replace("51h", "5"), "bmc_temperature"),
        ("", SENSORS.replace("ok  | 29.3", "gut | 29.3"), "bmc_temperature"),
        ("", SENSORS.replace("24 degrees", "?? degrees"), "bmc_temperature"),
        ("", SENSORS.replace("detected", "detected, AC los"), "bmc_power_input"),
    ],
)
def test_lines_that_cannot_be_read_are_not_measured(log, sensors, wanted):
    assert wanted in unmeasured(parse(log, sensors))


@given(st.booleans(), st.integers(0, 400), st.sampled_from(["\ufffd", "\0", "\n"]))
def test_a_fault_in_an_altered_answer_is_named_or_not_measured(is_log, place, noise):
    texts = [STATE, FAULTY]
    place %= len(texts[not is_log])
    texts[not is_log] = texts[not is_log][:place] + noise + texts[not is_log][place + 1 :]
    once = parse(*texts)
    assert sum(map(len, failed(once).values())) == 3 or unmeasured(once)


TOOL = """#!/bin/sh
echo "$@" >> {calls}
{{ test "$IPMI_PASSWORD" = s3cr3t && test "$LC_ALL" = C && test "$TZ" = UTC; }} || exit 9
{body}
"""
ANSWER = 'case "$*" in *"sel elist") echo "SEL has no entries" >&2;; *) echo "FAN3 | 80h | cr | 29.3 | 200 RPM";; esac'


def tool(folder, monkeypatch, body):
    """Put an ipmitool in the path; return the file of its calls."""
    calls = folder / "calls"
    (folder / "ipmitool").write_text(TOOL.format(calls=calls, body=body))
    (folder / "ipmitool").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return calls


def test_the_tool_is_asked_with_the_account_in_the_environment_and_only_reads(tmp_path, monkeypatch):
    calls = tool(tmp_path, monkeypatch, ANSWER)
    assert failed(read(Bmc("gpu01", "[fd00::7]:624", "monitor", "s3cr3t", "ipmi"))) == {"bmc_fan": ["FAN3"]}
    connection = "-I lanplus -H fd00::7 -p 624 -U monitor -E"
    assert calls.read_text().splitlines() == [f"{connection} -c sel elist", f"{connection} sdr elist"]


def test_an_error_of_the_tool_has_no_password(tmp_path, monkeypatch):
    tool(tmp_path, monkeypatch, 'echo "Error: password s3cr3t: Unable to establish IPMI v2 session" >&2; exit 1')
    with raises(NotMeasuredError, "Unable to establish IPMI v2 session") as error:
        read(Bmc("gpu01", "10.0.0.7", "monitor", "s3cr3t", "ipmi"))
    assert "s3cr3t" not in str(error.value)


def test_a_bmc_that_does_not_answer_ends_at_its_deadline(tmp_path, monkeypatch):
    tool(tmp_path, monkeypatch, "exec sleep 20")
    with raises(NotMeasuredError, "0.3 s"):
        read(Bmc("gpu01", "10.0.0.7", "monitor", "s3cr3t", "ipmi", timeout_s=0.3))


def test_without_the_tool_nothing_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with raises(NotMeasuredError, "ipmitool"):
        read(Bmc("gpu01", "10.0.0.7", "monitor", "s3cr3t", "ipmi"))
