# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Links of a simulated UFM are compared with the plan, and with UFM's master topology."""

from __future__ import annotations

import itertools

import pytest
from ansible.errors import AnsibleActionFail
from ib_sites import small
from messages import Mentions
from simulated_ufm import link, port

from ansible_collections.sailloft.fleet.plugins.action import ufm_topology
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm import api, topology

SITE, GUIDS = small()
FABRIC = fabric_of(SITE, "compute")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(topology, "PAUSE_S", 0)


@pytest.mark.parametrize("pages", [True, False])
def test_links_as_planned_are_read_in_pages(run, server, monkeypatch, pages):
    server.pages = pages
    monkeypatch.setattr(api, "PAGE", 4)
    result, requests = run(ufm_topology)
    assert (result["changed"], result["faults"]) == (False, [])
    assert result["counts"] == {"right": 16, "missing": 0, "unknown": 0}
    assert requests == [f"GET resources/links?page_number={number}&rpp=4" for number in range(1, 6 if pages else 2)]


@pytest.mark.parametrize("pages", [1, 2])
def test_a_ufm_that_repeats_its_pages_is_refused(run, server, monkeypatch, pages):
    monkeypatch.setattr(api, "PAGE", 4)
    starts = itertools.cycle(range(0, 4 * pages, 4))
    monkeypatch.setattr(server, "_page", lambda **_page: {"data": server.links[(at := next(starts)) : at + 4]})
    with pytest.raises(AnsibleActionFail, match="documented form"):
        run(ufm_topology)


def test_missing_narrow_and_unplanned_links_are_named(run, server):
    low, up = FABRIC.uplinks[0]
    missing = link(port(GUIDS, *low), port(GUIDS, *up))
    server.links.remove(missing)
    server.links[0]["width"] = "IB_1x"
    server.links.append(link(port(GUIDS, "spine-1", 20), port(GUIDS, "spine-2", 20)))
    result, _requests = run(ufm_topology)
    assert result["faults"] == [
        Mentions("node-1 mlx5_0", "IB_1x"),
        Mentions("leaf-1-1 ib3 - spine-1 ib1", "no such link"),
        Mentions("port 20", "planned"),
    ]
    # With unknown GUIDs nothing is called unplanned.
    guids = {name: guid for name, guid in GUIDS.items() if name != "spine-2"}
    result, _requests = run(ufm_topology, guids=guids)
    assert (len(result["faults"]), result["counts"]["unknown"]) == (2, 4)


def test_ufm_compares_with_its_master_topology(run, server):
    far = GUIDS["spine-1"][2:]
    server.late = 2
    server.report["removed"] = {
        "nodes": [{"guid": "0002c90000012721", "system_name": "H_5", "ip": "0.0.0.0", "type": "host"}],
        "links": [{"source_guid": "0002c90000012721", "destination_guid": far, "name": f"0002c90000012721_1:{far}_2"}],
    }
    assert "from_master" not in run(ufm_topology, check_mode=True, master=True)[0]
    result, requests = run(ufm_topology, master=True)
    assert result["from_master"] == [
        Mentions("host H_5", "removed"),
        Mentions("0x0002c90000012721 port 1 - spine-1 ib2", "removed"),
    ]
    assert requests[-4:] == ["GET reports/7"] * 3 + ["GET reports/last_report/Topology_Compare"]
    server.late = 9
    with pytest.raises(AnsibleActionFail, match="report 7 is not ready"):
        run(ufm_topology, master=True, limit_s=0)
    server.late, server.report = 0, []
    with pytest.raises(AnsibleActionFail, match="documented form"):
        run(ufm_topology, master=True)
