# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""podman's command line: the devices that Slurm gave to the step."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.job_containers import cdi, command


def spec(**nodes):
    return {
        "devices": [
            {"name": name, "containerEdits": {"deviceNodes": [{"path": path} for path in paths]}}
            for name, paths in nodes.items()
        ]
    }


GPUS = spec(**{str(n): [f"/dev/nvidia{n}"] for n in range(4)}, all=[f"/dev/nvidia{n}" for n in range(4)])
A, B = "/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1"
RDMA = spec(mlx5_0=[A], mlx5_1=[B], gpu0=[A], gpu1=[A], gpu2=[B], gpu3=[A, B], all=[A, B])
STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}


# The cgroups of processes of a step and of a job's script, by cgroups v2 and v1.
IN_STEP = "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"
IN_SCRIPT = (
    "0::/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0",
    "9:freezer:/slurm/uid_5/job_7/step_batch\n6:devices:/slurm/uid_5/job_7/step_batch/task_0",
)


def devices(given, environment, rdma=None, cgroups=IN_STEP):
    argv = command.arguments(given, environment, cgroups, GPUS, RDMA if rdma is None else rdma, [])
    return [word for before, word in zip(argv, argv[1:]) if before == "--device"]


def test_a_step_has_its_gpus_and_their_nics_each_once():
    given = ["run", "image", "program", "--device", "of the program"]
    environment = {**STEP, "SLURM_STEP_GPUS": "0,1,2", "SLURM_JOB_GPUS": "0,1,2,3"}
    argv = command.arguments(given, environment, IN_STEP, GPUS, RDMA, ["/a:/a:ro"])
    assert argv[-4:] == given[1:]
    names = [word for before, word in zip(argv, argv[1:-3]) if before == "--device"]
    assert names == [f"{cdi.GPU}={n}" for n in range(3)] + [f"{cdi.RDMA}=mlx5_0", f"{cdi.RDMA}=mlx5_1"]
    assert argv[argv.index("--env") + 1] == "NCCL_IB_HCA==mlx5_0,mlx5_1"
    assert argv[argv.index("/a:/a:ro") - 1] == "--volume"


def test_a_jobs_script_has_the_gpus_of_the_job():
    assert devices(["create", "image"], {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "2"}) == [
        f"{cdi.GPU}=2",
        f"{cdi.RDMA}=mlx5_1",
    ]


@pytest.mark.parametrize("cgroups", IN_SCRIPT)
def test_a_jobs_script_that_a_step_has_submitted_has_not_the_gpus_of_that_step(cgroups):
    environment = {**STEP, "SLURM_STEP_GPUS": "0", "SLURM_JOB_GPUS": "1,3"}
    assert devices(["run", "image"], environment, cgroups=f"{cgroups}\n")[:2] == [f"{cdi.GPU}=1", f"{cdi.GPU}=3"]


def test_a_step_without_gpus_has_no_device_although_its_job_has():
    assert devices(["run", "image"], {**STEP, "SLURM_JOB_GPUS": "0,1"}) == []


def test_a_node_without_rdma_has_gpus_only():
    assert devices(["run", "image"], {**STEP, "SLURM_STEP_GPUS": "1"}, {"devices": []}) == [f"{cdi.GPU}=1"]


def test_other_commands_are_podmans():
    assert command.arguments(["ps", "--all"], STEP, IN_STEP, GPUS, RDMA, ["/a:/a"]) == ["podman", "ps", "--all"]


def test_a_gpu_that_the_node_does_not_describe_is_refused():
    with pytest.raises(HostError):
        devices(["run", "image"], {**STEP, "SLURM_STEP_GPUS": "9"})
