# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fleet."""

from __future__ import annotations

import pytest
from fleet_site import Fleet

from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import holds


@pytest.fixture
def fleet(tmp_path, request):
    """Four nodes, or as many as the test says: each is a process of Ansible's in each task."""
    made = Fleet(tmp_path, [f"bm{at:02}" for at in range(1, getattr(request, "param", 4) + 1)])
    try:
        yield made.wait()
    finally:
        made.stop()
    # However a run ended, it holds nothing any more.
    assert holds.read_all(made.store) == []
