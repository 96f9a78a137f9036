# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Dataclasses from plain data: every value has the type of its field, and an error names the path to it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError, build
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Bar, Function, Host, Link


@dataclass
class Part:
    """A part with one field of each scalar type."""

    address: str
    count: int = 0
    rate: float = 0.0
    on: bool = False
    maybe: int | None = None


@dataclass
class Whole:
    """A whole with a part, and with lists and dictionaries of parts."""

    part: Part
    other: Part | None = None
    parts: list[Part] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    by_name: dict[str, list[int]] = field(default_factory=dict)


def refusal(data, kind=Whole):
    with pytest.raises(StoredError) as error:
        build(kind, data)
    return error.value.cause


PART = {"address": "a"}


def test_every_type_of_the_model_is_built():
    data = {
        "part": {"address": "a\tb", "count": -1, "rate": 2, "on": True, "maybe": None},
        "other": None,
        "parts": [{"address": "", "rate": 0.5, "maybe": 3}],
        "names": ["x", "é"],
        "by_name": {"": [], "y": [1, 2]},
    }
    assert build(Whole, data) == Whole(
        Part("a\tb", -1, 2, True, None), None, [Part("", rate=0.5, maybe=3)], ["x", "é"], {"": [], "y": [1, 2]}
    )
    assert build(Whole, {"part": PART}) == Whole(Part("a"))
    assert build(Whole, {"part": PART, "other": PART}).other == Part("a")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "is None, expected an object with the keys of Whole"),
        (["x" * 80], f"is ['{'x' * 58}, expected an object with the keys of Whole"),
        ({}, "'part' is missing"),
        ({"part": None}, "part is None, expected an object with the keys of Part"),
        ({"part": {}}, "part 'address' is missing"),
        ({"part": {"address": 1}}, "part.address is 1, expected str"),
        ({"part": {"address": None}}, "part.address is None, expected str"),
        ({"part": {"address": b"x" * 80}}, f"part.address is b'{'x' * 58}, expected str"),
        ({"part": {"address": "a\0"}}, "part.address is 'a\\x00', which contains an invalid character"),
        (
            {"part": {"address": "\x1f" + "x" * 80}},
            f"part.address is '\\x1f{'x' * 55}, which contains an invalid character",
        ),
        ({"part": {**PART, "count": True}}, "part.count is True, expected int"),
        ({"part": {**PART, "count": 1.0}}, "part.count is 1.0, expected int"),
        ({"part": {**PART, "count": None}}, "part.count is None, expected int"),
        ({"part": {**PART, "rate": "1"}}, "part.rate is '1', expected float"),
        ({"part": {**PART, "rate": True}}, "part.rate is True, expected float"),
        ({"part": {**PART, "on": 1}}, "part.on is 1, expected bool"),
        ({"part": {**PART, "maybe": "1"}}, "part.maybe is '1', expected int"),
        ({"part": PART, "other": []}, "other is [], expected an object with the keys of Part"),
        ({"part": PART, "parts": {"a": 1}}, "parts is {'a': 1}, expected a list"),
        ({"part": PART, "parts": "x" * 80}, f"parts is '{'x' * 59}, expected a list"),
        ({"part": PART, "parts": [PART, 1]}, "parts[1] is 1, expected an object with the keys of Part"),
        ({"part": PART, "parts": [{**PART, "count": "x"}]}, "parts[0] (a).count is 'x', expected int"),
        ({"part": PART, "parts": [{"address": 1}]}, "parts[0].address is 1, expected str"),
        ({"part": PART, "parts": [{"address": "\n", "on": 1}]}, "parts[0].on is 1, expected bool"),
        (
            {"part": PART, "parts": [{"address": "x" * 21, "on": 1}]},
            f"parts[0] ({'x' * 20}).on is 1, expected bool",
        ),
        ({"part": PART, "names": ["a", 1]}, "names[1] is 1, expected str"),
        ({"part": PART, "by_name": []}, "by_name is [], expected an object"),
        ({"part": PART, "by_name": {1: []}}, "by_name is {1: []}, expected an object"),
        ({"part": PART, "by_name": {"a": [1, "b"]}}, "by_name['a'][1] is 'b', expected int"),
        ({"part": PART, "by_name": {"a": 1}}, "by_name['a'] is 1, expected a list"),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_path(data, words):
    assert refusal(data) == words


@pytest.mark.parametrize("text", ["\t", "\n", "\r", "\x7f", "\x85", "\ufffe", "a\u200bb"])
def test_text_that_xml_allows_is_accepted_even_if_it_is_not_printable(text):
    assert build(Part, {"address": text}) == Part(text)


@pytest.mark.parametrize("code", [0x00, 0x08, 0x0B, 0x0C, 0x0E, 0x1F, 0xD800, 0xDFFF])
def test_text_that_xml_does_not_allow_is_refused(code):
    text = chr(code)
    assert refusal({"address": text}, Part) == Mentions("address", repr(text), "character")


def test_functions_are_named_by_their_addresses():
    ids = {"root_complex": "r", "parent": None, "class_code": 0, "vendor_id": 0, "device_id": 0, "kind": "gpu"}
    function = {"address": "0000:01:00.0", **ids, "port_type": None}
    data = {"numa_nodes": [], "root_complexes": [], "functions": [function]}
    assert build(Host, data).functions == [Function("0000:01:00.0", "r", None, 0, 0, 0, "gpu", None)]
    function["link"] = {"speed_gt_s": 1, "width": None, "max_speed_gt_s": 2.5, "max_width": 4}
    assert build(Host, data).functions[0].link == Link(1, None, 2.5, 4)
    function["bars"] = [{"index": 0, "size_bytes": 1, "kind": "memory", "width_bits": 32, "prefetchable": 0}]
    assert refusal(data, Host) == "functions[0] (0000:01:00.0).bars[0].prefetchable is 0, expected bool"
    function["bars"][0]["prefetchable"] = False
    assert build(Host, data).functions[0].bars == [Bar(0, 1, "memory", 32, False)]
    del function["parent"]
    assert refusal(data, Host) == "functions[0] (0000:01:00.0) 'parent' is missing"
