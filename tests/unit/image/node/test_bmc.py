# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""All BMCs: each cause has its next step, and next boot and power are read until they are right."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import bmc as bmc_module
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import (
    BmcError,
    BootBmc,
    wait_for_override,
    wait_for_power,
)


@pytest.fixture(autouse=True)
def _no_sleep(monkeypatch):
    monkeypatch.setattr(bmc_module.time, "sleep", lambda _seconds: None)


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        ("HTTP GET https://x returned code 401. Unauthorized", "username and password"),
        ("Unauthorized name", "username and password"),
        ("Incorrect password provided", "16 characters"),
        ("certificate verify failed: self-signed certificate", "node_boot_bmc.ca"),
        ("it has the systems 1, 2; node_boot_bmc.system names 3", "node_boot_bmc.system"),
        ("No module named pyghmi", "install this package on ctl1"),
        ("it cannot be reached: timed out", "whether ctl1 can reach"),
        ("it did not answer", "whether ctl1 can reach"),
        ("it accepted the command, but the power is off 60 s later", "log"),
    ],
)
def test_each_cause_has_its_next_step(cause, remedy):
    error = BootBmc("10.9.9.1", "root", "do-not-show-me").failure("bm01", "ctl1", cause)
    assert error.subject == "bm01"
    assert "10.9.9.1" in error.cause
    assert cause in error.cause
    assert remedy in error.remedy
    assert "do-not-show-me" not in str(error)


def test_a_next_boot_that_appears_late_counts():
    shown = iter(["no override", "Hdd", "Pxe"])
    wait_for_override(lambda: next(shown), "Pxe")
    assert list(shown) == []


def test_another_next_boot_is_an_error():
    with pytest.raises(BmcError, match="Hdd"):
        wait_for_override(lambda: "Hdd", "Pxe")


@pytest.mark.parametrize("last", ["off", "silent"])
def test_power_that_does_not_come_on_is_an_error(last):
    def power():
        if last == "silent":
            raise BmcError("it did not answer")
        return "off"

    with pytest.raises(BmcError, match="does not answer" if last == "silent" else "power is off"):
        wait_for_power(power, "on", 4)


def test_power_that_comes_on_between_lost_answers_counts():
    answers = iter(["off", BmcError("reset by peer"), "on"])

    def power():
        answer = next(answers)
        if isinstance(answer, BmcError):
            raise answer
        return answer

    wait_for_power(power, "on", 10)
    assert list(answers) == []
