# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A BMC's answer over Redfish becomes one fault for each cause, and its account never leaves the request.

One file because all tests ask one server of made-up answers.
"""

from __future__ import annotations

import copy
import http.client
import json
import math
import ssl
import time

import fleet_answers
import pytest
import redfish_bmc
from health_nodes import failed, results, unmeasured, values
from hypothesis import given
from hypothesis import strategies as st
from messages import raises
from redfish_bmc import CHASSIS, PASSWORD, SUPPLIES, RedfishBmc, new, old, status

from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet import answers, bmc_answers
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.table import table
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    FAIL,
    NOT_MEASURED,
    PASS,
    CheckSetting,
    Expected,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.bmc import redfish
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.bmc.redfish import read
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.bmc.target import Bmc
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError

GOOD = status(Id="Bay1", LineInputStatus="Normal")
TWO = Expected("gpu01", settings={"bmc_power_supplies": CheckSetting(limit=2)})


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Return a BMC whose documents each test replaces."""
    started = RedfishBmc(tmp_path_factory.mktemp("bmc"), {})
    yield started
    started.stop()
    assert started.changes == []


def reading(server, documents, **target):
    """Return a reading of a BMC with these documents."""
    server.documents = documents
    return read(server.target(**target))


def group(state="Enabled", health="OK", **more):
    """Return a redundancy group of both supplies."""
    members = [{"@odata.id": f"{SUPPLIES}/Bay1"}, {"@odata.id": f"{SUPPLIES}/Bay2"}]
    return status(health, state, RedundancyType="Failover", MinNeededInGroup=1, RedundancyGroup=members, **more)


def test_a_healthy_server_passes(server):
    documents = new({"Bay1": GOOD, "Bay2": {**GOOD, "Id": "Bay2"}}, [group()])
    judged = results(reading(server, documents), expected=TWO)
    assert {result.verdict for result in judged} == {PASS}
    assert {result.check for result in judged} == {
        "bmc_power_input",
        "bmc_power_supplies",
        "bmc_power_supply",
        "bmc_redundancy",
        "bmc_health",
    }


@pytest.mark.parametrize(
    ("bay2", "expected"),
    [
        (status("Critical", Id="Bay2", LineInputStatus="LossOfInput"), {"bmc_power_input": ["Bay2"]}),
        (status("Warning", Id="Bay2", LineInputStatus="OutOfRange"), {"bmc_power_input": ["Bay2"]}),
        (status("Warning", Id="Bay2", LineInputStatus="Normal"), {"bmc_power_supply": ["Bay2"]}),
        (status("OK", "UnavailableOffline", Id="Bay2"), {"bmc_power_supply": ["Bay2"]}),
    ],
)
def test_each_cause_is_one_fault_although_the_whole_server_is_sick_too(server, bay2, expected):
    sick = {"Id": "1", "Status": {"HealthRollup": "Critical", "Health": "OK"}}
    assert failed(reading(server, new({"Bay1": GOOD, "Bay2": bay2}, system=sick)), expected=TWO) == expected


def test_an_empty_bay_is_a_fault_where_both_supplies_are_expected(server):
    once = reading(server, new({"Bay1": GOOD, "Bay2": status(None, "Absent", Id="Bay2")}))
    assert failed(once, expected=TWO) == {"bmc_power_supplies": ["power supplies"]}


def test_an_empty_bay_is_right_where_no_number_is_expected(server):
    once = reading(server, new({"Bay1": GOOD, "Bay2": status(None, "Absent", Id="Bay2")}))
    assert failed(once) == {}
    assert values(once)["bmc_power_supplies", "power supplies"] == 1


@pytest.mark.parametrize(
    ("sick", "is_fault"),
    [
        (group("UnavailableOffline"), True),
        (group("Enabled", "Warning"), True),
        (group("Degraded", "OK"), True),
        ({**group("UnavailableOffline"), "RedundancyType": "NotRedundant"}, False),
        (group("Disabled"), False),
    ],
)
def test_a_group_without_its_redundancy_is_a_fault_unless_it_is_switched_off(server, sick, is_fault):
    once = reading(server, new({"Bay1": GOOD}, [sick]))
    assert list(failed(once)) == (["bmc_redundancy"] if is_fault else [])


def test_a_sick_server_whose_parts_are_all_well_is_a_fault(server):
    once = reading(server, new({"Bay1": GOOD}, system={"Id": "1", "Status": {"Health": "Critical"}}))
    assert failed(once) == {"bmc_health": ["system 1"]}


@pytest.mark.parametrize(
    ("power", "thermal", "expected"),
    [
        (None, None, {}),
        (
            {"PowerSupplies": [status("Warning", Name="PSU1"), status(Name="PSU2")]},
            None,
            {"bmc_power_supply": ["PSU1"]},
        ),
        ({"PowerSupplies": [status(Name="PSU1", LineInputVoltage=0)]}, None, {"bmc_power_input": ["PSU1"]}),
        ({"PowerSupplies": [status("Critical", Name="P"), status(Name="P")]}, None, {"bmc_power_supply": ["P 0"]}),
        (
            {"Redundancy": [status("Warning", Name="PSU Redundancy", Mode="N+m", RedundancyEnabled=True)]},
            None,
            {"bmc_redundancy": ["PSU Redundancy"]},
        ),
        ({"Redundancy": [status("Warning", Name="PSU", RedundancyEnabled=False)]}, None, {}),
        (
            None,
            {"Fans": [status("Critical", Name="Fan 1"), status(None, "Absent", Name="Fan 2")]},
            {"bmc_fan": ["Fan 1"]},
        ),
        (
            None,
            {"Temperatures": [status(None, Name="Inlet", ReadingCelsius=50, UpperThresholdCritical=47)]},
            {"bmc_temperature": ["Inlet"]},
        ),
        (None, {"Temperatures": [status(None, Name="Inlet", ReadingCelsius=20, UpperThresholdCritical=47)]}, {}),
        (
            {"Voltages": [status(None, Name="12V", ReadingVolts=10.1, LowerThresholdCritical=10.6)]},
            None,
            {"bmc_voltage": ["12V"]},
        ),
    ],
)
def test_old_resources_give_the_same_verdicts(server, power, thermal, expected):
    assert failed(reading(server, old(power, thermal))) == expected


def test_fans_of_a_thermal_subsystem(server):
    documents = new({"Bay1": GOOD})
    fans = f"{CHASSIS}/ThermalSubsystem/Fans"
    documents[CHASSIS]["ThermalSubsystem"] = {"@odata.id": f"{CHASSIS}/ThermalSubsystem"}
    documents[f"{CHASSIS}/ThermalSubsystem"] = status(Fans={"@odata.id": fans}, FanRedundancy=[status("Critical")])
    documents[fans] = redfish_bmc.collection(f"{fans}/1", f"{fans}/2")
    documents |= {f"{fans}/1": status("Critical", Id="Fan1"), f"{fans}/2": status(Id="Fan2")}
    assert failed(reading(server, documents)) == {"bmc_fan": ["Fan1"], "bmc_redundancy": ["redundancy group 0"]}


@pytest.mark.parametrize("answer", [404, 500, 503, b"<html>", b"", b"[]", b"\xff\xfe", b"[" * 100000])
def test_what_cannot_be_read_is_not_measured(server, answer):
    documents = {**new({"Bay1": GOOD}), f"{CHASSIS}/PowerSubsystem": answer}
    once = reading(server, documents)
    assert (failed(once), unmeasured(once)) == ({}, {"bmc_power_supply": ["PowerSubsystem"]})
    # The old resource says the same.
    documents[CHASSIS] |= {"Power": {"@odata.id": f"{CHASSIS}/Power"}}
    documents[f"{CHASSIS}/Power"] = {"PowerSupplies": [status("Warning", Name="PSU1")]}
    assert failed(reading(server, documents)) == {"bmc_power_supply": ["PSU1"]}


def test_a_supply_that_cannot_be_read_is_not_measured_and_the_others_are(server):
    once = reading(server, new({"Bay1": status("Warning", Id="Bay1"), "Bay2": 500}))
    assert failed(once) == {"bmc_power_supply": ["Bay1"]}
    assert unmeasured(once)["bmc_power_supply"] == ["Bay2"]


def test_a_bmc_that_moves_its_resources_to_another_path_is_followed(server):
    documents = new({"Bay1": status("Warning", Id="Bay1")})
    assert failed(reading(server, {**documents, "/redfish/v1/Systems": 404})) == {"bmc_power_supply": ["Bay1"]}
    with raises(NotMeasuredError):
        reading(server, {**documents, "/redfish/v1/Chassis": 301})


@pytest.mark.parametrize(
    "document",
    [
        {"Status": "OK"},
        {"Status": {"Health": 1, "State": []}},
        {"Status": {"Health": "Gut"}},
        {"Id": 7, "Status": None, "LineInputStatus": {}, "LineInputVoltage": True},
    ],
)
def test_values_of_other_types_are_no_pass(server, document):
    once = reading(server, new({"Bay1": document}, [document, 7], {"Status": 7}))
    assert failed(once) == {}
    passed = {result.check for result in results(once) if result.verdict == PASS}
    assert passed <= {"bmc_power_supplies"}


def test_links_to_other_servers_are_not_followed(server):
    documents = new({"Bay1": GOOD})
    documents[SUPPLIES] = redfish_bmc.collection("https://other.example/x", "//other.example/x", "/a b", "/\n")
    measured = values(reading(server, documents))
    assert measured.pop(("bmc_health", "system 1")) is False
    assert set(measured.values()) == {None}


ODD = (
    "\u6b63\u5e38",
    "\ud800\n\0\u202e",
    1e308,
    math.nan,
    math.inf,
    10**400,
    [],
    {},
    [None],
    [{}] * 300,
    "A" * 5000,
    True,
)
SERVERS = (
    new({"Bay1": GOOD, "Bay2": status("Warning", Id="Bay2", LineInputVoltage=230)}, [group("UnavailableOffline")]),
    old(
        {
            "PowerSupplies": [status(Name="PSU1")],
            "Voltages": [{"Name": "12V", "ReadingVolts": 9, "LowerThresholdCritical": 11}],
        },
        {
            "Fans": [
                status("Critical", Name="Fan 1"),
                {"Name": "Fan 2", "Reading": 3000, "LowerThresholdCritical": 500},
            ],
            "Temperatures": [{"Name": "CPU", "ReadingCelsius": 99, "UpperThresholdCritical": 90}],
        },
    ),
)


class Answer:
    """An answer with a document, or without one."""

    def __init__(self, document):
        self.status = 200 if isinstance(document, dict) else 404
        self.parts = [json.dumps(document).encode(), b""]

    def read1(self, size):
        return self.parts.pop(0)

    def getheader(self, name):
        return None


class Documents:
    """A connection to a BMC with these documents, without one."""

    sock = None

    def __init__(self, documents):
        self.documents = documents

    def request(self, method, path, headers):
        self.path = path

    def getresponse(self):
        return Answer(self.documents.get(self.path))

    def close(self):
        pass


def verdicts(documents):
    """Return the verdicts on documents by check and place, and the fleet's lines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http.client, "HTTPSConnection", lambda address, context: Documents(documents))
        # Else each reading would read the system's certificates.
        patch.setattr(ssl, "create_default_context", lambda cafile: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        once = read(Bmc("gpu01", "", "", ""))
    said = bmc_answers.answer(once, Expected("gpu01"))
    lines = table([("gpu01", fleet_answers.answer())], {"gpu01": answers.to_dict(said)}).lines
    assert all(line.isprintable() and len(line) < 2000 for line in lines)
    return {(each.check, each.place.name): each.verdict for each in results(once)}


def places(value, way=()):
    """Return the ways to all values below a document."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*way, key)
        yield from places(child, (*way, key))


def altered(document, way, value):
    """Return a copy of a document with another value at a place."""
    changed = copy.deepcopy(document)
    parent = changed
    for key in way[:-1]:
        parent = parent[key]
    parent[way[-1]] = value
    return changed


@given(st.sampled_from([(each, way) for each in SERVERS for way in places(each)]), st.sampled_from(ODD))
def test_an_altered_value_passes_nothing_and_is_no_fault(place, value):
    documents, way = place
    before = verdicts(documents)
    try:
        after = verdicts(altered(documents, way, value))
    except NotMeasuredError:
        return
    both = before.keys() & after.keys()
    assert [key for key in both if {before[key], after[key]} == {PASS, FAIL}] == []
    if value == []:
        # A node of an enclosure lists no power supplies or fans; numbers are compared over the fleet.
        return
    # What is no longer judged is said to be not measured, or has another name.
    assert len(after) >= len(before) or NOT_MEASURED in after.values()
    assert list(after.values()).count(FAIL) >= list(before.values()).count(FAIL) or NOT_MEASURED in after.values()


@pytest.mark.parametrize(
    ("path", "document"), [("/redfish/v1/Chassis", {"Members": []}), ("/redfish/v1/Chassis", {}), (CHASSIS, {})]
)
def test_a_bmc_that_shows_no_chassis_passes_nothing(path, document):
    documents = {**new({"Bay1": GOOD}), path: document}
    try:
        judged = verdicts(documents)
    except NotMeasuredError:
        return
    assert NOT_MEASURED in judged.values()


@pytest.mark.parametrize("voltage", [-1, "230", None, 1e12, math.nan])
def test_a_voltage_that_is_none_says_nothing_of_the_input(voltage):
    judged = verdicts(new({"Bay1": status(Id="Bay1", LineInputVoltage=voltage)}))
    assert judged["bmc_power_input", "Bay1"] == NOT_MEASURED


def test_supplies_that_cannot_be_read_are_not_counted(server):
    once = reading(server, new({"Bay1": GOOD, "Bay2": 500}))
    assert values(once)["bmc_power_supplies", "power supplies"] is None


@pytest.mark.parametrize("members", [7, None, {}, [{"@odata.id": CHASSIS}] * 300])
def test_a_list_of_chassis_that_is_none_measures_nothing(server, members):
    with raises(NotMeasuredError, "members"):
        reading(server, {**new({"Bay1": GOOD}), "/redfish/v1/Chassis": {"Members": members}})


def test_a_chassis_that_cannot_be_read_is_not_measured_and_the_others_are(server):
    documents = new({"Bay1": GOOD})
    documents["/redfish/v1/Chassis"] = redfish_bmc.collection(CHASSIS, "/redfish/v1/Chassis/2")
    assert unmeasured(reading(server, documents))["bmc_power_supply"] == ["chassis 2"]


def test_a_certificate_is_verified_unless_the_user_says_otherwise(server):
    server.documents = new({"Bay1": GOOD})
    with raises(NotMeasuredError, "certificate"):
        read(server.target(ca=""))
    assert failed(read(server.target(ca="", verify_tls=False))) == {}
    with raises(NotMeasuredError, "certificates"):
        read(server.target(ca="/nowhere"))


@pytest.mark.parametrize("where", ["/redfish/v1/Chassis", "/redfish/v1/Systems", CHASSIS, f"{SUPPLIES}/Bay1"])
@pytest.mark.parametrize("answer", [401, 403, 500])
def test_no_message_has_the_account_that_a_bmc_repeats(server, where, answer):
    server.documents = {**new({"Bay1": GOOD}), where: answer}
    try:
        text = repr(read(server.target()))
    except NotMeasuredError as error:
        text = f"{error!r} {error.__cause__!r} {error.__context__!r}"
    assert PASSWORD not in text
    assert redfish_bmc.ACCOUNT.split()[1] not in text
    assert PASSWORD not in repr(server.target())


def test_a_wrong_password_is_named_as_the_cause(server):
    server.documents = new({"Bay1": GOOD})
    with raises(NotMeasuredError, "401"):
        read(server.target(password="wrong"))


def test_a_bmc_that_does_not_answer_ends_at_its_deadline(server):
    server.documents = {**new({"Bay1": GOOD}), CHASSIS: 8.0}
    start = time.monotonic()
    with raises(NotMeasuredError, "time"):
        read(server.target(timeout_s=0.5))
    assert time.monotonic() - start < 4


def test_an_answer_without_end_is_not_read_to_its_end(server, monkeypatch):
    monkeypatch.setattr(redfish, "MOST_BYTES", 1000)
    server.documents = {**new({"Bay1": GOOD}), "/redfish/v1/Chassis": b" " * 5000}
    with raises(NotMeasuredError, "more"):
        read(server.target())


def test_a_bmc_that_is_not_there_is_an_error(tmp_path):
    server = RedfishBmc(tmp_path, {})
    server.stop()
    with raises(NotMeasuredError, "reached"):
        read(server.target())
    with raises(NotMeasuredError, "address"):
        read(server.target(address="bmc:port"))
