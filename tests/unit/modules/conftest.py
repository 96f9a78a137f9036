# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Calls of modules as Ansible calls them, and tools that are scripts."""

from __future__ import annotations

import json
import os

import pytest
from ansible.module_utils.testing import patch_module_args


@pytest.fixture
def call(capsys):
    """Return a function that calls a module's main() with arguments, which Ansible sends as JSON, for its result."""

    def once(module, given, check_mode=False):
        given = json.loads(json.dumps({**given, "_ansible_check_mode": check_mode}))
        with patch_module_args(given), pytest.raises(SystemExit):
            module.main()
        result = json.loads(capsys.readouterr().out)
        result.pop("invocation")
        return result

    return once


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Return a function that installs a shell script as a tool, in a directory that is first in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    def install(name, script):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return install
