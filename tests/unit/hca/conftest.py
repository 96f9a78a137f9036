# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host with HCAs."""

from __future__ import annotations

import pytest
from hca_host import HcaHost


@pytest.fixture
def host(tmp_path):
    """Return the host."""
    return HcaHost(tmp_path)
