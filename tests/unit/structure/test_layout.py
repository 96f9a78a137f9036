# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The layout that docs/structure.md describes: small directories and files, and tests placed as the library is."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from pathlib import Path

import pytest
from imported_files import PLUGINS, imported_files

ROOT = Path(__file__).parents[3]
LIBRARY = PLUGINS / "module_utils"
UNIT = ROOT / "tests/unit"
MOST_FILES, MOST_LINES = 15, 400
# A longer file gives the reason near its top, in its docstring or a comment, in a sentence that begins with this.
REASON = "One file because "
TOP_LINES = 40
# Files that nobody writes by hand: bytecode, recordings, expected output of tests.
NOT_WRITTEN = (".pyc", ".json", ".xml", ".svg", ".png")
GENERATED = {"recordings", "proofs", "__pycache__"}
# Ansible finds a name by its file in these directories.
FLAT = ("plugins/action", "plugins/filter", "plugins/modules", "playbooks")
# It finds these classes by their names.
ANSIBLE_CLASSES = {"ActionModule", "FilterModule", "ModuleDocFragment"}
# Directories of tests/unit that mirror a directory outside the library.
OTHERS = {
    "action": "plugins/action",
    "callback": "plugins/callback",
    "filter": "plugins/filter",
    "inventory": "plugins/inventory",
    "modules": "plugins/modules",
    "playbooks": "playbooks",
    "roles": "roles",
}
# They test each file of their directory.
EVERY = (UNIT / "modules/test_every_module.py", UNIT / "action/test_every_action.py")


def names(folder: Path) -> set[str]:
    """Return the names of a directory's Python files, playbooks and subdirectories."""
    return {path.stem for path in folder.iterdir() if path.suffix in (".py", ".yml") or path.is_dir()}


def named_after(test: Path, there: set[str]) -> bool:
    """Return True if a test is named after one of ``there``: test_NAME.py or test_NAME_TOPIC.py."""
    name = test.stem[len("test_") :]
    return any(name == other or name.startswith(f"{other}_") for other in there)


# Those of packages only refuse an old Python: tests/unit/common/test_least_python.py.
FILES = sorted(path for path in LIBRARY.rglob("*.py") if path.name != "__init__.py")
TESTS = sorted(UNIT.rglob("test_*.py"))


def package(file: Path) -> str:
    """Return the package of the library that a file belongs to; "" for a file outside of the library."""
    return file.relative_to(LIBRARY).parts[0] if LIBRARY in file.parents else ""


def test_pytest_recurses_into_every_folder_with_tests(pytestconfig):
    passed_over = pytestconfig.getini("norecursedirs")
    folders = {test.parent for test in TESTS}
    assert [each for each in folders if any(fnmatch.fnmatch(each.name, name) for name in passed_over)] == []


def test_a_test_file_is_named_after_the_file_that_it_tests():
    def is_named(test: Path) -> bool:
        folder = test.parent.relative_to(UNIT)
        other = OTHERS.get(folder.parts[0])
        return folder.parts[0] == "structure" or named_after(test, names(ROOT / other if other else LIBRARY / folder))

    assert [str(test.relative_to(UNIT)) for test in TESTS if test not in EVERY and not is_named(test)] == []


def test_each_file_of_the_library_has_a_test():
    """A test is named after each file, or tests of its directory import it, or a tested file of its package does."""
    by_folder: dict[Path, set[Path]] = {}
    for test in TESTS:
        for folder in (test.parent, *test.parent.parents):
            by_folder.setdefault(folder, set()).update(imported_files(test))

    def tested(file: Path) -> bool:
        mirror = UNIT / file.parent.relative_to(LIBRARY)
        own = any(named_after(test, {file.stem}) for test in mirror.glob("test_*.py"))
        return own or file in by_folder.get(mirror, set())

    files = [file for file in FILES if file.read_text(encoding="utf-8").strip()]
    covered = {file for file in files if tested(file)}
    for _depth in range(2):
        covered |= {other for file in covered for other in imported_files(file) if package(other) == package(file)}
    assert [str(file.relative_to(LIBRARY)) for file in files if file not in covered] == []


def test_each_plugin_is_used():
    """A test, a scenario, or a role or playbook that they run names each plugin."""
    places = [path for top in ("tests", "molecule", "roles", "playbooks") for path in (ROOT / top).rglob("*")]
    texts = [path.read_text(encoding="utf-8") for path in places if path.suffix in (".py", ".yml", ".j2")]
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    kinds = ("action", "callback", "filter", "inventory", "modules")
    assert {path.stem for kind in kinds for path in (PLUGINS / kind).glob("*.py")} - words == set()


def test_no_two_classes_have_the_same_name():
    texts = [path.read_text(encoding="utf-8") for path in PLUGINS.rglob("*.py")]
    classes = Counter(name for text in texts for name in re.findall(r"^class (\w+)", text, re.MULTILINE))
    assert {name for name, count in classes.items() if count > 1} - ANSIBLE_CLASSES == set()


def test_each_folder_of_the_library_has_tests():
    folders = {file.parent.relative_to(LIBRARY) for file in FILES}
    assert sorted(str(folder) for folder in folders if not list((UNIT / folder).glob("test_*.py"))) == []


@pytest.mark.parametrize("top", ["plugins", "playbooks", "roles", "molecule", "tests", "benchmarks"])
def test_no_folder_exceeds_the_maximum_number_of_files(top):
    files = [path for path in (ROOT / top).rglob("*") if path.is_file() and path.suffix != ".pyc"]
    # Molecule's runs write proofs.
    sizes = Counter(str(path.parent.relative_to(ROOT)) for path in files if "proofs" not in path.parts)
    assert {folder: size for folder, size in sizes.items() if size > MOST_FILES and folder not in FLAT} == {}


@pytest.mark.parametrize("top", ["plugins", "playbooks", "roles", "molecule", "tests", "benchmarks", "inventories"])
def test_a_long_file_gives_the_reason_at_its_top(top):
    long = {}
    for path in (ROOT / top).rglob("*"):
        if path.is_file() and path.suffix not in NOT_WRITTEN and not GENERATED.intersection(path.parts):
            lines = path.read_text(encoding="utf-8").splitlines()
            if len(lines) > MOST_LINES:
                long[str(path.relative_to(ROOT))] = "\n".join(lines[:TOP_LINES])
    assert {path for path, head in long.items() if REASON not in head} == set()
