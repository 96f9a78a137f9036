# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Lines of Junos are split into words: quoted text, lists, and lines that set nothing."""

from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.junos_lines import expand_list, set_lines

PLACE = "leaf1: Junos configuration"


def test_lines_are_set_or_deactivated():
    text = '\n# a comment\nset a "b c" d\n  set e ""\ndeactivate f g\nactivate h\nprotect i\n'
    assert set_lines(text, "leaf1") == ([("a", "b c", "d"), ("e", "")], [("f", "g")])


@pytest.mark.parametrize("line", ["set", "delete a", "a { b; }", "x" * 70])
def test_another_line_is_refused(line):
    text = f"set a\n  {line}\n"
    with raises(FabricError, PLACE, "line 2", repr(line[:60])):
        set_lines(text, "leaf1")


@pytest.mark.parametrize("text", ["", "\n# a\n", "deactivate a b\n"])
def test_text_without_a_set_line_is_refused(text):
    with raises(FabricError, PLACE, "set line"):
        set_lines(text, "leaf1")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a b", ["a b"]),
        ("a [ b ]", ["a b"]),
        ("a [ b c ] d", ["a b d", "a c d"]),
        ("[ a b ] c [ d e ]", None),
        ("a [ ]", None),
        ("a [", None),
        ("a ]", None),
        ("a ] b [", None),
        ("a [ b", None),
        ("a [ b [ c ] ]", None),
    ],
)
def test_a_list_is_a_line_for_each_element(text, lines):
    if lines is None:
        with raises(FabricError, PLACE, "list"):
            expand_list(text.split(), PLACE)
        return
    assert expand_list(text.split(), PLACE) == [tuple(line.split()) for line in lines]
