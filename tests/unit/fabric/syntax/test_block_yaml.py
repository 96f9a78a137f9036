# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The reader of switches' YAML, compared with PyYAML."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.block_yaml import YamlError, read

WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=0, max_size=12)
TREES = st.recursive(
    WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS.filter(bool), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(TREES.filter(lambda tree: isinstance(tree, (dict, list)) and tree))
def test_the_output_of_pyyaml_is_read(tree):
    text = yaml.dump(tree, default_flow_style=False, width=4096)
    assert read(text) == yaml.load(text, yaml.BaseLoader) == tree


def test_plain_scalars_are_read_as_strings():
    assert read("a: on\nb: 1:20\nc: 010\nd: ~\ne:\nf: {}\ng: # none\n  h: x # y\n") == {
        "a": "on", "b": "1:20", "c": "010", "d": None, "e": None, "f": {}, "g": {"h": "x"},
    }  # fmt: skip


def test_a_block_scalar_is_read_as_one_value():
    assert read("a:\n  b: |\n    x: y\n      - z\n\n  c: d\n") == {"a": {"b": "x: y\n- z", "c": "d"}}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\n b: 2\n", "line 2"),
        ("a:\n    b: 1\n  c: 2\n", "line 3"),
        ("a: {b: c}\n", "line 1"),
        ("a: &x 1\n", "line 1"),
        ("a: 'b\n", "line 1"),
        ("a: 1\na: 2\n", "line 2"),
        ("a: 1\nb\n", "line 2"),
        ("- a\nb: c\n", "line 2"),
    ],
)
def test_unsupported_yaml_is_refused_with_its_line(text, line):
    with pytest.raises(YamlError, match=line):
        read(text)
