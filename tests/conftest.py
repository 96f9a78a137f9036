# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Settings of all tests: unexpected skips fail the run, the number of hypothesis's examples, a cache of bytecode."""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path

import hypothesis
import pytest
import yaml

# The reasons for which a test may be skipped. A missing tool is no such reason: `make packages` installs all tools.
EXPECTED_SKIPS = (
    # The original files of recorded machines belong to others; their facts are in tests/recordings.
    r"SAILLOFT_RECORDINGS names no directory",
    # SONiC's models are not packaged; the test says how to get them.
    r"SAILLOFT_SONIC_YANG names no directory",
    # NVIDIA's tool is only in Debian's next release, which changes; the rule table is tested row by row without it.
    r"Debian's archive does not give rdma_topo",
    # The kernels of containers and build machines have few queueing disciplines; molecule/run roce_path has all of
    # them.
    r"this kernel lacks ",
)
# Users other than root skip what only root can do; `make image` runs it as root.
EXPECTED_OF_USERS = r"\broot\b"

# `make test` tries few examples per property, `make thorough` many; only a test with slow examples sets its own number.
# Three are enough on Python 3.9, where the only question is whether each line runs.
hypothesis.settings.register_profile("few", max_examples=3, deadline=None)
hypothesis.settings.register_profile("quick", max_examples=20, deadline=None)
hypothesis.settings.register_profile("thorough", max_examples=400, deadline=None)
# Any example that fails kills a mutant, so hypothesis need not shrink it.
hypothesis.settings.register_profile(
    "mutation", max_examples=40, deadline=None, phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate]
)
hypothesis.settings.load_profile("quick")

# Tests read hundreds of files with yaml.safe_load, which takes the parser in C a tenth of the time.
yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # type: ignore[misc]
# The imported modules and the collected tests stay until the end: to search them for garbage again and again is wasted.
gc.set_threshold(100_000, 50, 100)


@pytest.fixture(autouse=True, scope="session")
def bytecode_is_kept(tmp_path_factory):
    """Let the many processes that playbooks start share compiled sources (see sitecustomize.py)."""
    folder = tmp_path_factory.getbasetemp().parent / "bytecode"  # shared by all workers of a run
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as session:
        session.setenv("SAILLOFT_BYTECODE", str(folder))
        session.setenv("PYTHONPATH", str(Path(__file__).with_name("support") / "bytecode"), prepend=os.pathsep)
        yield


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files without a test of `make fleet` or `fleet-long`: a worker takes 15 s to import all files."""
    if not config.option.markexpr.startswith(("fleet", "long")) or not collection_path.match("test_*.py"):
        return None
    return None if re.search(r"pytest\.mark\.(fleet|long)", collection_path.read_text()) else True


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run with an unexpected skip. Only xdist's controller has all reports."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):
        return
    expected = (*EXPECTED_SKIPS, EXPECTED_OF_USERS) if os.geteuid() else EXPECTED_SKIPS
    unexpected = sorted(
        {
            f"{report.nodeid}: {report.longrepr[2]}"
            for report in reporter.stats.get("skipped", [])
            if isinstance(report.longrepr, tuple)
            and not any(re.search(pattern, report.longrepr[2]) for pattern in expected)
        }
    )
    if unexpected:
        reporter.section("unexpected skips", sep="=", red=True)
        for line in unexpected:
            reporter.line(line)
        reporter.line("Install what they lack (make packages), or name the reason in tests/conftest.py.")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
