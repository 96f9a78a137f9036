# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The directions of imports that docs/structure.md describes; tests use public names only."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from imported_files import PLUGINS, imported_files

ROOT = Path(__file__).parents[3]
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
    "firmware": {"image"},
    "disks": {"host", "topology"},
    "consoles": {"host"},
    "nic": {"fabric", "host"},
    "gpu_node": {"host", "topology"},
    "site": set(),
    "hca": {"fabric", "host", "nic"},
    "infiniband": {"health", "site"},
    "subnet_manager": {"infiniband", "site", "host"},
    "scheduler": {"site", "topology"},
    "job_containers": {"topology", "host"},
    "slurm_service": {"job_containers", "scheduler", "host"},
    "kubernetes": {"fabric", "host", "pci", "site", "topology"},
    "gateways": set(),
    "storage_scale": set(),
    "monitoring": set(),
    "monitoring_host": {"host", "monitoring"},
    "logs": {"host"},
    "storage": {"disks", "host"},
    "fleet": {"health", "site"},
    "repair": {"health", "scheduler"},
    "health": {"topology", "pci", "host"},
    "crash": {"image", "host"},
    "discovery": {"topology", "site", "host"},
}
FOR_ALL = {"common", "proof"}
# Library files that import Ansible, and the name for which they import it.
IMPORT_ANSIBLE = {"fabric/module.py": "AnsibleModule whose arguments are not returned"}


GRAPH = {
    str(path.relative_to(LIBRARY)): {
        str(file.relative_to(LIBRARY)) for file in imported_files(path) if LIBRARY in file.parents
    }
    for path in sorted(LIBRARY.rglob("*.py"))
}


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
        if re.search(r"^ *(from|import) ansible\b(?!_)", path.read_text(encoding="utf-8"), re.MULTILINE)
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


PRIVATE = re.compile(r"_(?!_)\w*")
# Where a text names something private of another file: only such files need a syntax tree.
FORMS = re.compile(r"[.'\"]_(?!_)\w|import [^\n]*\b_(?!_)\w|^ +_(?!_)\w+,$", re.MULTILINE)
# Private names of Ansible's action plugins, of namedtuples and of os.
OTHERS = {"_connection", "_exit", "_play_context", "_replace", "_task", "_templar"}
ANSIBLES = re.compile(r"_(supports|requires|execute|low_level|remove_tmp|transfer)_\w+")


def base(node: ast.expr) -> str:
    """Return the variable that an expression like ``a.b(c)[0].d`` begins with."""
    while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def private_uses(text: str) -> list[str]:
    """Return "NAME in line N" for private names of this collection: of its modules, and of what their calls return."""
    nodes = list(ast.walk(ast.parse(text)))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and "sailloft" in str(node.module)]
    aliases = [(alias, node) for node in imports for alias in node.names]
    variables = {alias.asname or alias.name for alias, _node in aliases}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and base(node.value) in variables:
            variables |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    uses = [(alias.name, node.lineno) for alias, node in aliases]
    for node in nodes:
        if isinstance(node, ast.Attribute) and base(node) in variables:
            uses.append((node.attr, node.lineno))
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("setattr", "delattr", "object"):
            target, *names = [*node.args, None]
            if isinstance(target, ast.Constant) and "sailloft" in str(target.value):
                uses.append((str(target.value).rpartition(".")[2], node.lineno))
            elif target and base(target) in variables and isinstance(names[0], ast.Constant):
                uses.append((str(names[0].value), node.lineno))
    return [
        f"{name} in line {line}"
        for name, line in uses
        if PRIVATE.fullmatch(name) and name not in OTHERS and not ANSIBLES.fullmatch(name)
    ]


def test_private_names_are_detected():
    package = f"from {PACKAGE}vm import converge"
    for text in (
        f"from {PACKAGE}vm.converge import _diff",
        f"{package}\nconverge._diff()",
        f"{package}\nmonkeypatch.setattr(converge, '_diff', None)",
        f"monkeypatch.setattr('{PACKAGE}vm.converge._diff', None)",
        f"{package}\nfound = converge.Work()\nfound.rows[0]._diff",
    ):
        assert [use.partition(" ")[0] for use in private_uses(text)] == ["_diff"], text
        assert FORMS.search(text), text
    assert private_uses(f"{package}\nself._diff, converge.action._task, converge.row._replace(), os._exit") == []


def test_tests_use_public_names():
    uses = {
        str(path.relative_to(ROOT)): private_uses(text)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if FORMS.search(text := path.read_text())
    }
    assert {path: lines for path, lines in uses.items() if lines} == {}
