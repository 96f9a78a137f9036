# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import importlib.util

import pytest

HAS_ANSIBLE = importlib.util.find_spec("ansible") is not None  # not where the library runs on Python 3.9


@pytest.fixture(autouse=True)
def as_on_a_target(monkeypatch):
    """A module called in this process warns as it does in its own: in its result, and of nothing before.

    Ansible has no public way to say so, and a filter's test makes the process a controller by what it imports.
    """
    if not HAS_ANSIBLE:
        return
    monkeypatch.setattr("ansible.module_utils._internal.is_controller", False)
    monkeypatch.setattr("ansible.module_utils.common.warnings._global_warnings", {})
