# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A Python that is too old for the library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.common import least_python

LIBRARY = Path(least_python.__file__).parents[1]
PACKAGES = sorted(path.name for path in LIBRARY.iterdir() if path.is_dir() and path.name != "__pycache__")
ROOT = "ansible_collections.sailloft.fleet.plugins.module_utils"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_ends_a_module_with_the_versions_and_the_remedy(package):
    """The interpreter only says that it is Python 3.8: that version is not packaged for Debian."""
    script = f"import sys; sys.version_info = (3, 8, 10); import {ROOT}.{package}"
    path = str(LIBRARY.parents[4])
    ended = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1, ended.stderr
    result = json.loads(ended.stdout)
    assert result["failed"] is True
    assert "Python 3.9 or later" in result["msg"]
    assert "ansible_python_interpreter" in result["msg"]
