# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The partitions of a simulated UFM get their planned members."""

from __future__ import annotations

import pytest
import sites
import yaml
from ansible.errors import AnsibleActionFail
from ib_sites import TREE, small
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.action import ufm_partitions
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm import partitions as ufm

_SITE, GUIDS = small()
PARTITIONS = {"a": {"pkey": 1, "members": {"node-1": "full", "node-2": "limited"}, "index0": True}}


@pytest.fixture
def change(make, tmp_path, server):
    """Return a function that runs the module with partitions, and returns its result and the requests."""
    blueprint = tmp_path / "blueprint.yml"
    blueprint.write_text(yaml.safe_dump(sites.changed(**TREE)))

    def run(partitions=None, check_mode=False, **others):
        given = {
            "blueprint": str(blueprint),
            "fabric": "compute",
            "guids": GUIDS,
            "partitions": PARTITIONS if partitions is None else partitions,
            "ufm_url": "https://ufm.example.com/",
            "ufm_token": "token",
            **others,
        }
        server.requests.clear()
        action = make(ufm_partitions, **given)
        action._task.check_mode = check_mode
        return action.run(task_vars={}), [line.split("/guids/")[0] for line in server.requests]

    return run


READ, ADD = "GET ufmRestV3/resources/pkeys?guids_data=true", "POST ufmRestV3/resources/pkeys/"


def members(server, pkey="0x1"):
    return {row["guid"][-3:]: (row["membership"], row["index0"]) for row in server.pkeys[pkey]["guids"]}


def test_members_are_added_once_and_check_mode_adds_none(change, server):
    result, requests = change(check_mode=True)
    assert (result["changed"], requests, list(server.pkeys)) == (True, [READ], ["0x7fff"])
    assert "limited index0" in result["diff"]["after"]
    result, requests = change()
    assert (result["steps"], requests) == (["0x0001: add or change 4 members"], [READ, ADD])
    assert sorted(members(server).values()) == [("full", True)] * 2 + [("limited", True)] * 2
    result, requests = change()
    assert (result["changed"], requests, result["left"]) == (False, [READ], [])


def test_members_are_changed_and_then_removed(change, server):
    change()
    new = {"a": {"pkey": 1, "members": {"node-2": "full", "node-3": "full"}, "index0": True}}
    result, requests = change(new)
    assert requests == [READ, ADD, "DELETE ufmRestV3/resources/pkeys/0x1"]
    assert result["steps"] == ["0x0001: add or change 4 members", "0x0001: remove 2 members"]
    assert not change(new)[0]["changed"]


def test_many_members_are_several_requests(change, monkeypatch):
    monkeypatch.setattr(ufm, "ADDED_AT_ONCE", 3)
    monkeypatch.setattr(ufm, "REMOVED_AT_ONCE", 1)
    assert change()[1] == [READ, ADD, ADD]
    removal = {"a": {"pkey": 1, "members": {"node-1": "full"}, "index0": True}}
    assert change(removal)[1] == [READ, *["DELETE ufmRestV3/resources/pkeys/0x1"] * 2]


def test_what_is_not_planned_is_left_and_named(change, server):
    server.pkeys["0x8005"] = {"partition": "x", "ip_over_ib": False, "guids": []}
    change()
    server.pkeys["0x1"]["ip_over_ib"] = True
    left = change()[0]["left"]
    assert [line.partition(":")[0] for line in left] == ["0x0005", "0x0001"]


def test_unknown_guids_are_named(change, server):
    guids = {**GUIDS, "node-1": {}}
    result, _requests = change(guids=guids)
    assert any("node-1" in line for line in result["unknown"])
    assert len(members(server)) == 2
    # Members that are not planned may be those with unknown GUIDs.
    change()
    result, requests = change(guids=guids)
    assert (requests, len(members(server))) == ([READ], 4)
    assert result["left"] == [Mentions("0x0001", "2 members", "2 planned GUIDs")]


def test_user_and_password_are_used_without_a_token(change, server):
    change(ufm_token=None, ufm_username="admin", ufm_password="secret")
    assert server.requests[0] == READ.replace("V3", "")
    assert server.logins == {"Basic YWRtaW46c2VjcmV0"}
    with pytest.raises(AnsibleActionFail, match="ufm_token"):
        change(ufm_token=None)


def test_the_login_goes_to_the_verified_https_url_only_and_is_in_no_result(change, server):
    result, _requests = change(ufm_token="s3cret", ca_path="/etc/ca.pem")
    assert "s3cret" not in str(result)
    kept = {name: server.options[name] for name in ("follow_redirects", "validate_certs", "ca_path")}
    assert kept == {"follow_redirects": "none", "validate_certs": True, "ca_path": "/etc/ca.pem"}
    for url in ("http://ufm.example.com", "ufm.example.com", "https://admin:s3cret@ufm.example.com", "https://"):
        with pytest.raises(AnsibleActionFail, match="UFM: ufm_url is no https URL") as refused:
            change(ufm_url=url)
        assert "s3cret" not in str(refused.value)
    assert server.requests == []


def test_a_refusal_and_a_strange_answer_are_named(change, server):
    with pytest.raises(AnsibleActionFail, match=r"404.*no such resource; check the URL"):
        change(ufm_url="https://ufm.example.com/other")
    server.pkeys["0x1"] = {"partition": "x"}
    with pytest.raises(AnsibleActionFail, match="documented form"):
        change()
