# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Errors have one signature; one about a host has the next step as its remedy, separate from the cause."""

from __future__ import annotations

import ast
import re
from pathlib import Path

LIBRARY = Path(__file__).parents[3] / "plugins/module_utils"
# Errors whose remedy has a default, and errors that are always raised with a remedy.
WITH_DEFAULT = {"KernelRefusedError", "PciError", "TopologyError"}
WITHOUT = {"HostError", "RequestError"}
FILES = sorted(file for folder in ("host", "nic", "pci", "topology") for file in (LIBRARY / folder).rglob("*.py"))


def errors(text):
    """Yield (name, arguments, text of the cause) of each error that a file makes."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WITH_DEFAULT | WITHOUT:
            texts = [part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
            yield node.func.id, len(node.args) + len(node.keywords), "".join(map(str, texts))


def test_errors_have_a_remedy():
    found = [(file, *error) for file in FILES for error in errors(file.read_text())]
    assert len(found) > 100
    assert [(file, cause) for file, name, arguments, cause in found if name in WITHOUT and arguments < 2] == []
    assert [(file, cause) for file, name, _arguments, cause in found if name in WITH_DEFAULT and "; " in cause] == []


def test_errors_are_found():
    assert list(errors('raise HostError(f"{path}; mount it")')) == [("HostError", 1, "; mount it")]


def test_no_error_takes_its_subject_by_position():
    texts = [file.read_text() for file in LIBRARY.rglob("*.py")]
    trees = [ast.parse(text) for text in texts if re.search(r"^class \w+Error\b", text, re.MULTILINE)]
    classes = [node for tree in trees for node in tree.body]
    methods = [
        (node.name, item)
        for node in classes
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error")
        for item in node.body
        if isinstance(item, ast.FunctionDef) and item.name == "__init__"
    ]
    assert {name for name, method in methods if {"subject", "domain"} & {arg.arg for arg in method.args.args}} == set()
    assert len(methods) > 3
