# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The first job of docs/how-to/first-job.md: its PyTorch, and a submitted one."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from playing import ROOT
from user_cache import user_cache

FOLDER = ROOT / "examples/first_job"


def installed_packages() -> Path:
    """Return the page's directory packages, which the first call makes."""
    page = (ROOT / "docs/how-to/first-job.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^ {4}pip (install .*)$", page, re.MULTILINE)
    key = hashlib.sha256(f"{command}\n{(FOLDER / 'requirements.txt').read_text()}".encode()).hexdigest()[:12]
    packages = user_cache("first_job") / key
    if not packages.exists():
        new = packages.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        words = shlex.split(command.replace("--target packages", f"--target {shlex.quote(str(new))}"))
        subprocess.run([sys.executable, "-m", "pip", *words], cwd=FOLDER, check=True)
        new.rename(packages)
    return packages


class FirstJob:
    """A job of the page in ``folder``, which was submitted to a cluster with ``run`` and ``wait``, and its log."""

    def __init__(self, cluster: Any, folder: Path, number: str, limit_s: float) -> None:
        self.cluster, self.number, self.limit_s = cluster, number, limit_s
        self.folder, self.output = folder / f"first-job-{number}", folder / f"first-job-{number}.out"

    def lines(self) -> list[dict[str, Any]]:
        """Return the log."""
        path = self.folder / "log.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for_checkpoint(self) -> None:
        """Wait until a step was made after a checkpoint, so that the step will be lost."""

        def is_past() -> bool:
            lines = self.lines()
            return "step" in (lines or [{}])[-1] and any("checkpoint" in line for line in lines)

        self.cluster.wait("a step after a checkpoint", is_past, self.limit_s)

    def wait_for_end(self) -> list[dict[str, Any]]:
        """Wait until the job has ended well; return its log."""

        def state() -> str:
            shown = self.cluster.run("scontrol", "show", "job", self.number)
            return dict(word.split("=", 1) for word in shown.split() if "=" in word)["JobState"]

        self.cluster.wait(f"job {self.number}", lambda: state() in ("COMPLETED", "FAILED", "CANCELLED"), self.limit_s)
        output = self.output.read_text()
        assert state() == "COMPLETED", output
        return self.lines()


def losses(lines: list[dict[str, Any]]) -> list[tuple[int, float]]:
    """Return the steps and losses of a log."""
    return [(line["step"], line["loss"]) for line in lines if "step" in line]


def begins(lines: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """Return the steps after which a log's runs begin, and their nodes."""
    return [(line["begin"], line["nodes"]) for line in lines if "begin" in line]


def checkpoints(lines: list[dict[str, Any]]) -> list[int]:
    """Return the steps of the checkpoints in a log."""
    return [line["checkpoint"] for line in lines if "checkpoint" in line]


def assert_unbroken(lines: list[dict[str, Any]], undisturbed: list[dict[str, Any]], steps: int) -> None:
    """Fail unless all steps were made, each with the loss of the undisturbed job."""
    expected = losses(undisturbed)
    assert [step for step, _loss in expected] == list(range(1, steps + 1))
    assert sorted(set(losses(lines))) == expected
