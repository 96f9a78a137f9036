# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the YAML in which switches print their configuration: blocks of mappings and lists, and scalars, nothing else.

PyYAML is not used: the library uses only Python's standard library, because a module runs with any interpreter, also on
localhost; and YAML 1.1 would read NVUE's ``on`` as a boolean. All scalars are strings here; ``{}`` is a dictionary,
``[]`` a list, and an empty value None. Anchors, tags, flow collections with contents and several documents are refused
with the line's number.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError

KEY = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s"'\[\]{}&*!|>%@`#].*?)\s*:(?=\s|$)""")
LITERAL = re.compile(r"[|>][+-]?\d?")
EMPTY: dict[str, Any] = {"{}": dict, "[]": list, "": lambda: None, "null": lambda: None, "~": lambda: None}


class YamlError(SailloftError):
    """The text is not such YAML; the message names the line."""


def read(text: str) -> Any:
    """Return the content of ``text``: dictionaries with string keys, lists, strings and None. Raises YamlError."""
    lines = _Lines(text)
    value = _node(lines, 0) if lines.more() else None
    if lines.more():
        raise lines.error("is not indented like the block that it belongs to")
    return value


class _Lines:
    """The non-empty lines, each as (number, indent, content), and the current position."""

    def __init__(self, text: str) -> None:
        self.all = text.splitlines()
        self.lines: list[tuple[int, int, str]] = []
        for number, line in enumerate(self.all, 1):
            content = line.strip()
            if content and not content.startswith("#") and not (content == "---" and not self.lines):
                self.lines.append((number, len(line) - len(line.lstrip(" ")), content))
        self.position = 0

    def more(self) -> bool:
        return self.position < len(self.lines)

    def current(self) -> tuple[int, int, str]:
        return self.lines[self.position]

    def replace(self, indent: int, content: str) -> None:
        self.lines[self.position] = (self.lines[self.position][0], indent, content)

    def error(self, problem: str) -> YamlError:
        number, _indent, content = self.current()
        return YamlError(f"line {number}, {content[:60]!r}, {problem}")


def _node(lines: _Lines, least_indent: int) -> Any:
    """Return the block that begins here, if it is indented by ``least_indent`` or more; else None."""
    if not lines.more() or lines.current()[1] < least_indent:
        return None
    indent, content = lines.current()[1:]
    if _is_item(content):
        return _list(lines, indent)
    if KEY.match(content):
        return _mapping(lines, indent)
    value = _scalar(lines, content)
    lines.position += 1
    return value


def _is_item(content: str) -> bool:
    """Return true where a line begins an item of a list; "-1: x" is a key."""
    return content == "-" or content.startswith("- ")


def _list(lines: _Lines, indent: int) -> list[Any]:
    items = []
    while lines.more() and lines.current()[1] == indent and _is_item(lines.current()[2]):
        item = lines.current()[2][1:].strip()
        if item:  # the text after the dash is the item's first line
            lines.replace(indent + 2, item)
        else:
            lines.position += 1
        items.append(_node(lines, indent + 1))
    return items


def _mapping(lines: _Lines, indent: int) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    while lines.more() and lines.current()[1] == indent:
        number, _indent, content = lines.current()
        match = None if _is_item(content) else KEY.match(content)
        if match is None:
            raise lines.error("is not KEY: VALUE")
        key = _scalar(lines, match[1])
        if key in mapping:
            raise lines.error(f"repeats the key {key}")
        value = content[match.end() :].strip()
        if value and not value.startswith("#") and not LITERAL.fullmatch(value):
            mapping[key] = _scalar(lines, value)
            lines.position += 1
            continue
        lines.position += 1
        if value and not value.startswith("#"):
            mapping[key] = _literal(lines, number, indent)
        elif lines.more() and lines.current()[1] == indent and _is_item(lines.current()[2]):
            mapping[key] = _list(lines, indent)
        else:
            mapping[key] = _node(lines, indent + 1)
    return mapping


def _literal(lines: _Lines, number: int, indent: int) -> str:
    """Return a block of text: all lines after line ``number`` that are indented by more than its key."""
    end = number
    while end < len(lines.all):
        line = lines.all[end]
        if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
            break
        end += 1
    while lines.more() and lines.current()[0] <= end:
        lines.position += 1
    return "\n".join(line.strip() for line in lines.all[number:end]).rstrip("\n")


def _scalar(lines: _Lines, text: str) -> Any:
    if text in EMPTY:
        return EMPTY[text]()
    if text[0] == "'":
        if len(text) < 2 or text[-1] != "'":
            raise lines.error("has an unterminated quote")
        return text[1:-1].replace("''", "'")
    if text[0] == '"':
        if len(text) < 2 or text[-1] != '"':
            raise lines.error("has an unterminated quote")
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    if text[0] in "&*!%@`[]{}|>":
        raise lines.error("uses YAML that a switch's configuration does not have")
    return re.split(r"\s#", text, maxsplit=1)[0].rstrip()
