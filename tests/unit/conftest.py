# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

HAS_ANSIBLE = importlib.util.find_spec("ansible") is not None  # false when the library runs alone, on Python 3.9


@pytest.fixture(autouse=True)
def as_on_a_target(monkeypatch):
    """Let a module called in this process report warnings as in its own process: in its result, and only its own.

    Ansible has no public way to request this, and imports of a filter's test turn the process into a controller.
    """
    if not HAS_ANSIBLE:
        return
    monkeypatch.setattr("ansible.module_utils._internal.is_controller", False)
    monkeypatch.setattr("ansible.module_utils.common.warnings._global_warnings", {})
    monkeypatch.setattr("ansible.module_utils.common.warnings._global_deprecations", {})


@pytest.fixture
def disk_calls(monkeypatch):
    """Record the real calls of fsync and replace in order, with the paths and contents at that time."""
    seen = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        content = None if os.path.isdir(path) else Path(path).read_bytes()
        seen.append(("fsync", path, content))
        fsync(descriptor)

    def replaced(source, target):
        seen.append(("replace", source, target))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    return seen
