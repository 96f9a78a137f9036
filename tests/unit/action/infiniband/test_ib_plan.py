# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fabric is planned on the controller, and only files that differ are written."""

from __future__ import annotations

import pytest
import sites
from ansible.errors import AnsibleActionFail

from ansible_collections.sailloft.fleet.plugins.action import ib_plan

BLUEPRINT = str(sites.PROJECT / "inventories/blue_vela/blueprint.yml")
STORAGE = {"blueprint": BLUEPRINT, "fabric": "storage"}


def test_files_are_written_once_and_only_those_that_differ_again(make, tmp_path):
    folder = tmp_path / "plans"

    def run(check_mode=False, **given):
        return make(ib_plan, check_mode=check_mode, path=str(folder), **STORAGE, **given).run(task_vars={})

    first = run(check_mode=True)
    assert first["changed"]
    assert not folder.exists()
    assert run()["written"] == first["written"]
    assert {file.name for file in folder.iterdir()} == {*first["files"], "fabric.svg"}
    assert not run()["changed"]
    again = run(guids={"node-0001": {"mlx5_8": "0x1"}}, partitions={"a": {"pkey": 1, "members": {"nodes": "full"}}})
    assert again["written"] == [str(folder / "partitions.conf")]
    assert [change["before"] != change["after"] for change in again["diff"]] == [True]


def test_nothing_is_written_without_a_path_and_groups_of_the_run_may_be_members(make):
    partitions = {"a": {"pkey": 1, "members": {"tenant": "full"}}}
    result = make(ib_plan, partitions=partitions, **STORAGE).run(task_vars={"groups": {"tenant": ["node-0002"]}})
    assert (result["changed"], result["written"]) == (False, [])
    assert result["summary"][-1] == "partition a, 0x0001: 2 full members"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"blueprint": "/nowhere.yml", "fabric": "compute"}, "/nowhere.yml"),
        ({"blueprint": BLUEPRINT, "fabric": "inband"}, "inband"),
        ({**STORAGE, "routing": ["ftre"]}, "ftre"),
    ],
)
def test_what_cannot_be_planned_is_refused(make, arguments, message):
    with pytest.raises(AnsibleActionFail, match=message):
        make(ib_plan, **arguments).run(task_vars={})


def test_files_of_an_earlier_plan_are_named(make, tmp_path):
    for name in ("opensm-node-0009.conf", "topoconfig.conf", "notes.txt"):
        (tmp_path / name).write_text("", encoding="utf-8")
    result = make(ib_plan, path=str(tmp_path), **STORAGE).run(task_vars={})
    assert result["stale"] == [str(tmp_path / name) for name in ("opensm-node-0009.conf", "topoconfig.conf")]
    assert make(ib_plan, **STORAGE).run(task_vars={})["stale"] == []
