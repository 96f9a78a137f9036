# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A simulated UFM with the planned links of the small site."""

from __future__ import annotations

import pytest
import sites
import yaml
from ib_sites import TREE, small
from simulated_ufm import SimulatedUfm, planned_links

from ansible_collections.sailloft.fleet.plugins.action import ufm_partitions, ufm_topology, ufm_unhealthy_ports


@pytest.fixture
def server(monkeypatch):
    server = SimulatedUfm()
    server.links = planned_links(*small())
    for action in (ufm_partitions, ufm_topology, ufm_unhealthy_ports):
        monkeypatch.setattr(action, "open_url", server)
    return server


@pytest.fixture
def run(make, tmp_path, server):
    """Return a function that runs a module, and returns its result and the requests."""
    blueprint = tmp_path / "blueprint.yml"
    blueprint.write_text(yaml.safe_dump(sites.changed(**TREE)))

    def run(module, check_mode=False, **others):
        login = {"ufm_url": "https://ufm.example.com", "ufm_token": "token"}
        server.requests.clear()
        given = {"blueprint": str(blueprint), "fabric": "compute", "guids": small()[1], **login, **others}
        result = make(module, check_mode=check_mode, **given).run(task_vars={})
        return result, [request.replace(" ufmRestV3/", " ") for request in server.requests]

    return run
