# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The role roce_host on this machine, in check mode: the files that it would write, and its refusals."""

from __future__ import annotations

import pytest
from playing import play_of_hosts

WRITTEN = {
    "policy": {
        "roce_policy": {"classes": {"roce": {"dscp": 24}}},
        "roce_host_nccl": {"NCCL_DEBUG": "WARN"},
        "roce_host_applications": [{"name": "NCCL", "tos": 0}, {"name": "NVSHMEM", "tos": 98}],
    },
    "nccl-chooses": {"roce_host_nccl_choices": {"gid_index": -1, "queue_pairs": 0}},
    "gpu-guest": {},
}
# Hosts that the role refuses, one by its own check and one by its module: the variables and the message of each.
REFUSED = {
    "nccl": ({"roce_host_nccl": {"NCCL_IB_TC": 104}}, "NCCL_IB_TC is set to 104"),
    "device": ({"roce_host_nics": {"nosuch0": {}}}, "nosuch0: no such RDMA device on this host"),
}
REFUSED_TOO = {
    "class": ({"roce_host_class": "storage"}, "there is no class 'storage'; valid names: roce"),
    "dscp": ({"roce_policy": {"classes": {"roce": {"dscp": 64}}}}, "dscp: 64 is not valid"),
    "setting": (
        {"roce_host_nics": {"nosuch0": {"speed": 1}}},
        "unknown setting 'speed'; valid settings: cable_m, speed_gbit_s",
    ),
}
APPLY = "Apply the policy to the NICs, now and at every boot, and to NCCL"


def play(folder, hosts):
    """Return the results of the role in check mode: {host: {task's name: its result}}."""
    tasks = [
        {
            "name": "Make a guest of it",
            "ansible.builtin.group_by": {"key": "gpu_guests"},
            "when": "inventory_hostname == 'gpu-guest'",
        },
        {"name": "Role", "ansible.builtin.include_role": {"name": "sailloft.fleet.roce_host"}},
        {
            "name": "Role again",
            "ansible.builtin.include_role": {"name": "sailloft.fleet.roce_host"},
            "when": "inventory_hostname == 'policy'",
        },
    ]
    return play_of_hosts(folder, tasks, hosts, "--check", "--diff", packages_install=False)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    refused = {host: variables for host, (variables, _said) in REFUSED.items()}
    return play(tmp_path_factory.mktemp("play"), WRITTEN | refused)


def written(results, host):
    """Return the lines of NCCL's file on a host, after a check that nothing failed."""
    assert not [result for result in results[host].values() if result.get("failed")]
    return [line.strip() for line in results[host][APPLY]["diff"]["after"]["/etc/nccl.conf"]]


def test_the_nccl_file_has_the_settings_of_the_policy(results):
    settings = {"NCCL_DEBUG=WARN", "NCCL_IB_GID_INDEX=3", "NCCL_IB_QPS_PER_CONNECTION=16", "NCCL_IB_TC=98"}
    assert settings <= set(written(results, "policy"))


def test_applications_of_the_inventory_are_kept_beside_nccl_as_it_is_written(results):
    """An NCCL whose job overrides the file, too. These are the results of the second run, which adds nothing."""
    record = results["policy"]["Record the applications that the proof of the path follows"]
    named = record["ansible_facts"]["roce_host_applications"]
    assert [(app["name"], app["tos"]) for app in named] == [("NCCL", 98), ("NCCL", 0), ("NVSHMEM", 98)]


def test_settings_that_nccl_chooses_itself_are_omitted(results):
    lines = written(results, "nccl-chooses")
    assert "NCCL_IB_TC=106" in lines
    assert not [line for line in lines if "GID_INDEX" in line or "QPS" in line]


def test_the_nccl_file_of_a_gpu_guest_is_not_written(results):
    assert results["gpu-guest"][APPLY]["skipped"] is True
    assert not [result for result in results["gpu-guest"].values() if result.get("failed")]


@pytest.mark.long
def test_a_tag_selects_nccl_alone(tmp_path):
    tasks = [{"name": "Role", "ansible.builtin.import_role": {"name": "sailloft.fleet.roce_host"}}]
    hosts = {"no-such-nic": {"roce_host_nics": {"nosuch0": {}}, "packages_install": False}}
    assert "NCCL_IB_TC=106" in written(
        play_of_hosts(tmp_path, tasks, hosts, "--check", "--diff", "--tags", "nccl"), *hosts
    )


@pytest.mark.parametrize("host", REFUSED)
def test_invalid_variables_are_refused_before_anything_is_written(results, host):
    refuses(results[host], REFUSED[host][1])


@pytest.mark.long
def test_further_invalid_variables_are_refused_before_anything_is_written(tmp_path):
    results = play(tmp_path, {host: variables for host, (variables, _said) in REFUSED_TOO.items()})
    for host, (_variables, said) in REFUSED_TOO.items():
        refuses(results[host], said)


def refuses(results, said):
    """Check that the last task of a host failed with this message, and that none would change anything."""
    *_before, last = results.values()
    assert last["failed"] is True
    assert said in last["msg"]
    assert not any(result.get("changed") for result in results.values())
