# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The syntax that command lines of several systems share: indentation, comments, banners, DSCPs and port ranges."""

from __future__ import annotations

import re

import pytest
from messages import raises
from refusals import refuses

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.cli import (
    CliLine,
    CliReader,
    name_from_lines,
    numbers,
    padded,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import EOS

READER = CliReader("leaf1", EOS)


def nested(lines):
    """Return lines as (number, text, children)."""
    return [(line.number, line.text, nested(line.children)) for line in lines]


def test_lines_belong_to_the_line_with_less_indentation_above_them():
    text = "!\na  1\n   b\n\tc\n\n   d\n!x\n  e\nf\n"
    assert nested(READER.nest(text, "EOS")) == [
        (2, "a 1", [(3, "b", [(4, "c", [])]), (6, "d", []), (8, "e", [])]),
        (9, "f", []),
    ]


@pytest.mark.parametrize(
    "banner",
    [
        "banner motd\na\n  b\nEOF\n",
        "banner motd #a\nb\nc #\n",
        "banner motd #a b#\n",
        "banner motd ##\n",
        "banner motd ^\n% a\nb^\n",
    ],
)
def test_a_banner_is_passed_over(banner):
    assert [line.text for line in READER.nest(f"x\n{banner}y\n", "NX-OS")] == ["x", "y"]


def test_an_indented_line_begins_no_banner():
    assert nested(READER.nest("x\n  banner motd\n  y\n", "EOS")) == [(1, "x", [(2, "banner motd", []), (3, "y", [])])]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("banner motd\nx\n", "leaf1: configuration: it ends within a banner; fetch the running configuration again"),
        ("a\n% Invalid\n", "leaf1: line 2 '% Invalid': not a line of EOS's configuration; fetch the running"),
        ("a\nb\x07\n", "leaf1: line 2 'b\\x07': not a line of EOS's configuration; fetch the running configuration"),
    ],
)
def test_a_text_that_is_no_configuration_is_refused(text, message):
    with pytest.raises(FabricError) as refused:
        READER.nest(text, "EOS")
    assert message in str(refused.value)


def test_a_configuration_of_another_system_is_refused():
    system_line, foreign_line = re.compile("interface "), re.compile("vlan ")
    assert [line.text for line in READER.tree("a\ninterface b\n", "EOS", system_line, foreign_line)] == [
        "a",
        "interface b",
    ]
    with raises(FabricError, "leaf1", "line 2", "'vlan 2'", "EOS"):
        READER.tree("interface b\nvlan 2\n", "EOS", system_line, foreign_line)
    with refuses("leaf1: configuration", "EOS"):
        READER.tree("a\n  interface b\n", "EOS", system_line, foreign_line)


@pytest.mark.parametrize(
    ("text", "dscps"),
    [
        ("26", [26]),
        (" 24-26 48", [24, 25, 26, 48]),
        ("10,18", [10, 18]),
        ("10, 18", [10, 18]),
        ("7-7", [7]),
        ("0 63", [0, 63]),
        ("cs0 cs1 cs2 cs3 cs4 cs5 cs6 cs7", [0, 8, 16, 24, 32, 40, 48, 56]),
        ("af11 af12 af13 af21 af22 af23", [10, 12, 14, 18, 20, 22]),
        ("af31,af32,af33,af41,af42,af43", [26, 28, 30, 34, 36, 38]),
        ("ef va default", [46, 44, 0]),
        ("cs6-ef", None),
        ("cs5-ef", [40, 41, 42, 43, 44, 45, 46]),
        ("64", None),
        ("af44", None),
        ("cs8", None),
        ("1-", None),
        ("", None),
    ],
)
def test_dscps_have_numbers_ranges_and_names(text, dscps):
    if dscps is None:
        with pytest.raises(FabricError, match="leaf1: line 3 'match dscp'"):
            READER.dscps(CliLine(3, "match dscp"), text)
        return
    assert READER.dscps(CliLine(3, "match dscp"), text) == dscps


def test_a_number_has_limits():
    assert [READER.number(CliLine(1, "x"), word, 2, 9) for word in ("2", "9", "05")] == [2, 9, 5]
    for word in ("1", "10", "-2", "x", ""):
        with raises(FabricError, "leaf1", "line 1", repr(word), "2", "9"):
            READER.number(CliLine(1, "x"), word, 2, 9)


@pytest.mark.parametrize(
    ("name", "ports"),
    [
        ("Ethernet1/1", ["Ethernet1/1"]),
        ("Ethernet1", ["Ethernet1"]),
        ("Ethernet 1/1", ["Ethernet1/1"]),
        ("Ethernet1/1-3,1/7", ["Ethernet1/1", "Ethernet1/2", "Ethernet1/3", "Ethernet1/7"]),
        ("Ethernet1/1-3, 7", ["Ethernet1/1", "Ethernet1/2", "Ethernet1/3", "Ethernet1/7"]),
        ("Ethernet1/1 - 1/2", ["Ethernet1/1", "Ethernet1/2"]),
        ("Ethernet1/1-Ethernet1/2", ["Ethernet1/1", "Ethernet1/2"]),
        ("Ethernet1/1,port-channel2-3", ["Ethernet1/1", "port-channel2", "port-channel3"]),
        ("Ethernet1/1.5", ["Ethernet1/1.5"]),
        ("Ethernet1/2/1-2", ["Ethernet1/2/1", "Ethernet1/2/2"]),
    ],
)
def test_a_line_names_a_port_or_a_range_of_ports(name, ports):
    assert READER.ports_of(CliLine(1, f"interface {name}")) == ports


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("1/1", "'1/1' is neither a port nor a range of ports"),
        ("Ethernet", "'Ethernet' is neither a port nor a range of ports"),
        ("Ethernet1/1-2/3", "'Ethernet1/1-2/3' is neither a port nor a range of ports"),
        ("Ethernet3-1", "'Ethernet3-1' is not a range of ports"),
        ("Ethernet0-4096", "'Ethernet0-4096' is not a range of ports"),
    ],
)
def test_what_is_no_range_of_ports_is_refused(name, message):
    with raises(FabricError, "leaf1", "line 1", f"'interface {name}'", message):
        READER.ports_of(CliLine(1, f"interface {name}"))


def test_the_longest_range_has_4096_ports():
    assert len(READER.ports_of(CliLine(1, "interface Ethernet1-4096"))) == 4096


def test_names_of_own_objects_follow_from_their_lines():
    assert name_from_lines("in", ["a", "b"]) == "sailloft-in-7e18f737"
    assert name_from_lines("in", ["a b"]) != name_from_lines("in", ["a", "b"])


def test_numbers_ascend():
    assert numbers([7, 0, 2], " ") == "0 2 7"
    assert padded({1: 5, 3: 7}, 4) == (None, 5, None, 7)
