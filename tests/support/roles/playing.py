# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible as a user starts it, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
# Of the same environment as this interpreter, whatever PATH is.
ANSIBLE = str(Path(sys.executable).with_name("ansible-playbook"))


def ansible_playbook(*arguments: str, **environment: str) -> tuple[int, str]:
    """Run it in the checkout: (exit status, all that it said)."""
    done = subprocess.run(
        [ANSIBLE, *arguments],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout
