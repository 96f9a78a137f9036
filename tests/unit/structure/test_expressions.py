# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Python computes: an expression of a playbook is one short line with one order; only templates have statements."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from jinja2 import Environment

ROOT = Path(__file__).parents[3]
MOST_CHARACTERS = 120
# Ansible's filters of sets return another order in each run; nothing after them may depend on the order.
UNORDERED = re.compile(r"\| (difference|intersect|symmetric_difference|union)\((?!.*\) (\| (sort|length)\b|== \[\]))")
# Keywords whose value is an expression without braces.
BARE = {"changed_when", "failed_when", "that", "until", "when"}
FILES = sorted(
    [
        *(ROOT / "playbooks").glob("*.yml"),
        *(ROOT / "molecule").rglob("*.yml"),
        *(file for part in ("defaults", "handlers", "tasks", "vars") for file in ROOT.glob(f"roles/*/{part}/**/*.yml")),
    ]
)


def test_plays_and_roles_print_with_report():
    """Ansible's debug folds, quotes and escapes lines."""
    files = [file for file in FILES if file.relative_to(ROOT).parts[0] != "molecule"]
    assert [str(file) for file in files if re.search(r"^ +ansible\.builtin\.debug:", file.read_text(), re.M)] == []


def texts(data, keyword=""):
    """Yield (keyword, text) for every text in YAML."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield from texts(value, name)
    elif isinstance(data, list):
        for value in data:
            yield from texts(value, keyword)
    elif isinstance(data, str):
        yield keyword, data


ENVIRONMENT = Environment()


def faults(keyword, text):
    """Yield the faults of the expressions in a text."""
    bare = keyword in BARE and "{{" not in text
    expression = ""
    for _line, kind, value in ENVIRONMENT.lex(f"{{{{ {text} }}}}" if bare else text):
        if kind == "block_begin":
            yield f"a statement: {text}"
        elif kind == "variable_begin":
            expression = ""
        elif kind == "variable_end":
            if len(expression.strip()) > MOST_CHARACTERS:
                yield f"{len(expression.strip())} characters: {expression.strip()}"
            if UNORDERED.search(expression):
                yield f"an order that changes: {expression.strip()}"
        else:
            expression += value
            if kind == "whitespace" and "\n" in value:
                yield f"several lines: {text}"


def test_expressions_are_short_deterministic_and_without_statements_and_messages_are_lists_of_lines():
    """Ansible's default output shows a line end within a text as \\n."""
    found = [
        (str(file.relative_to(ROOT)), fault)
        for file in FILES
        for keyword, text in texts(yaml.safe_load(file.read_text()))
        for fault in (*faults(keyword, text), *(["lines in one text"] if keyword == "msg" and "\n" in text else []))
    ]
    assert found == []


def test_faulty_expressions_are_found():
    assert list(faults("msg", "{% for each in a %}{% endfor %}")) != []
    assert list(faults("msg", "{{ a\n | b }}")) != []
    assert list(faults("when", "a" * 121)) == ["121 characters: " + "a" * 121]
    assert list(faults("msg", "{{ " + "{'a': {'b': 1}}" * 9 + " }}")) != []
    assert list(faults("msg", "{{ a | difference(b) | join }}")) == ["an order that changes: a | difference(b) | join"]
    assert list(faults("that", "a | difference([b | first]) | length == 0")) == []
    assert list(faults("msg", "{{ " + "a" * 120 + " }} " + "word " * 99 + "{{ 'x\ny' }}")) == []
