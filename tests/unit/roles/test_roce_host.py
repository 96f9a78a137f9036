# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The role roce_host on this machine, in check mode: what it would write, and what it refuses."""

from __future__ import annotations

import json
import sys

import pytest
from playing import ansible_playbook


def play(tmp_path, inventory="localhost,", **variables):
    """The role in check mode; returns (exit status, output)."""
    playbook = tmp_path / "play.yml"
    role = {"ansible.builtin.include_role": {"name": "sailloft.fleet.roce_host"}}
    playbook.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": [role]}]))
    given = {"roce_host_packages_install": False, "ansible_python_interpreter": sys.executable, **variables}
    options = ["--check", "--diff", "-i", inventory, "-c", "local", "-e", json.dumps(given)]
    return ansible_playbook(*options, str(playbook), ANSIBLE_CALLBACK_RESULT_FORMAT="json")


def test_nccl_has_the_policy(tmp_path):
    status, output = play(
        tmp_path, roce_policy={"classes": {"roce": {"dscp": 24}}}, roce_host_nccl={"NCCL_DEBUG": "WARN"}
    )
    assert status == 0, output
    for line in ("NCCL_DEBUG=WARN", "NCCL_IB_GID_INDEX=3", "NCCL_IB_QPS_PER_CONNECTION=16", "NCCL_IB_TC=98"):
        assert f"+{line}" in output


def test_what_nccl_chooses_itself_is_left_out(tmp_path):
    status, output = play(tmp_path, roce_host_gid_index=-1, roce_host_queue_pairs=0)
    assert status == 0, output
    assert "+NCCL_IB_TC=106" in output
    assert "GID_INDEX" not in output
    assert "QPS" not in output


def test_a_gpu_guests_file_is_left_to_the_role_that_owns_it(tmp_path):
    inventory = tmp_path / "inventory.yml"
    inventory.write_text("gpu_guests: {hosts: {localhost: {}}}\n")
    status, output = play(tmp_path, str(inventory))
    assert status == 0, output
    assert "NCCL_IB_TC" not in output


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"roce_host_class": "storage"}, "there is no class 'storage'; there are roce"),
        ({"roce_policy": {"classes": {"roce": {"dscp": 64}}}}, "dscp 64 is not a whole number of 0 to 63"),
        ({"roce_host_nccl": {"NCCL_IB_TC": 104}}, "NCCL_IB_TC is set to 104"),
        ({"roce_host_nics": {"nosuch0": {}}}, "nosuch0: no such RDMA device on this host"),
        ({"roce_host_nics": {"nosuch0": {"speed": 1}}}, "unknown setting 'speed'; there are cable_m, speed_gbit_s"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_touched(tmp_path, variables, message):
    status, output = play(tmp_path, **variables)
    assert status != 0
    assert message in output
    assert "Write the settings of NCCL" not in output
