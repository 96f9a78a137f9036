# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Links of a simulated UFM are isolated and restored."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleActionFail
from ib_sites import small
from messages import Mentions
from simulated_ufm import unhealthy

from ansible_collections.sailloft.fleet.plugins.action import ufm_unhealthy_ports

_SITE, GUIDS = small()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(ufm_unhealthy_ports, "PAUSE_S", 0)


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
