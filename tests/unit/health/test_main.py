# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The command as it runs on a node: from its zip, with Python's standard library alone."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from rounds import EXPECTED

from ansible_collections.sailloft.fleet.plugins.module_utils.health import main, state
from ansible_collections.sailloft.fleet.plugins.module_utils.health import round as rounds
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import State
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import archive

PAGE = Path(__file__).parents[3] / "docs/background/health.md"


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    path = tmp_path_factory.mktemp("code") / "health.pyz"
    path.write_bytes(archive.build(main.__name__))
    return str(path)


@pytest.fixture
def health(code, tmp_path):
    (tmp_path / "expected.json").write_text(stored.text(EXPECTED))

    def call(*arguments, **more):
        where = ["--state", str(tmp_path / "state"), "--run", str(tmp_path / "run")]
        command = [sys.executable, "-S", "-I", code, *where, *arguments]
        if arguments[:1] == ("round",):
            command += ["--expected", str(tmp_path / "expected.json")]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **more)

    return call


@pytest.fixture
def saved(health, tmp_path):
    """Save the state of a healthy node, as after a round of now."""
    (tmp_path / "state").mkdir()
    fresh = State("gpu01", state.Round(1, state.moment(), 1.0, 60.0))
    state.save(fresh, str(tmp_path / "state"))


def test_a_verdict_is_printed_by_the_standard_library_alone(health, saved):
    done = health()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("gpu01: healthy: ")


def test_a_verdict_imports_neither_readers_nor_what_runs_programs(code, saved, tmp_path):
    names = "[name for name in sys.modules if 'readers' in name or name in ('subprocess', 'pickle', 'selectors')]"
    text = (
        f"import sys; sys.path.insert(0, {code!r}); from {main.__name__} import main; "
        f"main(['--state', {str(tmp_path / 'state')!r}]); print({names})"
    )
    done = subprocess.run([sys.executable, "-S", "-I", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_zip_has_only_code_of_the_health_check(code):
    parts = {name.partition("module_utils/")[2].partition("/")[0] for name in zipfile.ZipFile(code).namelist()}
    assert parts - {""} == {"__init__.py", "common", "health"}


@pytest.mark.parametrize("errors", [{}, {"nvbandwidth": "no answer in 300 s"}])
def test_a_deep_round_that_measured_nothing_is_no_success(tmp_path, monkeypatch, capsys, errors):
    made = State("gpu01", state.Round(1, state.moment(), 1.0, 60.0, errors))
    monkeypatch.setattr(rounds, "make", lambda *_arguments: made)
    done = [main.main(["--state", str(tmp_path), "round", *more]) for more in ([], ["--deep"])]
    assert done == [0, main.FAILED if errors else 0]
    assert all(error in capsys.readouterr().err for error in errors.values())


def test_without_a_round_nothing_is_known(health):
    done = health("--format", "json")
    assert (done.returncode, json.loads(done.stdout)["status"]) == (2, "unknown")


def test_a_state_that_cannot_be_read_is_a_fault(health, saved, tmp_path):
    (tmp_path / "state" / state.FILE).write_text("{")
    done = health("--format", "npd")
    assert done.returncode == 1
    assert done.stdout.startswith("sick: ")


def test_persons_take_a_node_out_and_bring_it_back(saved, tmp_path, capsys):
    def call(*arguments):
        return main.main(["--state", str(tmp_path / "state"), "--run", str(tmp_path / "run"), *arguments])

    assert call("drain", "--reason", "new cable") == 0
    assert call("--format", "slurm") == 1
    assert capsys.readouterr().out.startswith("sailloft: out of service: new cable (")
    assert call("maintenance", "--reason", "firmware") == 0
    assert call("undrain") == 0
    assert call("--format", "lsf") == 1
    assert capsys.readouterr().out == "1 sailloft_health 1\n"
    assert call("end-maintenance") == 0
    assert call() == 0
    assert call("undrain") == main.FAILED
    assert "no drain" in capsys.readouterr().err


def test_a_fault_that_is_not_there_cannot_be_cleared(health, saved):
    done = health("clear", "xid_79@gpu:0000:4b:00.0", "--reason", "replaced")
    assert done.returncode == main.FAILED
    assert done.stderr.count("\n") == 1
    assert health("clear", "xid_79").returncode == 2  # argparse: no reason


def test_metrics_replace_a_file(health, saved, tmp_path):
    file = tmp_path / "sailloft.prom"
    done = health("--format", "prometheus", "--output", str(file))
    assert (done.returncode, done.stdout) == (0, "")
    assert "sailloft_health_status 0\n" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o644


@pytest.fixture
def documented(code, tmp_path):
    """Return a function that runs a text of the page as a shell script with this test's command; and its changes."""
    log = tmp_path / "scontrol.log"
    scontrol = tmp_path / "bin/scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(
        f'#!/bin/sh\n[ "$1" = update ] && echo "$@" >>{log}\necho "NodeName=n State=IDLE Reason=none"\n'
    )
    scontrol.chmod(0o755)
    where = f"--state {tmp_path / 'state'} --run {tmp_path / 'run'}"
    command = f"{sys.executable} -S -I {code} {where}"

    def run(text):
        script = text.replace("/usr/bin/sailloft-health", command)
        path = {"PATH": f"{scontrol.parent}:/usr/bin:/bin"}
        return subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False, env=path)

    return run, log


def block(first):
    """Return the lines of the page's example that begins with a line, without the line itself and the indent."""
    lines = PAGE.read_text(encoding="utf-8").split(f"    # {first}")[1].splitlines()[1:]
    return "\n".join(line[4:] for line in lines[: lines.index("")])


@pytest.mark.parametrize("status", [0, 1, 2])
def test_the_schedulers_lines_of_the_docs_say_what_the_state_says(documented, saved, health, tmp_path, status):
    if status == 1:
        health("drain", "--reason", "new cable")
    elif status == 2:
        (tmp_path / "state" / state.FILE).unlink()
    run, log = documented
    (rule,) = json.loads(block("node-problem-detector"))["rules"]
    done = run(" ".join([rule["path"], *rule["args"]]))
    assert (done.returncode, done.stderr, len(done.stdout.encode()) <= 81) == (status, "", True)
    elim = block("LSF, elim.sailloft").replace(" --every 60", "")
    assert run(elim).stdout == f"1 sailloft_health {status}\n"
    done = run(block("/usr/local/sbin/health").removeprefix("#!/bin/sh\n"))
    assert (done.returncode, done.stderr) == (status, "")
    assert log.exists() == (status == 1)
    if status == 1:
        assert "State=DRAIN Reason=sailloft: out of service: new cable" in log.read_text()


def test_an_elim_reports_for_ever_until_nobody_reads(code, saved, tmp_path):
    command = [sys.executable, "-S", "-I", code, "--state", str(tmp_path / "state"), "--format", "lsf", "--every", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as elim:
        assert elim.stdout
        assert [elim.stdout.readline() for _number in range(2)] == ["1 sailloft_health 0\n"] * 2
        elim.stdout.close()
        assert elim.wait(30) == main.FAILED
        assert elim.stderr
        assert elim.stderr.read() == ""
