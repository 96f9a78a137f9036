# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The fixture of a fabric."""

from __future__ import annotations

import pytest
from simulated_fabric import Fabric


@pytest.fixture
def fabric(tmp_path):
    made = Fabric(tmp_path)
    yield made
    made.nvue.close()
