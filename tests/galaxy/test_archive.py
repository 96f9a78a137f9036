# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files that git and `ansible-galaxy collection build` take from a checkout where a site was made and playbooks ran."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAINTAINER = {
    f"GIT_{role}_{key}": "maintainer@example.com" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")
}
PRIVATE = (
    # Outputs of playbooks, in their default directories.
    "backups/20261126T130000Z/leaf1.sonic",
    "fabric/leaf1.sonic",
    "plans/site/cables.csv",
    "proofs/gpu01.html",
    "recordings/gpu01.json",
    "runs/gpu_hosts/record.json",
    # Inventories of sites.
    "inventories/SITE/blueprint.yml",
    "inventories/berlin/hosts.yml",
    "inventories/small-2/group_vars/all.yml",
    "inventories/small2/hosts.yml",
    "inventories/site/host_vars/gpu01.yml",
    "inventories/vela_prod/hosts.yml",
    "inventories/production.yml",
    # Secrets, also in an example that was changed in its place.
    "inventories/small/group_vars/nodes/vault.yml",
    "inventories/small/group_vars/all/bmc_vault.yaml",
    "inventories/small/site.vault",
    "inventories/vela/host_vars/gpu01.yml",
    "playbooks/group_vars/all.yml",
    "playbooks/backups/leaf1.sonic",
    ".vault_pass",
    "vault_password.txt",
    "inventories/vela/.vault_pass.txt",
)


def git(folder: Path, *arguments: str) -> list[str]:
    return subprocess.run(
        ["git", "-C", folder, *arguments], env=os.environ | MAINTAINER, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.splitlines()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a repository with the files of this one, and then the private ones."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard"):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "All files")
    for name in PRIVATE:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("secret\n")
    return folder


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
