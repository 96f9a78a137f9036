# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Failed units and required ones that are not active are faults, until they work again."""

from __future__ import annotations

import contextlib

import pytest
from health_nodes import failed, node, results, unmeasured
from hypothesis import given
from hypothesis import strategies as st
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import PASS, Expected
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.units import (
    parse_failed,
    parse_show,
    read,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError, Ran

FAILED = "nvidia-persistenced.service loaded failed failed NVIDIA Persistence Daemon\n"
EXPECTED = Expected("gpu01", units=("slurmd", "nvidia-fabricmanager.service"))


def shown(slurmd="active", fabric="active", load="loaded"):
    """Return the properties of the required units."""
    return (
        f"Id=slurmd.service\nNames=slurmd.service\nLoadState=loaded\nActiveState={slurmd}\nSubState=running\n\n"
        f"Id=fm.service\nNames=fm.service nvidia-fabricmanager.service\nLoadState={load}\nActiveState={fabric}\n"
    )


def reading(root, units="", show="", kept=None):
    """Return a reading where systemctl gives these answers."""
    programs = {"systemctl list-units": units, "systemctl show": show or shown()}
    return read(node(root, EXPECTED, programs, kept))


def test_active_units_pass(tmp_path):
    judged = results(reading(tmp_path), expected=EXPECTED)
    assert [(each.check, each.place.name, each.verdict) for each in judged] == [
        ("unit_inactive", "nvidia-fabricmanager.service", PASS),
        ("unit_inactive", "slurmd.service", PASS),
    ]


def test_a_failed_unit_is_a_fault_until_it_works_again(tmp_path):
    first = reading(tmp_path, FAILED)
    assert failed(first, expected=EXPECTED) == {"unit_failed": ["nvidia-persistenced.service"]}
    second = reading(tmp_path, "", kept=first.kept)
    passed = [(each.check, each.verdict) for each in results(second, expected=EXPECTED) if "failed" in each.check]
    assert passed == [("unit_failed", PASS)]
    third = reading(tmp_path, "", kept=second.kept)
    assert "unit_failed" not in {each.check for each in third.measurements}


@pytest.mark.parametrize(
    ("show", "expected"),
    [
        (shown(slurmd="inactive"), ["slurmd.service"]),
        (shown(fabric="inactive", load="not-found"), ["nvidia-fabricmanager.service"]),
    ],
)
def test_a_required_unit_that_is_not_active_is_a_fault(tmp_path, show, expected):
    assert failed(reading(tmp_path, show=show), expected=EXPECTED) == {"unit_inactive": expected}


def test_a_required_unit_that_failed_is_one_fault(tmp_path):
    once = reading(tmp_path, "slurmd.service loaded failed failed Slurm\n", shown(slurmd="failed"))
    assert failed(once, expected=EXPECTED) == {"unit_inactive": ["slurmd.service"]}


def test_a_failed_unit_that_becomes_required_has_only_the_fault_of_a_required_one(tmp_path):
    words = "slurmd.service loaded failed failed Slurm\n"
    first = read(node(tmp_path, Expected("gpu01"), {"systemctl list-units": words}))
    assert failed(first) == {"unit_failed": ["slurmd.service"]}
    second = reading(tmp_path, words, shown(slurmd="failed"), first.kept)
    assert failed(second, expected=EXPECTED) == {"unit_inactive": ["slurmd.service"]}
    judged = {each.check: each.verdict for each in results(second, expected=EXPECTED)}
    assert judged["unit_failed"] == PASS
    third = reading(tmp_path, words, shown(slurmd="failed"), second.kept)
    assert "unit_failed" not in {each.check for each in third.measurements}


def test_of_many_failed_units_those_that_work_again_are_still_reported(tmp_path):
    many = "".join(f"u{number:02}.service loaded failed failed words\n" for number in range(50))
    first = reading(tmp_path, many.replace("u00.", "z00."))
    second = reading(tmp_path, many, kept=first.kept)
    judged = {each.place.name: each.verdict for each in results(second, expected=EXPECTED)}
    assert judged["z00.service"] == PASS


@pytest.mark.parametrize("show", [shown(slurmd="activating"), shown(slurmd=""), "Id=other.service", "x"])
def test_a_unit_without_a_final_state_is_not_measured(tmp_path, show):
    once = reading(tmp_path, show=show)
    assert failed(once, expected=EXPECTED) == {}
    assert "slurmd.service" in unmeasured(once, expected=EXPECTED)["unit_inactive"]


@pytest.mark.parametrize(
    "answer", [Ran(1, "", "System has not been booted with systemd"), "Fehler: kein Dienst da\n", "\x00\x01\x02 a b c"]
)
def test_no_list_of_units_is_an_error(tmp_path, answer):
    with raises(NotMeasuredError, "systemctl"):
        reading(tmp_path, answer)


@pytest.mark.parametrize("kept", ["", "{", "[1]", '{"a": 1}'])
def test_a_broken_memory_is_as_good_as_none(tmp_path, kept):
    assert failed(reading(tmp_path, kept={"failed": kept}), expected=EXPECTED) == {}


@given(st.text() | st.from_regex(r"(Id=[a-z.]*\n|ActiveState=active\n|\n)*"))
def test_no_text_is_an_error_of_another_class(text):
    parse_show(text)
    with contextlib.suppress(NotMeasuredError):
        assert isinstance(parse_failed(text), list)
