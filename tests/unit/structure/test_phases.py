# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The phases of `make test`, in parallel or in sequence, on a made-up Makefile; a run of pytest with a skip; caches."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playing import ansible_playbook

pytestmark = pytest.mark.long

PHASES = Path(__file__).parents[2] / "phases"
MAKEFILE = """
environments a b c:
\t@echo $@ >> ran; echo did $@
bad:
\t@echo $@ >> ran; echo the cause; exit 7
waits holds:
\t@until grep -qs begins ran; do sleep 0.1; done; echo $@ $(jobs) $$(nice) >> ran
begins:
\t@echo $@ >> ran
works:
\t@python3 -c "import time; [None for _ in iter(lambda: time.process_time() > 1.2, True)]"
outlives endures:
\t@while [ -s */list ]; do sleep 0.1; done
"""


@pytest.fixture
def phases(tmp_path):
    """A function that runs phases: returns (status, standard output, standard error, phases that ran, in order)."""
    (tmp_path / "tests").mkdir()
    shutil.copy(PHASES, tmp_path / "tests/phases")
    (tmp_path / "Makefile").write_text(MAKEFILE)

    def run(*groups):
        command = [tmp_path / "tests/phases", *groups]
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
        return done.returncode, done.stdout, done.stderr, (tmp_path / "ran").read_text().split()

    return run


def test_groups_run_one_after_the_other(phases):
    status, out, _error, ran = phases("a", "b")
    assert (status, ran) == (0, ["a", "b"])
    assert [line.split()[0] for line in out.split("phase ")[1].splitlines()[1:]] == ["a", "b", "together"]
    assert "\ndid a\n" in out


def test_phases_of_a_group_run_three_at_a_time_in_their_order_and_the_first_has_priority(phases):
    status, out, _error, ran = phases("waits,holds,a,b,c,begins")
    assert (status, ran[:5]) == (0, ["environments", "a", "b", "c", "begins"])
    level = os.nice(0)
    last = {tuple(ran[at : at + 3]) for at in (5, 8)}
    assert last == {("waits", "0", str(level)), ("holds", "0", str(min(level + 5, 19)))}
    assert {"a: did a", "b: did b", "c: did c"} <= set(out.splitlines())


def test_the_processor_time_of_a_phase_is_that_of_its_processes(phases):
    _status, out, _error, _ran = phases("works,a")
    used = {line.split()[0]: line.split()[2] for line in out.split("processor\n")[1].splitlines()[:-1]}
    assert used == {"environments": "0:00", "works": "0:01", "a": "0:00"}


@pytest.mark.parametrize("groups", [("outlives,endures,bad,a,b", "a"), ("bad", "a")])
def test_no_phase_starts_after_a_failed_phase(phases, groups):
    status, out, error, ran = phases(*groups)
    assert (status, {"a", "b"} & set(ran)) == (1, set())
    assert "failed: bad" in error
    assert "the cause" in error
    assert [line.split()[3:] for line in out.splitlines() if line.startswith("bad ")] == [["failed"]]


def test_no_shared_test_file_contains_a_marker_of_a_phase():
    """The marker must be in the test file itself: tests/conftest.py skips files without it.

    A test that imported the marker from elsewhere would be lost.
    """
    shared = sorted((PHASES.parent / "support").rglob("*.py"))
    assert shared
    assert [path for path in shared if re.search(r"mark\.(fleet|long)", path.read_text())] == []


@pytest.mark.parametrize(
    ("reason", "status"), [("no qemu on this machine", 1), ("SAILLOFT_SONIC_YANG names no directory", 0)]
)
def test_a_run_with_an_unexpected_skip_fails(tmp_path, reason, status):
    shutil.copy(PHASES.with_name("conftest.py"), tmp_path)
    test = f"import pytest\n\n\ndef test_a():\n    pytest.skip({reason!r})\n\n\ndef test_b():\n    pass\n"
    (tmp_path / "test_skips.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout
    assert (f"test_skips.py::test_a: Skipped: {reason}" in done.stdout) == bool(status)


MODULE = """
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.site.things.plugins.module_utils import word

AnsibleModule({}).exit_json(word=word.WORD)
"""


@pytest.mark.long
@pytest.mark.fleet  # runs a playbook
def test_a_changed_file_that_a_module_imports_is_sent(tmp_path):
    plugins = tmp_path / "ansible_collections/site/things/plugins"
    for folder in ("modules", "module_utils"):
        (plugins / folder).mkdir(parents=True)
    (plugins / "modules/tell.py").write_text(MODULE)
    tasks = [{"site.things.tell": {}, "register": "told"}, {"ansible.builtin.debug": {"msg": "it is {{ told.word }}"}}]
    play = tmp_path / "play.yml"
    play.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    local = ["-i", "localhost,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}"]
    # The second run has the archive of the first one; the third one has a change that keeps the file's size.
    for words in (["first", "first"], ["other"]):
        (plugins / "module_utils/word.py").write_text(f'WORD = "{words[0]}"\n')
        for word in words:
            status, output = ansible_playbook(*local, str(play), ANSIBLE_COLLECTIONS_PATH=str(tmp_path))
            assert status == 0, output
            assert f"it is {word}" in output
