# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Links of a simulated UFM are isolated, restored and compared with the plan."""

from __future__ import annotations

import pytest
import sites
import yaml
from ansible.errors import AnsibleActionFail
from ib_sites import TREE, small
from messages import Mentions
from simulated_ufm import SimulatedUfm, link, unhealthy

from ansible_collections.sailloft.fleet.plugins.action import ufm_topology, ufm_unhealthy_ports
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm import api, topology
from ansible_collections.sailloft.fleet.plugins.plugin_utils import ufm_action

SITE, GUIDS = small()
FABRIC = fabric_of(SITE, "compute")


def port(switch, number):
    return GUIDS[switch][2:], number


def links():
    hcas = [((GUIDS[hca.host][hca.name][2:], 1), port(*far)) for hca, far in FABRIC.hcas.items()]
    return [link(*ends) for ends in [*hcas, *((port(*low), port(*up)) for low, up in FABRIC.uplinks)]]


@pytest.fixture
def server(monkeypatch):
    server = SimulatedUfm()
    server.links = links()
    monkeypatch.setattr(ufm_action, "open_url", server)
    monkeypatch.setattr(ufm_unhealthy_ports, "PAUSE_S", 0)
    monkeypatch.setattr(topology, "PAUSE_S", 0)
    return server


@pytest.fixture
def run(make, tmp_path, server):
    """Return a function that runs a module, and returns its result and the requests."""
    blueprint = tmp_path / "blueprint.yml"
    blueprint.write_text(yaml.safe_dump(sites.changed(**TREE)))

    def run(module, check_mode=False, **others):
        login = {"ufm_url": "https://ufm.example.com", "ufm_token": "token"}
        server.requests.clear()
        given = {"blueprint": str(blueprint), "fabric": "compute", "guids": GUIDS, **login, **others}
        result = make(module, check_mode=check_mode, **given).run(task_vars={})
        return result, [request.replace(" ufmRestV3/", " ") for request in server.requests]

    return run


LIST, PUT = "GET app/unhealthy_ports", "PUT app/unhealthy_ports"


def test_a_link_is_isolated_once_and_restored_by_either_end(run, server):
    server.late = 2
    result, requests = run(ufm_unhealthy_ports, check_mode=True, isolate=["leaf-1-1 ib3"])
    assert (result["changed"], result["unhealthy"], requests) == (True, [], [LIST])
    result, requests = run(ufm_unhealthy_ports, isolate=["leaf-1-1 ib3"])
    # UFM answers before it has changed the port.
    assert (result["changed"], requests) == (True, [LIST, PUT, LIST, LIST, LIST])
    assert result["unhealthy"] == [Mentions("leaf-1-1 ib3 - spine-1 ib1", "MANUAL", "2020")]
    assert result["diff"] == {"before": "", "after": "leaf-1-1 ib3 is unhealthy\n"}
    for name in ("leaf-1-1 ib3", "spine-1 ib1"):
        assert run(ufm_unhealthy_ports, isolate=[name])[0]["changed"] is False
    result, _requests = run(ufm_unhealthy_ports, restore=["spine-1 ib1"])
    assert (result["changed"], result["unhealthy"], server.ports) == (True, [], {})
    assert run(ufm_unhealthy_ports, restore=["spine-1 ib1"])[0]["changed"] is False


def test_ports_that_ufm_has_marked_itself_are_listed(run, server):
    guid = GUIDS["node-1"]["mlx5_0"][2:]
    server.ports["x"] = unhealthy(f"{guid}_1", "00000000000000ff", 3, ["FLAPPING", "UNRESPONSIVE"])
    result, _requests = run(ufm_unhealthy_ports)
    assert result["unhealthy"] == [Mentions("node-1 mlx5_0 - 0x00000000000000ff port 3", "FLAPPING, UNRESPONSIVE")]
    assert not result["changed"]


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"isolate": ["leaf-1-1 ib3", "spine-2 ib1"]}, "leaf-1-1.*repair another"),
        ({"isolate": ["leaf-1-1 ib9"]}, "leaf-1-1 ib9.*no port of the fabric"),
        ({"isolate": ["leaf-1-1 ib3"], "guids": {}}, "leaf-1-1 ib3.*GUID is not known"),
        ({"isolate": ["leaf-1-1 ib3"], "restore": ["leaf-1-1 ib3"]}, "leaf-1-1 ib3.*in restore"),
    ],
)
def test_what_must_not_be_isolated_is_refused_before_a_change(run, given, facts):
    with pytest.raises(AnsibleActionFail, match=facts):
        run(ufm_unhealthy_ports, **given)


def test_the_last_link_is_refused_where_ufm_has_isolated_the_others(run):
    run(ufm_unhealthy_ports, isolate=["leaf-1-1 ib3"])
    with pytest.raises(AnsibleActionFail, match=r"leaf-1-1 ib4.*last up link of leaf-1-1"):
        run(ufm_unhealthy_ports, isolate=["leaf-1-1 ib4"])
    # In one call the first may come back.
    assert run(ufm_unhealthy_ports, isolate=["leaf-1-1 ib4"], restore=["leaf-1-1 ib3"])[0]["changed"]


def test_ports_that_ufm_does_not_change_in_time_fail(run, server):
    server.late = 100
    with pytest.raises(AnsibleActionFail, match="UFM: it has not changed the ports in 0 s"):
        run(ufm_unhealthy_ports, isolate=["leaf-1-1 ib3"], limit_s=0)


@pytest.mark.parametrize("pages", [True, False])
def test_links_as_planned_are_read_in_pages(run, server, monkeypatch, pages):
    server.pages = pages
    monkeypatch.setattr(api, "PAGE", 4)
    result, requests = run(ufm_topology)
    assert (result["changed"], result["faults"]) == (False, [])
    assert result["counts"] == {"right": 16, "missing": 0, "unknown": 0}
    assert requests == [f"GET resources/links?page_number={number}&rpp=4" for number in range(1, 6 if pages else 2)]


def test_a_ufm_that_repeats_a_page_is_refused(run, server, monkeypatch):
    monkeypatch.setattr(api, "PAGE", 4)
    monkeypatch.setattr(server, "_page", lambda **_page: {"data": server.links[:4]})
    with pytest.raises(AnsibleActionFail, match="documented form"):
        run(ufm_topology)


def test_missing_narrow_and_unplanned_links_are_named(run, server):
    low, up = FABRIC.uplinks[0]
    server.links = [row for row in links() if row != link(port(*low), port(*up))]
    server.links[0]["width"] = "IB_1x"
    server.links.append(link(port("spine-1", 20), port("spine-2", 20)))
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
