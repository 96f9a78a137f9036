# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A virtual machine that was started on another server is not started on its own one."""

from __future__ import annotations

import json

import pytest
from ansible.errors import AnsibleActionFail
from playing import play_of_hosts

from ansible_collections.sailloft.fleet.plugins.action import gpu_vm_place


@pytest.fixture
def place(make, tmp_path):
    def call(check_mode=False, **arguments):
        given = {"path": str(tmp_path / "vms"), "vms": ["train-01"], "server": "gpu1", **arguments}
        return make(gpu_vm_place, check_mode=check_mode, **given).run(task_vars={})

    return call


def test_what_was_never_started_elsewhere_is_not_refused(place, tmp_path):
    assert place()["changed"] is False
    assert list(tmp_path.iterdir()) == []


def test_it_is_written_once_and_refused_on_its_own_server(place, tmp_path):
    written = {"server": "gpu5", "state": "written"}
    assert place(check_mode=True, **written)["changed"] is True
    assert list(tmp_path.iterdir()) == []
    assert [place(**written)["changed"] for _run in range(2)] == [True, False]
    assert place(server="gpu5")["changed"] is False
    with pytest.raises(AnsibleActionFail, match="gpu5"):
        place(vms=["other", "train-01"])
    # Then the other one crashes.
    place(server="gpu7", state="written")
    with pytest.raises(AnsibleActionFail, match="gpu7"):
        place(server="gpu5")


@pytest.mark.fleet
def test_the_role_refuses_before_it_reaches_the_server(tmp_path):
    places = tmp_path / "vms"
    places.mkdir()
    (places / "train-01.json").write_text('{"format": "sailloft-vm-place/1", "vm": "train-01", "server": "gpu5"}')
    own = {"gpu_vm_domains": [{"name": "train-01"}], "ansible_connection": "ssh", "ansible_host": "192.0.2.1"}
    hosts = {
        "gpu1": own,
        "gpu2": {"gpu_vm_domains": [], "gpu_vm_whole_host": {"name": "train-01", "image": "/i"}, **own},
        "gpu3": {"gpu_vm_state": "absent", "gpu_vm_remove_disks": True, **own},
    }
    tasks = [{"name": "Run", "ansible.builtin.include_role": {"name": "sailloft.fleet.gpu_vm"}}]
    told = play_of_hosts(tmp_path, tasks, hosts, gpu_vm_places=str(places))
    for results in told.values():
        assert "it runs on gpu5" in json.dumps(results)
        assert "Define and start the GPU virtual machines" not in results
