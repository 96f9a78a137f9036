# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import ast
import builtins
import pickle
import re
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SailloftError("it is down"), "it is down"),
        (SailloftError("it is down", "plug it in"), "it is down; plug it in"),
        (SailloftError("it is down", subject="port 1"), "port 1: it is down"),
        (SailloftError(cause="it is down", remedy="plug it in", subject="port 1"), "port 1: it is down; plug it in"),
    ],
)
def test_an_error_has_the_same_text_after_pickling(error, text):
    assert str(error) == text
    assert str(pickle.loads(pickle.dumps(error))) == text


def test_all_errors_of_the_collection_have_one_base():
    built_in = {name for name, kind in vars(builtins).items() if isinstance(kind, type)}
    others = [
        f"{path.name}: {node.name}"
        for path in sorted((Path(__file__).parents[3] / "plugins").rglob("*.py"))
        if re.search(r"^ *class \w+Error\b", path.read_text(), re.MULTILINE)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and node.name.endswith("Error")
        and any(ast.unparse(base) in built_in for base in node.bases)
    ]
    assert others == ["error.py: SailloftError"]
