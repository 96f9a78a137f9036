# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages of Debian 14 ("forky"), downloaded and unpacked to a cache; nothing is installed."""

from __future__ import annotations

import shutil
from pathlib import Path

SOURCE = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian forky main\n"


def apt_options(folder: Path) -> list[str]:
    """Make ``folder`` anew for apt's lists and packages, and return the options with which apt-get uses only it."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("etc/apt", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "etc/apt/sources.list").write_text(SOURCE)
    (folder / "status").touch()
    return [f"-oDir={folder}", f"-oDir::State::Status={folder}/status", "-oAPT::Sandbox::User=root"]
