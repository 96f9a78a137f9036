# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files that git and `ansible-galaxy collection build` take from a checkout where a site was made and playbooks ran."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

from .conftest import PRIVATE, git


def test_git_adds_no_private_file(checkout):
    assert git(checkout, "add", "--all", "--dry-run") == []


def test_the_archive_has_the_examples_and_no_private_file(checkout, tmp_path):
    program = str(Path(sys.executable).with_name("ansible-galaxy"))
    subprocess.run(
        [program, "collection", "build", "--output-path", str(tmp_path), str(checkout)],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = set(packed.getnames())
    assert names.isdisjoint(PRIVATE)
    examples = {name for name in git(checkout, "ls-files", "inventories") if not name.startswith("inventories/lab/")}
    assert {"inventories/small/blueprint.yml", *examples} <= names
    assert {"plugins/module_utils/fabric/switch/registry.py", "roles/gpu_host/defaults/main.yml"} <= names
