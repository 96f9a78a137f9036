# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A cluster is planned on the controller from groups, recordings and the blueprint; only changes are written."""

from __future__ import annotations

import shutil

import pytest
import sites
from ansible.errors import AnsibleActionFail

from ansible_collections.sailloft.fleet.plugins.action import slurm_plan

RECORDING = sites.PROJECT / "tests/recordings/aws-g4dn-metal.json"
PARTITIONS = [{"name": "gpu", "groups": ["gpu_nodes"]}]
VARIABLES = {"groups": {"gpu_nodes": ["a1", "a2"]}, "hostvars": {"a2": {"site_spare": True}}}


def test_files_are_written_once(make, tmp_path):
    folder, recordings = tmp_path / "plans", tmp_path / "recordings"
    recordings.mkdir()
    shutil.copy(RECORDING, recordings / "a1.json")

    def run(check_mode=False, **given):
        arguments = {"controllers": ["c1"], "partitions": PARTITIONS, "recordings": str(recordings), **given}
        return make(slurm_plan, check_mode=check_mode, path=str(folder), **arguments).run(task_vars=VARIABLES)

    first = run(check_mode=True)
    assert first["changed"]
    assert not folder.exists()
    assert run()["written"] == first["written"]
    assert {file.name for file in folder.iterdir()} == {*first["files"]} == {"slurm.conf", "gres.conf", "cgroup.conf"}
    assert not run()["changed"]
    assert run(prolog="/opt/prolog")["written"] == [str(folder / "slurm.conf")]
    assert (first["spares"], first["nodes"]["a2"], first["nodes"]["a1"]["sockets"]) == (["a2"], {}, 2)
    assert len(first["notes"]) == 1
    (recordings / "a2.json").write_text("{", encoding="utf-8")
    with pytest.raises(AnsibleActionFail, match=r"a2\.json"):
        run()


def test_what_cannot_be_planned_is_refused(make):
    with pytest.raises(AnsibleActionFail, match="gpu_nodes"):
        make(slurm_plan, controllers=["c1"], partitions=PARTITIONS).run(task_vars={})
    with pytest.raises(AnsibleActionFail, match=r"/nowhere\.yml"):
        make(slurm_plan, controllers=["c1"], partitions=PARTITIONS, blueprint="/nowhere.yml").run(task_vars={})
