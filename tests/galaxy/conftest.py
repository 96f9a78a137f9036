# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A checkout where a site was made and playbooks ran."""

from __future__ import annotations

import os
import shutil
import subprocess
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
