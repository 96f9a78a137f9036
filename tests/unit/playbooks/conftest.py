# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fleet."""

from __future__ import annotations

import pytest
from fleet_site import Fleet

from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import holds


@pytest.fixture
def fleet(tmp_path):
    made = Fleet(tmp_path, ["bm01", "bm02", "bm03", "bm04"])
    try:
        yield made.wait()
    finally:
        made.stop()
    # However a run ended, it holds nothing any more.
    assert holds.read_all(made.store) == []
