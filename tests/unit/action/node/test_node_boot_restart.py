# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node is restarted through its BMC by modules in a fixed order, and a failure names the cause and the next step."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ansible_collections.sailloft.fleet.plugins.action import node_boot_restart
from ansible_collections.sailloft.fleet.plugins.action.node_boot_restart import BmcError, own_system, sentence

BMC = {"address": "10.9.9.1", "password": "do-not-show-me"}


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("HTTP Error 401 on GET request", "Check node_boot_bmc.username and password."),
        ("Unauthorized name", "Check node_boot_bmc.username and password."),
        (
            "Incorrect password provided",
            "Check node_boot_bmc.password; some BMCs keep only 16 characters of it for IPMI.",
        ),
        (
            "certificate verify failed",
            "Name its certificate authority in node_boot_bmc.ca, or set verify_tls to false.",
        ),
        ("it has the systems 1, 2; node_boot_bmc.system names 3", "Check node_boot_bmc.system."),
        ("No module named pyghmi", "Install pyghmi on ctl1, for the Python that Ansible runs there."),
        ("timed out", "Check whether ctl1 can reach this address, and whether the BMC needs a restart."),
    ],
)
def test_each_cause_has_its_next_step(message, remedy):
    text = sentence(message, "bm01", BMC, "ctl1")
    assert text == f"bm01: its BMC 10.9.9.1 did not restart it: {message}. {remedy}"


def test_a_bmc_without_an_address_is_reported_as_none():
    message = sentence("timed out", "bm01", {}, "ctl1")
    assert message.startswith("bm01: its BMC (none) did not restart it: timed out. Check whether ctl1 can reach")


@pytest.fixture
def no_sleep(monkeypatch):
    monkeypatch.setattr(node_boot_restart.time, "sleep", lambda _seconds: None)


class Modules:
    """Simulated modules, with their answers in order; an answer that is a text is raised as an error."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.ran = []

    def __call__(self, module, **arguments):
        told = arguments.get("command") or arguments.get("state") or arguments.get("bootdev")
        self.ran.append(f"{module} {told}")
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            raise BmcError(answer)
        return answer


def systems(*rows):
    entries = [[{"system_uri": f"/{name}"}, {"Id": name, "PowerState": power}] for name, power in rows]
    return {"redfish_facts": {"system": {"entries": entries}}}


@pytest.mark.parametrize(("power", "command"), [("On", "PowerForceRestart"), ("Off", "PowerOn")])
def test_redfish_sets_the_next_boot_before_the_restart_and_waits_for_the_power(no_sleep, power, command):
    ask = Modules(systems(("1", power)), {}, {}, systems(("1", "Off")), "reset by peer", systems(("1", "On")))
    node_boot_restart.redfish({**BMC, "power_timeout_s": 10}, ask)
    read = "redfish_info GetSystemInventory"
    assert ask.ran == [read, "redfish_command SetOneTimeBoot", f"redfish_command {command}", read, read, read]


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (systems(("1", "Off")), "it accepted the command, but the power is Off 4 s later"),
        ("timed out", "it accepted the command, but does not answer 4 s later: timed out"),
    ],
)
def test_power_that_does_not_come_on_is_an_error(no_sleep, last, why):
    ask = Modules(systems(("1", "On")), {}, {}, systems(("1", "Off")), last)
    with pytest.raises(BmcError, match=why):
        node_boot_restart.redfish({**BMC, "power_timeout_s": 4}, ask)
    assert ask.answers == []


def test_no_node_is_restarted_if_the_next_boot_cannot_be_set():
    ask = Modules(systems(("1", "On")), "not supported")
    with pytest.raises(BmcError, match="not supported"):
        node_boot_restart.redfish(BMC, ask)
    assert len(ask.ran) == 2


def test_the_named_or_the_only_system_is_used():
    both = systems(("2", "On"), ("1", "Off"))
    assert own_system(both, "1")["PowerState"] == "Off"
    assert own_system(systems(("7", "On")), None)["Id"] == "7"
    with pytest.raises(BmcError, match=r"it has the systems 1, 2; node_boot_bmc\.system names none"):
        own_system(both, None)
    with pytest.raises(BmcError, match="names 3"):
        own_system(both, "3")


def test_ipmi_restarts_and_waits_for_the_power(no_sleep):
    ask = Modules({}, {}, {"changed": True}, {"changed": False})
    node_boot_restart.ipmi(BMC, ask)
    assert ask.ran == ["ipmi_boot network", "ipmi_power boot", "ipmi_power on", "ipmi_power on"]


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({}, {"boot_override_mode": "UEFI", "validate_certs": True, "timeout": 30, "ca_path": None}),
        (
            {"boot_mode": "Legacy", "verify_tls": False, "timeout_s": 5, "ca": "/ca.pem"},
            {"boot_override_mode": "Legacy", "validate_certs": False, "timeout": 5, "ca_path": "/ca.pem"},
        ),
    ],
)
def test_redfish_gets_the_settings_of_the_bmc(no_sleep, given, seen):
    asked = []

    def ask(module, **arguments):
        asked.append(arguments)
        return systems(("1", "On"))

    node_boot_restart.redfish({**BMC, "username": "root", **given}, ask)
    assert {name: asked[1].get(name) for name in seen} == seen
    assert (asked[1]["bootdevice"], asked[1]["resource_id"], asked[1]["baseuri"]) == ("Pxe", "1", "10.9.9.1")


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({}, {"port": 623, "uefiboot": True}),
        ({"port": 6230, "boot_mode": "Legacy"}, {"port": 6230, "uefiboot": False}),
    ],
)
def test_ipmi_gets_the_settings_of_the_bmc(no_sleep, given, seen):
    asked = []

    def ask(module, **arguments):
        asked.append(arguments)
        return {"changed": False}

    node_boot_restart.ipmi({**BMC, "username": "root", **given}, ask)
    assert {name: asked[0][name] for name in seen} == seen
    assert (asked[0]["bootdev"], asked[0]["name"], asked[0]["user"]) == ("network", "10.9.9.1", "root")
    assert asked[1]["state"] == "boot"


@pytest.fixture
def restart(make, monkeypatch, no_sleep):
    """Return a function that runs the action with the modules' answers and returns its result and calls."""

    def run(answers, check_mode=False, **bmc):
        action = make(node_boot_restart, check_mode, node="bm01", bmc={**BMC, **bmc})
        ran = []

        def execute(name, arguments, task_vars):
            ran.append((name, action._task.check_mode))
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(action, "_execute_module", execute)
        monkeypatch.setattr(node_boot_restart.time, "time", lambda: 1234.5)
        return action.run(task_vars={}), ran

    return run


def test_a_restart_is_a_change_and_returns_its_time(restart):
    found, ran = restart([{**systems(("1", "On")), "ansible_facts": {"python": "3"}}, {}, {}, systems(("1", "On"))])
    assert (found["changed"], found["since"], found["ansible_facts"]) == (True, 1234.5, {"python": "3"})
    assert ran == [
        ("community.general.redfish_info", False),
        ("community.general.redfish_command", False),
        ("community.general.redfish_command", False),
        ("community.general.redfish_info", False),
    ]


def test_ipmi_only_reads_the_power_after_the_restart(restart):
    found, ran = restart([{}, {}, {"changed": False}], type="ipmi")
    assert found["changed"] is True
    assert ran == [
        ("community.general.ipmi_boot", False),
        ("community.general.ipmi_power", False),
        ("community.general.ipmi_power", True),
    ]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"failed": True, "msg": "HTTP Error 401"}, "HTTP Error 401. Check node_boot_bmc.username and password."),
        ({"failed": True, "msg": None}, "it did not answer. Check whether localhost can reach"),
        (AnsibleConnectionFailure("gone"), "localhost, from which it is accessed, does not answer: gone. Check"),
        (AnsibleError("no module"), "no module. Check whether localhost can reach"),
    ],
)
def test_a_failed_restart_is_no_change_and_names_the_cause(restart, answer, why):
    found, _ran = restart([answer])
    assert (found["failed"], "changed" in found) == (True, False)
    assert found["msg"].startswith(f"bm01: its BMC 10.9.9.1 did not restart it: {why}")
    assert "do-not-show-me" not in found["msg"]


def test_check_mode_restarts_nothing(restart):
    found, ran = restart([], check_mode=True)
    assert (found["skipped"], ran) == (True, [])
