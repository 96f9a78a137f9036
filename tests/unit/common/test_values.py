# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import re

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values


@pytest.mark.parametrize("value", ["a", "é", "a b", "x" * 4096])
def test_text_that_every_format_can_contain_is_accepted(value):
    assert values.text(value) == value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", Mentions("empty")),
        (3, Mentions("3")),
        (None, Mentions("None")),
        ("a\nb", Mentions("a\\nb", "\\n")),
        ("a\x00", Mentions("a\\x00", "\\x00")),
        ("a\x1b[2J", Mentions("a\\x1b[2J", "\\x1b")),
        ("\ud800", Mentions("\\ud800")),
        ("x" * 100 + "\n", Mentions("x" * 80)),
        ("x" * 4097, Mentions("x" * 80, "4097")),
    ],
)
def test_invalid_text_is_refused(value, why):
    with pytest.raises(values.InvalidValueError) as refused:
        values.text(value)
    assert refused.value.cause == why


@pytest.mark.parametrize("value", ["/a", "/dev/disk/by-id/x", "/a/..b", "/" + "x" * 4094])
def test_an_absolute_path_is_accepted(value):
    assert values.path(value) == value


@pytest.mark.parametrize("value", ["a", "", "/", "//a", "/a/", "/a/../b", "/a/./b", "/a\n", "/" + "x" * 4095])
def test_an_invalid_path_is_refused(value):
    with pytest.raises(values.InvalidValueError):
        values.path(value)


def test_the_length_of_a_path_is_counted_in_bytes():
    """Linux accepts 4095 bytes and the zero after them (PATH_MAX)."""
    assert values.path("/" + "é" * 2047) == "/" + "é" * 2047
    with raises(values.InvalidValueError, "é" * 79, "4095"):
        values.path("/" + "é" * 2047 + "x")


def test_a_whole_number_outside_its_limits_is_refused():
    assert [values.integer(number, 1, 3) for number in (1, 3)] == [1, 3]
    for number in (0, 4, True, "2", 2.0, None):
        with raises(values.InvalidValueError, number, "1", "3", "MiB"):
            values.integer(number, 1, 3, "MiB")


def test_only_a_unicast_mac_address_is_accepted():
    assert values.unicast_mac("52:54:00:AB:cd:ef") == "52:54:00:ab:cd:ef"
    for wrong, why in (
        ("01:00:5e:00:00:01", Mentions("01:00:5e:00:00:01")),
        ("00:00:00:00:00:00", Mentions("00:00:00:00:00:00")),
        ("52:54:00:12:34", Mentions("52:54:00:12:34", "MAC")),
        ("52-54-00-12-34-56", Mentions("52-54-00-12-34-56", "MAC")),
    ):
        with pytest.raises(values.InvalidValueError) as refused:
            values.unicast_mac(wrong)
        assert refused.value.cause == why


def test_one_of_refuses_an_unknown_value_and_lists_the_known_ones():
    assert values.one_of("", ("on", "")) == ""
    with raises(values.InvalidValueError, "'pt'", "'on'"):
        values.one_of("pt", ("on", ""))


def refused(check, value):
    with pytest.raises(values.InvalidValueError) as error:
        check(value)
    return str(error.value)


def test_a_flag_is_true_or_false():
    assert [values.flag(value) for value in (True, False)] == [True, False]
    for wrong in (1, 0, "yes", None):
        assert refused(values.flag, wrong) == Mentions(wrong)


def test_lists_and_their_elements_are_checked():
    assert values.items([1, "a"]) == [1, "a"]
    assert refused(values.items, "a") == Mentions("list")
    assert values.texts(["a", "b"]) == ["a", "b"]
    assert refused(values.texts, ["a", 3]) == Mentions("1", "3", "element")
    assert values.each(values.within(0, 3))([0, 3]) == [0, 3]
    assert refused(values.each(values.within(0, 3)), [4]).startswith("element 0: 4 is not valid")


def test_a_dictionary_must_have_text_keys():
    assert values.by_name({"a": 1}) == {"a": 1}
    for wrong in ({1: 2}, ["a"], None):
        assert refused(values.by_name, wrong) == Mentions("dictionary", "names", "texts")


def test_among_accepts_numbers_and_texts():
    check = values.among(1, 2, "auto")
    assert [check(value) for value in (1, 2, "auto")] == [1, 2, "auto"]
    for wrong in (3, "1", True, None):
        assert refused(check, wrong) == Mentions(repr(wrong), "1", "2", "'auto'")


def test_a_number_is_within_its_limits():
    assert [values.number(number, 0.5, 3) for number in (0.5, 1, 3.0)] == [0.5, 1, 3.0]
    for wrong in (0.4, 3.1, True, "1", None):
        assert refused(lambda value: values.number(value, 0.5, 3), wrong) == (Mentions(wrong, "0.5", "3"))


def test_a_whole_number_without_a_unit_is_refused_without_one():
    assert refused(values.within(1, 3), 0) == Mentions("0", "1", "3", "valid")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("abc", Mentions("abc", "/")),
        ("/", Mentions("/", "//")),
        ("/a/..", Mentions("/a/", "//", "/")),
        ("/" + "é" * 2048, Mentions(f"/{'é' * 79}", "4095")),
        ("/" + "x" * 4095, Mentions(f"/{'x' * 79}", "4096")),
    ],
)
def test_an_invalid_path_is_refused_with_a_remedy(value, message):
    assert refused(values.path, value) == message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("52:54", Mentions("52:54", "MAC")),
        (
            "03:00:00:00:00:01",
            Mentions("03:00:00:00:00:01", "52:54:00:12:34:56"),
        ),
        ("00:00:00:00:00:00", Mentions("00:00:00:00:00:00", "52:54:00:12:34:56")),
    ],
)
def test_an_invalid_mac_address_is_refused_with_a_remedy(value, message):
    assert refused(values.unicast_mac, value) == message


def test_invalid_text_is_refused_with_a_remedy():
    assert refused(values.text, 3) == Mentions("3")
    assert refused(values.text, "") == Mentions("empty")
    assert refused(values.text, "\t") == Mentions("\\t")
    assert refused(lambda value: values.text(value, 2), "abc") == "'abc'... has 3 characters; use 2 at most"


def test_elements_of_a_list_are_different():
    words = values.distinct(values.matching(re.compile("[a-z]+"), "use lower case"))
    assert words(("b", "a")) == ["b", "a"]
    assert "a" in refused(words, ["a", "b", "a"])
    for word in ("B", 7, "a ", ""):
        assert refused(words, ["a", word]) == Mentions("element 1", repr(word))


@pytest.mark.parametrize("value", [True, 1.0])
def test_a_number_of_another_type_is_not_among_numbers(value):
    with pytest.raises(values.InvalidValueError):
        values.among(1, 2)(value)
