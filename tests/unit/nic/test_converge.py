# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NCCL's settings are part of a host's RoCE state: written once with the policy, refused against it, and restored."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from messages import Mentions
from nic_policy import NIC

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import converge, persistence

CONF = "/etc/nccl.conf"


def with_nccl(system, check=False, nics=None, stage="all", **nccl):
    """Bring a host to NCCL's settings."""
    nccl = {"settings": {}, "fifo_class": "", "gid_index": -1, "queue_pairs": 0, **nccl}
    options = {"policy": {}, "nics": nics, "rdma_class": None, "nccl": nccl, "stage": stage, "now": True}
    return converge.converge(system, options, check)


def test_nccls_settings_follow_the_policy_and_are_written_once(host):
    system, nccl = host(), {"settings": {"NCCL_DEBUG": "WARN"}, "queue_pairs": 16}
    assert with_nccl(system, check=True, **nccl).changed
    assert not system.exists(CONF)
    done = with_nccl(system, **nccl)
    assert done.facts["applications"] == [{"name": "NCCL", "tos": 106, "queue_pairs": 16}]
    wanted = {"NCCL_DEBUG=WARN", "NCCL_IB_TC=106", "NCCL_IB_QPS_PER_CONNECTION=16"}
    assert {line for line in system.read(CONF).splitlines() if not line.startswith("#")} == wanted
    assert (with_nccl(system, **nccl).changed, system.exists(persistence.SERVICE.settings)) == (False, False)
    os.chmod(system.path(CONF), 0o600)  # users' jobs could not read it
    assert with_nccl(system, **nccl).changed
    assert os.stat(system.path(CONF)).st_mode & 0o777 == 0o644
    assert not with_nccl(system, **nccl).changed


def test_an_application_has_the_gid_that_nccl_is_told_to_use(host):
    (application,) = with_nccl(host(), check=True, gid_index=3).facts["applications"]
    assert application["gid_index"] == 3


def test_a_gid_that_nccl_cannot_use_is_a_warning(host):
    system = host()
    port = "/sys/devices/pci0000:3a/0000:3b:00.0/infiniband/mlx5_0/ports/1"
    for index, version in enumerate(("IB/RoCE v1", "RoCE v2")):
        system.put(f"{port}/gids/{index}", "fd93:0000:0000:0000:0000:0000:0000:0001")
        system.put(f"{port}/gid_attrs/types/{index}", version)

    def warnings(gid_index):
        return with_nccl(system, check=True, nics={"mlx5_0": NIC}, gid_index=gid_index).facts["warnings"]

    assert [warnings(index) for index in (-1, 1)] == [[], []]
    assert warnings(0) == [Mentions("mlx5_0", "RoCE v1", "NCCL_IB_GID_INDEX=1")]
    assert warnings(3) == [Mentions("mlx5_0", "NCCL_IB_GID_INDEX=1")]


@pytest.mark.parametrize(
    ("content", "application"),
    [
        (
            "# gpu_guest\nNCCL_IB_TC=106\nNCCL_IB_GID_INDEX=3\nNCCL_IB_QPS_PER_CONNECTION=16\n",
            {"tos": 106, "queue_pairs": 16, "gid_index": 3},
        ),
        ("NCCL_IB_TC=104\nNCCL_IB_GID_INDEX=-1\n", {"tos": 104, "queue_pairs": 1}),
        ("#NCCL_IB_TC=106\nNCCL_DEBUG=INFO\n", None),
        ("NCCL_IB_TC\n", None),
        ("", None),
    ],
)
def test_nccls_settings_that_another_role_wrote_are_those_of_the_application(host, content, application):
    system = host()
    system.put(CONF, content)
    options = {"policy": {}, "nics": None, "rdma_class": None, "nccl": None, "stage": "all", "now": True}
    outcome = converge.converge(system, options)
    assert outcome.facts["applications"] == ([{"name": "NCCL", **application}] if application else [])
    assert (outcome.changed, system.read(CONF)) == (False, content.strip())


@pytest.mark.parametrize("stage", ["less_pfc", "settings"])
def test_a_stage_leaves_nccls_settings(host, stage):
    system = host()
    with_nccl(system, stage=stage)
    assert not system.exists(CONF)


@pytest.mark.parametrize("content", [None, b"NCCL_DEBUG=INFO\n\xff\n"])
def test_nccls_settings_are_restored(host, content):
    system = host()
    path = Path(system.path(CONF))
    path.parent.mkdir(exist_ok=True)
    if content is not None:
        path.write_bytes(content)
    before = with_nccl(system).facts["before"]
    assert path.read_bytes() != content
    converge.restored(system, before, None)
    assert (path.read_bytes() if path.exists() else None) == content
    assert not converge.restored(system, before, None).changed


@pytest.mark.parametrize("nccl", [{"settings": {"NCCL_IB_TC": 104}}, {"fifo_class": "storage"}, {"queue_pairs": 500}])
def test_nccl_settings_that_contradict_the_policy_are_refused_before_a_change(host, nccl):
    system = host()
    with pytest.raises(HostError):
        with_nccl(system, nics={"mlx5_0": NIC}, **nccl)
    assert (system.effects, system.exists(persistence.SERVICE.settings), system.exists(CONF)) == ([], False, False)
