# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A role declares its variables twice, in defaults and in argument_specs: both must agree."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.sailloft.fleet.plugins.module_utils.host.wanted import options

ROLES = Path(__file__).parents[3] / "roles"
TYPES = {"bool": bool, "int": int, "float": float, "str": str, "path": str, "list": list, "dict": dict, "raw": object}


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def entries():
    """Yield (role, entry point, its options) of all roles."""
    for role in sorted(path.name for path in ROLES.iterdir() if path.is_dir()):
        for entry, spec in load(ROLES / role / "meta/argument_specs.yml")["argument_specs"].items():
            yield role, entry, spec.get("options", {})


def computed(value):
    """Return whether a default is known only when the role runs, so that its specification cannot repeat it."""
    return "{{" in str(value)


ENTRIES = list(entries())
DEFAULTS = {role: load(ROLES / role / "defaults/main.yml") for role, _entry, _options in ENTRIES}


@pytest.mark.parametrize("role", DEFAULTS)
def test_a_specification_has_the_defaults_and_no_others(role):
    known = {name: value for name, value in DEFAULTS[role].items() if not computed(value)}
    for given in (given for other, _entry, given in ENTRIES if other == role):
        assert {name: option.get("default") for name, option in given.items()} == {
            name: known.get(name) for name in given
        }
        assert {name for name, option in given.items() if not option.get("required")} <= set(DEFAULTS[role])
        for name in set(given) & set(known):
            wanted = TYPES[given[name]["type"]]
            assert isinstance(known[name], wanted), name
            # A bool is an int for isinstance.
            assert isinstance(known[name], bool) == (wanted is bool), name


@pytest.mark.parametrize("role", DEFAULTS)
def test_every_default_is_specified(role):
    # Variables that a user must set have no default.
    specified = {
        name
        for other, _entry, options in ENTRIES
        if other == role
        for name, option in options.items()
        if not option.get("required")
    }
    assert set(DEFAULTS[role]) == specified


@pytest.mark.parametrize("role", DEFAULTS)
def test_a_variable_is_named_after_its_role_and_used_by_it(role):
    files = (path for part in ("tasks", "templates", "vars") for path in (ROLES / role).glob(f"{part}/**/*"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in files if path.is_file())
    # The module gpu_host reads the variables of its role.
    read_by_module = {f"gpu_host_{name}" for name in options()}
    assert [name for name in DEFAULTS[role] if not name.startswith(f"{role}_")] == []
    assert {
        name
        for name in DEFAULTS[role]
        if name not in text and not any(name in str(value) for other, value in DEFAULTS[role].items() if other != name)
    } <= read_by_module


def test_the_roles_are_found():
    assert {"boot_server", "gpu_guest", "gpu_host", "gpu_vm", "lab", "node_boot", "node_image"} <= set(DEFAULTS)


def test_only_templates_use_ansible_managed():
    """The variable ansible_managed exists only in templates; a task that uses it fails."""
    tasks = [path for path in ROLES.rglob("*.yml") if "ansible_managed" in path.read_text(encoding="utf-8")]
    assert tasks == []
