# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The release of a commit: `make release`."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from .conftest import MAINTAINER, git


@pytest.fixture
def commit(checkout: Path, tmp_path: Path) -> Path:
    """Clone the last commit of the checkout, without the files of a site."""
    git(checkout, "clone", "--quiet", ".", str(tmp_path / "commit"))
    return tmp_path / "commit"


def release(commit: Path, version: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["tests/galaxy/release", version],
        cwd=commit,
        env=os.environ | MAINTAINER,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_release_has_its_version_and_its_changes(commit: Path) -> None:
    run = release(commit, "7.8.9")
    assert run.returncode == 0, run.stderr
    archive = Path(run.stdout.splitlines()[-1])
    with tarfile.open(archive) as files:
        names = files.getnames()
        manifest = json.load(files.extractfile("MANIFEST.json"))  # type: ignore[arg-type]
        changelog = files.extractfile("CHANGELOG.md").read().decode().replace("\\", "")  # type: ignore[union-attr]
    assert manifest["collection_info"]["version"] == "7.8.9"
    assert "v7.8.9" in changelog
    assert "Release Summary" in changelog
    assert not [name for name in names if name.startswith(("changelogs/fragments/", "changelogs/."))]
    # Code in one backtick, which reStructuredText takes for a title.
    assert "title-reference" not in changelog
    assert git(archive.parent, "log", "-1", "--format=%s") == ["Version 7.8.9"]
    assert not git(commit, "status", "--porcelain")
    assert git(commit, "rev-parse", "HEAD") == git(archive.parent, "rev-parse", "HEAD~1")


def test_what_cannot_be_released_is_refused(commit: Path) -> None:
    for version in ("", "1.2", "v1.2.3", "1.2.3-rc1"):
        assert release(commit, version).returncode == 2
    git(commit, "tag", "v7.8.9")
    assert release(commit, "7.8.9").returncode == 1
    (commit / "README.md").write_text("not committed\n")
    assert release(commit, "7.9.0").returncode == 1
    assert not (commit / ".cache/release").exists()
