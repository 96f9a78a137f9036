# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A site is planned on the controller, and only files that differ are written."""

from __future__ import annotations

import pytest
import sites
from ansible.errors import AnsibleActionFail, AnsibleError

from ansible_collections.sailloft.fleet.plugins.action import site_plan

BLUEPRINT = sites.PROJECT / "inventories/small/blueprint.yml"
FILES = {"boot_nodes.json", "cables.csv", "hosts", "materials.csv", "neighbours.json", "site.svg", "topology.conf"}


def test_nothing_is_written_without_a_path(make):
    planned = make(site_plan, blueprint=str(BLUEPRINT)).run(task_vars={})
    assert planned["summary"][0].startswith("small: 2 racks")
    assert (planned["changed"], planned["written"], planned["difference"]) == (False, [], [])
    assert "files" not in planned


def test_files_are_written_once_and_only_those_that_differ_again(make, tmp_path):
    folder = tmp_path / "new" / "plan"

    def run(**given):
        planned = make(site_plan, blueprint=str(BLUEPRINT), path=str(folder), **given).run(task_vars={})
        assert planned["changed"] is bool(planned["written"])
        return planned["written"]

    every = sorted(str(folder / name) for name in FILES)
    assert sorted(run(check_mode=True)) == every
    assert not folder.parent.exists()
    assert sorted(run()) == every
    assert {file.name for file in folder.iterdir()} == FILES
    assert run() == []
    before = (folder / "hosts").read_text()
    (folder / "hosts").write_text("changed")
    (folder / "cables.csv").unlink()
    differ = [str(folder / name) for name in ("cables.csv", "hosts")]
    assert sorted(run(check_mode=True)) == differ
    assert (folder / "hosts").read_text() == "changed"
    assert sorted(run()) == differ
    assert (folder / "hosts").read_text() == before


def test_a_plan_is_compared_with_an_earlier_blueprint(make, tmp_path):
    smaller = tmp_path / "blueprint.yml"
    smaller.write_text(BLUEPRINT.read_text().replace("    count: 2\n", "    count: 1\n"))
    planned = make(site_plan, blueprint=str(smaller), before=str(BLUEPRINT)).run(task_vars={})
    assert planned["difference"][:2] == ["move to another place 1 nodes: gpu02", "remove 2 nodes: gpu[03-04]"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, AnsibleError, "missing required arguments: blueprint"),
        ({"blueprint": "/nowhere/blueprint.yml"}, AnsibleActionFail, "/nowhere/blueprint.yml"),
        ({"blueprint": str(BLUEPRINT), "before": "/nowhere/old.yml"}, AnsibleActionFail, "/nowhere/old.yml"),
    ],
)
def test_wrong_arguments_are_refused(make, arguments, error, message):
    with pytest.raises(error) as refused:
        make(site_plan, **arguments).run(task_vars={})
    assert message in str(refused.value)
