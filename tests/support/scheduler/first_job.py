# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The first job's PyTorch, installed as docs/how-to/first-job.md says."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

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
