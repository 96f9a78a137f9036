# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each module accepts exactly the options that its documentation describes, when it is run as Ansible runs it."""

from __future__ import annotations

import ast
import importlib
import runpy
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.basic import AnsibleModule

PLUGINS = Path(__file__).parents[3] / "plugins"
COLLECTION = "ansible_collections.sailloft.fleet.plugins"
# Those without main() are documentation of an action plugin.
MODULES = sorted(path.stem for path in (PLUGINS / "modules").glob("*.py") if "\ndef main(" in path.read_text())


class Made(BaseException):
    """Raised in place of the creation of an AnsibleModule."""


def merged(below, above):
    """Return two trees of dictionaries as one; ``above`` comes first where both have a value."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {
        name: merged(below[name], above[name]) if name in below and name in above else {**below, **above}[name]
        for name in {**below, **above}
    }


def documentation(name):
    """Return the module's documentation with the options and attributes of its fragments."""
    for node in ast.parse((PLUGINS / "modules" / f"{name}.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DOCUMENTATION":
            found = yaml.safe_load(ast.literal_eval(node.value))
    for fragment in found.get("extends_documentation_fragment", []):
        file, _dot, part = fragment.removeprefix("sailloft.fleet.").partition(".")
        source = importlib.import_module(f"{COLLECTION}.doc_fragments.{file}").ModuleDocFragment
        more = yaml.safe_load(getattr(source, part.upper() or "DOCUMENTATION"))
        for key in ("options", "attributes"):
            found[key] = merged(more.get(key, {}), found.get(key, {}))
    return found


@pytest.fixture
def made(monkeypatch):
    """Return a function that runs a module until it creates its AnsibleModule, and returns the arguments of that."""
    kept = {}

    def init(self, argument_spec, **others):
        kept.update(others, argument_spec=argument_spec)
        raise Made

    def run(name):
        with pytest.raises(Made):
            runpy.run_path(str(PLUGINS / "modules" / f"{name}.py"), run_name="__main__")
        return kept

    monkeypatch.setattr(AnsibleModule, "__init__", init)
    return run


def faults(spec, options, where=""):
    """Yield the differences between an argument specification and the documented options, level by level."""
    for name in sorted({*spec, *options}):
        at = f"{where}{name}"
        if name not in spec or name not in options:
            yield f"{at} is only in the {'specification' if name in spec else 'documentation'}"
            continue
        held, told = spec[name], options[name]
        for key, default in (("required", False), ("default", None), ("type", "str"), ("elements", None)):
            one, other = held.get(key, default), told.get(key, default)
            if one != other:
                yield f"{at}: {key} is {one!r}, documented {other!r}"
        if list(held.get("choices") or []) != list(told.get("choices") or []):
            yield f"{at}: choices are {held.get('choices')!r}, documented {told.get('choices')!r}"
        yield from faults(held.get("options") or {}, told.get("suboptions") or {}, f"{at}.")


@pytest.mark.parametrize("name", MODULES)
def test_a_module_has_the_options_and_the_check_mode_of_its_documentation(made, name):
    arguments, described = made(name), documentation(name)
    assert list(faults(arguments["argument_spec"], described.get("options", {}))) == []
    support = described["attributes"]["check_mode"]["support"]
    assert bool(arguments.get("supports_check_mode")) == (support in ("full", "partial"))
