# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Links of a simulated UFM are isolated and restored."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleActionFail
from ib_sites import small
from messages import Mentions
from simulated_ufm import link, port, unhealthy

from ansible_collections.sailloft.fleet.plugins.action import ufm_unhealthy_ports
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import fabric_of

SITE, GUIDS = small()
FABRIC = fabric_of(SITE, "compute")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(ufm_unhealthy_ports, "PAUSE_S", 0)


LIST, PUT = "GET app/unhealthy_ports", "PUT app/unhealthy_ports"
# A UFM may cap its pages, so that a short one is not known to be the last.
LINKS = [f"GET resources/links?page_number={number}&rpp=1000" for number in (1, 2)]


@pytest.fixture
def isolated(run):
    """Return a function that runs the module where a switch may lack one up link."""
    return lambda **given: run(ufm_unhealthy_ports, **{"spare_uplinks": 1, **given})


def test_a_link_is_isolated_once_and_restored_by_either_end(isolated, server):
    server.late = 2
    result, requests = isolated(check_mode=True, isolate=["leaf-1-1 ib3"])
    assert (result["changed"], result["unhealthy"], requests) == (True, [], [LIST, *LINKS])
    result, requests = isolated(isolate=["leaf-1-1 ib3", "leaf-1-1 ib3"])
    # UFM answers before it has changed the port.
    assert (result["changed"], requests) == (True, [LIST, *LINKS, PUT, LIST, LIST, LIST])
    assert result["unhealthy"] == [Mentions("leaf-1-1 ib3 - spine-1 ib1", "MANUAL", "2020")]
    assert result["diff"] == {"before": "", "after": "leaf-1-1 ib3 is unhealthy\n"}
    for name in ("leaf-1-1 ib3", "spine-1 ib1"):
        assert isolated(isolate=[name])[0]["changed"] is False
    result, _requests = isolated(restore=["spine-1 ib1"])
    assert (result["changed"], result["unhealthy"], server.ports) == (True, [], {})
    assert isolated(restore=["spine-1 ib1"])[0]["changed"] is False


def test_ports_that_ufm_has_marked_itself_are_listed(run, server):
    guid = GUIDS["node-1"]["mlx5_0"][2:]
    server.ports["x"] = unhealthy(f"{guid}_1", "00000000000000ff", 3, ["FLAPPING", "UNRESPONSIVE"])
    result, _requests = run(ufm_unhealthy_ports)
    assert result["unhealthy"] == [Mentions("node-1 mlx5_0 - 0x00000000000000ff port 3", "FLAPPING, UNRESPONSIVE")]
    assert not result["changed"]


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"isolate": ["leaf-1-1 ib3", "spine-2 ib1"]}, "leaf-1-1.*0 of 2.*repair another"),
        # By default no switch may lack a link.
        ({"isolate": ["leaf-1-1 ib3"], "spare_uplinks": 0}, "leaf-1-1.*1 of 2.*needs 2"),
        ({"isolate": ["node-1 mlx5_0"]}, "node-1 mlx5_0.*drain"),
        ({"isolate": ["leaf-1-1 ib9"]}, "leaf-1-1 ib9.*no port of the fabric"),
        ({"isolate": ["leaf-1-1 ib3"], "guids": {}}, "leaf-1-1 ib3.*GUID is not known"),
        ({"isolate": ["leaf-1-1 ib3"], "restore": ["spine-1 ib1"]}, "leaf-1-1 ib3.*restore"),
    ],
)
def test_what_must_not_be_isolated_is_refused_before_a_change(isolated, server, given, facts):
    with pytest.raises(AnsibleActionFail, match=facts):
        isolated(**given)
    assert not any(request.startswith("PUT") for request in server.requests)


def test_the_last_link_is_refused_where_ufm_has_isolated_the_others(isolated):
    isolated(isolate=["leaf-1-1 ib3"])
    with pytest.raises(AnsibleActionFail, match=r"leaf-1-1 ib4.*0 of 2"):
        isolated(isolate=["leaf-1-1 ib4"], spare_uplinks=2)
    # In one call the first may come back.
    assert isolated(isolate=["leaf-1-1 ib4"], restore=["leaf-1-1 ib3"])[0]["changed"]


def test_a_link_is_refused_where_the_other_one_has_no_cable(isolated, server):
    low, up = (port(GUIDS, *end) for end in FABRIC.uplinks[0])
    server.links.remove(link(low, up))
    with pytest.raises(AnsibleActionFail, match=r"leaf-1-1 ib4.*0 of 2"):
        isolated(isolate=["leaf-1-1 ib4"])


def test_ports_that_ufm_does_not_change_in_time_fail(isolated, server):
    server.late = 100
    with pytest.raises(AnsibleActionFail, match="UFM: it has not changed the ports in 0 s"):
        isolated(isolate=["leaf-1-1 ib3"], limit_s=0)
