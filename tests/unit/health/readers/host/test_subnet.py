# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Links of an InfiniBand subnet are found that are down, slower than they can be, or have errors."""

from __future__ import annotations

import contextlib

import pytest
from health_nodes import failed, node, results
from hypothesis import given
from hypothesis import strategies as st
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import PASS, Expected, Port
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.subnet import (
    parse_errors,
    parse_links,
    read,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError, Ran

EXPECTED = Expected("sm01", ports=(Port("mlx5_0/1", peer="leaf-1 1"), Port("mlx5_1/1", peer="leaf-1 2")))
UP, DOWN = "4X        53.125 Gbps Active/  LinkUp", "               Down/ Polling"
SUMMARY = "\n## Summary: 2 nodes checked, 0 bad nodes found\n"
ERRORS = 'Errors for 0x200000 "leaf-1"\n   GUID 0x200000 port ALL: [{0}]\n   GUID 0x200000 port 2: [{0}]\n' + SUMMARY


def links(state=UP, notes="Could be 12X "):
    """Return the two links of a leaf, the second of which has a state and notes, and a port that nothing is in."""
    lines = []
    for port, link, note in ((1, UP, "Could be 12X "), (2, state, notes), (3, DOWN, " ")):
        peer = f'0x000000000010000{port}      {port}    1[  ] "node0{port} mlx5_0"' if "Up" in link else '[  ] ""'
        lines.append(f'0x0000000000200000 "      leaf-1"      2    {port}[  ] ==( {link})==>  {peer} ({note})')
    return "\n".join(lines) + "\n"


def reading(root, shown=None, errors=SUMMARY):
    """Return a reading of a subnet."""
    programs = {"iblinkinfo": links() if shown is None else shown, "ibqueryerrors": Ran(1, errors, "")}
    return read(node(root, EXPECTED, programs))


def test_a_healthy_subnet_passes_and_an_unused_port_is_none(tmp_path):
    judged = [each for each in results(reading(tmp_path), reading(tmp_path), expected=EXPECTED) if each.source]
    assert {result.verdict for result in judged} == {PASS}
    assert {result.place.name for result in judged} == {"leaf-1 1", "leaf-1 2"}


@pytest.mark.parametrize(
    ("shown", "errors", "expected"),
    [
        (links(DOWN, " "), SUMMARY, {"port_down": ["leaf-1 2"]}),
        (links(notes="Could be 12X Could be 53.125 Gbps"), SUMMARY, {"port_below_ability": ["leaf-1 2"]}),
        (None, ERRORS.format("SymbolErrorCounter == 4127"), {"port_symbol_errors": ["leaf-1 2"]}),
        (None, ERRORS.format("LinkDownedCounter == 6"), {"port_link_downs": ["leaf-1 2"]}),
        (None, ERRORS.format("LocalLinkIntegrityErrors == 9"), {"port_integrity_errors": ["leaf-1 2"]}),
        (None, ERRORS.format("PortXmitWait == 41927"), {}),
    ],
)
def test_each_sick_link_is_named(tmp_path, shown, errors, expected):
    assert failed(reading(tmp_path), reading(tmp_path, shown, errors), expected=EXPECTED) == expected


@pytest.mark.parametrize("text", ["", "ibwarn: Zugriff verweigert", "\x00\x01"])
def test_other_text_is_an_error(tmp_path, text):
    with raises(NotMeasuredError, "iblinkinfo"):
        reading(tmp_path, text)
    with raises(NotMeasuredError, "ibqueryerrors"):
        reading(tmp_path, errors=text)
    with raises(NotMeasuredError, "255"):
        read(node(tmp_path, EXPECTED, {"iblinkinfo": Ran(255, links(), "")}))


@given(st.text() | st.binary().map(lambda data: data.decode(errors="replace")))
def test_no_text_is_an_error_of_another_class(text):
    for parse in (parse_links, parse_errors):
        with contextlib.suppress(NotMeasuredError):
            assert isinstance(parse(text), (list, dict))
