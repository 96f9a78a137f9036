# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The directions of imports that docs/structure.md describes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[3] / "plugins"
LIBRARY = PLUGINS / "module_utils"
PACKAGE = "ansible_collections.sailloft.fleet.plugins.module_utils."
PLUGIN_UTILS = "ansible_collections.sailloft.fleet.plugins.plugin_utils"

# The packages that each package of the library may import, besides itself, proof and common.
ALLOWED = {
    "common": set(),
    "pci": set(),
    "proof": set(),
    "topology": {"pci"},
    "host": {"topology", "pci"},
    "vm": {"topology", "pci"},
    "fabric": set(),
    "image": set(),
    "nic": {"fabric", "host"},
    "gpu_node": {"host", "topology"},
    "site": set(),
    "infiniband": {"site"},
    "subnet_manager": {"infiniband", "site", "host"},
    "gateways": set(),
    "health": {"topology", "pci", "host"},
}
FOR_ALL = {"common", "proof"}
# Library files that import Ansible, and the name for which they import it.
IMPORT_ANSIBLE = {"fabric/module.py": "AnsibleModule whose arguments are not returned"}


def imports(path: Path) -> list[str]:
    """Return the dotted names that a file imports, at its top level, in functions or only for types."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{name.name}" for name in node.names]
    return found


def own(path: Path) -> set[str]:
    """Return the library's files that a file imports, as paths below module_utils."""
    files = set()
    for name in imports(path):
        if name.startswith(PACKAGE):
            place = name[len(PACKAGE) :].split(".")
            for end in (len(place), len(place) - 1):
                file = LIBRARY.joinpath(*place[:end]).with_suffix(".py")
                if file.is_file():
                    files.add(str(file.relative_to(LIBRARY)))
                    break
    return files


GRAPH = {str(path.relative_to(LIBRARY)): own(path) for path in sorted(LIBRARY.rglob("*.py"))}


def test_every_package_is_in_the_table():
    assert {name.split("/")[0] for name in GRAPH} == set(ALLOWED)


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_a_package_imports_only_allowed_packages(package):
    known = ALLOWED[package] | FOR_ALL | {package}
    wrong = [
        f"{name} imports {other}"
        for name, others in GRAPH.items()
        if name.startswith(f"{package}/")
        for other in sorted(others)
        if other.split("/")[0] not in known
    ]
    assert wrong == []


def test_the_families_of_distributions_do_not_import_the_requests_that_use_them():
    assert [
        (name, other)
        for name, others in GRAPH.items()
        for other in sorted(others)
        if name.startswith("image/families/") and other.startswith("image/request/")
    ] == []


def test_the_health_check_of_a_node_imports_neither_topology_nor_host():
    """The code that runs on the node stays small: only what the controller computes, and the installer, need more."""
    others = {
        (name, other.split("/")[0])
        for name, others in GRAPH.items()
        for other in others
        if name.startswith("health/") and not name.startswith("health/expect/") and other.split("/")[0] not in FOR_ALL
    }
    assert {(name, other) for name, other in others if other != "health"} == {("health/install.py", "host")}


def test_no_file_imports_itself_through_others():
    done: set[str] = set()

    def walk(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " -> ".join((*way[way.index(name) :], name))
        if name not in done:
            for other in sorted(GRAPH[name]):
                walk(other, (*way, name))
            done.add(name)

    for name in GRAPH:
        walk(name, ())


def test_only_modules_and_plugins_import_ansible():
    seen = {
        str(path.relative_to(LIBRARY))
        for path in LIBRARY.rglob("*.py")
        if any(name == "ansible" or name.startswith("ansible.") for name in imports(path))
    }
    assert seen == set(IMPORT_ANSIBLE)


def test_filters_import_the_library_when_they_are_called():
    """Imports at the top level cost time in each process that uses any filter.

    Ansible then loads all filters of the collection, and compiles what they import. ``common`` is small, and another
    filter's file is loaded anyway (Jinja2Loader.get_with_context of ansible-core 2.19).
    """
    early = [
        f"{path.name}: {node.module}"
        for path in sorted((PLUGINS / "filter").glob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith((PACKAGE, PLUGIN_UTILS))
        and not (node.module or "").startswith(f"{PACKAGE}common")
    ]
    assert early == []
