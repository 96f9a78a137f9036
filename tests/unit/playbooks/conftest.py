# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The fixture of a fleet."""

from __future__ import annotations

import pytest
from fleet_site import Fleet

from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import holds


@pytest.fixture
def fleet(tmp_path, request):
    """Yield a fleet of four nodes, or of the test's number: each node costs a process of Ansible in each task."""
    made = Fleet(tmp_path, [f"bm{at:02}" for at in range(1, getattr(request, "param", 4) + 1)])
    try:
        yield made.wait()
    finally:
        made.stop()
    # No hold remains, however a run ended.
    assert holds.read_all(made.store) == []
