# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The reader of switches' YAML, compared with PyYAML."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.block_yaml import YamlError, read

WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=0, max_size=12)
TREES = st.recursive(
    WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS.filter(bool), inner, max_size=3),
    max_leaves=12,
)


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {b: c}\nd: 1\n", "line 1, 'a: {b: c}', uses YAML that a switch's configuration does not have"),
        ("- 'b\n- c\n", 'line 1, "\'b", has an unterminated quote'),
        ("a:\n- &b\n- c\n", "line 2, '&b', uses YAML that a switch's configuration does not have"),
        ("a: '\nb: 1\n", 'line 1, "a: \'", has an unterminated quote'),
        ('a: "\nb: 1\n', "line 1, 'a: \"', has an unterminated quote"),
        ('a: "b\nb: 1\n', "line 1, 'a: \"b', has an unterminated quote"),
        ("a: 1\na: 2\nb: 3\n", "line 2, 'a: 2', repeats the key a"),
        ("a: 1\n\nb\nc: 3\n", "line 3, 'b', is not KEY: VALUE"),
        ("a:\n  b: 1\n c: 2\n", "line 3, 'c: 2', is not indented like the block that it belongs to"),
        ("a: 1\n- b: 2\n", "line 2, '- b: 2', is not KEY: VALUE"),
        ("- a: 1\n- b\nc: 2\n", "line 3, 'c: 2', is not indented like the block that it belongs to"),
        ("a: 1\n---\nb: 2\n", "line 2, '---', is not KEY: VALUE"),
        (f"{'x' * 61}\ny: 1\n", "line 2, 'y: 1', is not indented like the block that it belongs to"),
        (f"a: 1\n{'x' * 61}\n", f"line 2, '{'x' * 60}', is not KEY: VALUE"),
    ],
)
def test_a_refusal_names_the_line_and_the_reason(text, message):
    with pytest.raises(YamlError) as refused:
        read(text)
    assert refused.value.cause == message


def test_comments_and_the_mark_of_a_document_are_skipped():
    assert read("# one\n---\n# two\na: 1\n  # three\nb:\n  # four\n  - c\n") == {"a": "1", "b": ["c"]}
    assert read("") is None
    assert read("# nothing\n---\n") is None


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("-\n- b\n", [None, "b"]),
        ("-\n a: 1\n b: 2\n-\n - c\n", [{"a": "1", "b": "2"}, ["c"]]),
        ("- - a\n  - b\n- c: 1\n  d: 2\n-\n", [["a", "b"], {"c": "1", "d": "2"}, None]),
        ("a:\n b: 1\nc:\n-\n- d\n", {"a": {"b": "1"}, "c": [None, "d"]}),
        ("a:\n-b: 1\n", {"a": None, "-b": "1"}),
        ("a:\nb: 1\n", {"a": None, "b": "1"}),
    ],
)
def test_nested_blocks_may_be_indented_by_one_or_begin_at_the_next_line(text, content):
    assert read(text) == content


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("a: |\n  x\n", {"a": "x"}),
        ("a: |\n  x\nb: 1\n", {"a": "x", "b": "1"}),
        ("a: >-\n  x: y\n  - z\n\n  '\nb: 1\n", {"a": "x: y\n- z\n\n'", "b": "1"}),
        ("a:\n  b: |+2\n   x\n\n\n  c: 1\nd: 2\n", {"a": {"b": "x", "c": "1"}, "d": "2"}),
        ("a: |\nb: 1\n", {"a": "", "b": "1"}),
    ],
)
def test_a_block_scalar_ends_at_the_indentation_of_its_key(text, content):
    assert read(text) == content


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('""', ""),
        ("''", ""),
        ('"b"', "b"),
        (r'"b\"c\\d"', r'b"c\d'),
        ("'it''s'", "it's"),
        ("'#'", "#"),
        ("null", None),
        ("[]", []),
        ("x#y", "x#y"),
        ("x # y # z", "x"),
        ("x  ", "x"),
    ],
)
def test_a_scalar_is_read_without_its_quotes_escapes_and_comment(text, value):
    assert read(f"a: {text}\n") == {"a": value}
    assert read(f"- {text}\n") == [value]
