# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Containers of users' jobs by the real podman and crun in the real Slurm, with cgroups that confine devices.

The files of devices have NVIDIA's and InfiniBand's numbers without a driver: ENXIO is an open that the cgroup allows.
"""

from __future__ import annotations

import os
import re
import shlex

import pytest
from container_cluster import MAN, NODES, OPEN_ALL, container_cluster

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="slurmd needs root for cgroups")
ALLOWED, FORBIDDEN = "No such device", "Operation not permitted"


@pytest.fixture(scope="module")
def cluster():
    with container_cluster() as cluster:
        yield cluster


def opened(ran):
    """Return what happened to each device of a container."""
    assert ran.returncode == 0, ran.stderr
    found = re.findall(r"(?m)^(/dev/\S+): (.*)$", ran.stdout)
    return {path: ALLOWED if said.startswith(ALLOWED) else said for path, said in found}


def verbs(cluster, *names):
    shown = cluster.run("sh", "-c", "cd /sys/class/infiniband_verbs; grep -H . */ibdev")
    by_name = {name: f"/dev/infiniband/{file}" for file, name in re.findall(r"(\w+)/ibdev:(\w+)", shown)}
    return {by_name[name]: ALLOWED for name in names}


def test_output_and_status_of_a_container_are_those_of_the_job(cluster):
    ran = cluster.podman("id -u; echo wrong >&2; exit 7")
    assert (ran.returncode, ran.stdout) == (7, "0\n"), ran.stderr
    assert "wrong" in ran.stderr
    cluster.wait("nothing is left", lambda: not cluster.left())


def test_a_container_has_the_gpus_of_its_job_and_their_nics_and_no_others(cluster):
    both = {"/dev/nvidiactl": ALLOWED, "/dev/infiniband/rdma_cm": ALLOWED}
    first = cluster.podman(f"{OPEN_ALL}; env", slurm=("--gres=gpu:2",))
    assert opened(first) == {
        **both,
        **verbs(cluster, "mlx5_3"),
        "/dev/nvidia0": ALLOWED,
        "/dev/nvidia1": ALLOWED,
    }
    assert "\nNCCL_IB_HCA==mlx5_3\n" in first.stdout
    every = cluster.podman(OPEN_ALL, slurm=("--gres=gpu:8",))
    assert opened(every) == {
        **both,
        **verbs(cluster, "mlx5_2", "mlx5_3"),
        **{f"/dev/nvidia{number}": ALLOWED for number in range(8)},
    }


@pytest.mark.long
def test_the_nics_are_those_of_the_other_switch_for_the_other_gpus(cluster):
    held = cluster.submit("--nodelist=holds01", "--gres=gpu:4")
    cluster.job(held)
    ran = cluster.podman(f"{OPEN_ALL}; env", slurm=("--nodelist=holds01", "--gres=gpu:1"))
    assert {"/dev/nvidia4", *verbs(cluster, "mlx5_2")} < opened(ran).keys()
    # CUDA counts the GPUs of the job from 0, as those that the container has.
    assert "\nCUDA_VISIBLE_DEVICES=0\n" in ran.stdout
    cluster.run("scancel", held)


@pytest.mark.long
def test_slurm_forbids_a_gpu_that_a_user_takes_without_having_it(cluster):
    ran = cluster.podman("--device", "/dev/nvidia5", OPEN_ALL)
    seen = opened(ran)
    assert (seen["/dev/nvidia0"], seen["/dev/nvidia5"]) == (ALLOWED, FORBIDDEN)


@pytest.mark.long
def test_a_step_without_gpus_has_none(cluster):
    inside = f"oci-archive:{cluster.image} sh -c {shlex.quote(OPEN_ALL)}"
    inner = f"srun --gres=none sailloft-container run --rm --quiet {inside}"
    script = cluster.folder.parent / "home/job.sh"
    script.write_text(f"#!/bin/sh\n{inner}\n")
    output = script.with_name("output")
    ran = cluster.user("sbatch", "--wait", "--gres=gpu:2", f"--output={output}", str(script))
    assert (ran.returncode, output.read_text()) == (0, "")


@pytest.mark.long
def test_the_script_of_a_job_that_a_step_submits_has_the_gpus_of_its_job(cluster):
    home = cluster.folder.parent / "home"
    inside = f"oci-archive:{cluster.image} sh -c {shlex.quote(OPEN_ALL)}"
    script, output = home / "inner.sh", home / "inner"
    script.write_text(f"#!/bin/sh\necho $SLURM_JOB_GPUS\nexec sailloft-container run --rm --quiet {inside}\n")
    submit = f"sbatch --wait --nodelist=holds01 --gres=gpu:2 --output={output} {script}"
    ran = cluster.user("srun", "--nodelist=holds01", "--gres=gpu:1", *submit.split())
    assert ran.returncode == 0, ran.stderr
    numbers, *lines = output.read_text().splitlines()
    seen = dict(line.split(": ") for line in lines)
    assert {path for path in seen if re.search(r"nvidia\d", path)} == {f"/dev/nvidia{n}" for n in numbers.split(",")}
    assert all(said.startswith(ALLOWED) for said in seen.values())


@pytest.mark.long
def test_a_user_with_further_ids_and_without_a_home_has_them_and_leaves_nothing(cluster):
    ran = cluster.podman("cat /proc/self/uid_map; ls -ln /srv", **MAN)
    assert ran.returncode == 0, ran.stderr
    first, second, file = (line.split() for line in ran.stdout.splitlines() if not line.startswith("total"))
    assert (first, second) == (["0", "6", "1"], ["1", "100000", "65536"])
    assert file[2:4] == ["7", "7"]
    cluster.wait("nothing is left", lambda: not cluster.left())


# Calls of libpmix, as MPI makes them.
PMIX = """import ctypes
class Process(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 256), ("rank", ctypes.c_uint32)]
pmix, process = ctypes.CDLL("libpmix.so.2"), Process()
said = [pmix.PMIx_Init(ctypes.byref(process), None, 0), pmix.PMIx_Fence(None, 0, None, 0)]
print(process.rank, *said, pmix.PMIx_Finalize(None, 0))
"""


@pytest.mark.long
def test_processes_in_containers_meet_by_pmix_as_their_user(cluster):
    """The container has this machine's libraries; an image would have its own."""
    program = cluster.folder.parent / "home/pmix.py"
    program.write_text(PMIX)
    host = ("/usr:/usr:ro", "/usr/lib:/lib:ro", "/usr/lib64:/lib64:ro", f"{program}:/pmix.py:ro")
    as_user = "unshare --user --map-user=$SLURM_JOB_UID --map-group=$SLURM_JOB_GID"
    ran = cluster.podman(
        *(option for volume in host for option in ("--volume", volume)),
        f"/usr/bin/{as_user} /usr/bin/python3 /pmix.py",
        slurm=("--mpi=pmix", "--ntasks=2"),
    )
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["0 0 0 0", "1 0 0 0"]


@pytest.mark.long
def test_two_tasks_of_a_node_and_two_nodes_have_containers_at_once(cluster):
    ran = cluster.podman("echo $SLURM_PROCID $SLURMD_NODENAME", slurm=("--nodes=2", "--ntasks=4", "--gres=gpu:1"))
    assert ran.returncode == 0, ran.stderr
    tasks = dict(line.split() for line in ran.stdout.splitlines())
    assert tasks.keys() == {"0", "1", "2", "3"}
    assert {*tasks.values()} == {*NODES}


@pytest.mark.long
def test_a_killed_job_leaves_nothing(cluster):
    script = cluster.folder.parent / "home/killed.sh"
    run = (
        f"exec sailloft-container run --quiet oci-archive:{cluster.image} sh -c 'echo begun >/dev/shm/file; sleep 299'"
    )
    script.write_text(f"#!/bin/sh\n{run}\n")
    job = cluster.user("sbatch", "--parsable", "--gres=gpu:1", "--output=/dev/null", str(script)).stdout.strip()
    cluster.wait("the container runs", lambda: "file" in cluster.left())
    assert job in cluster.left()
    cluster.run("scancel", "--signal=KILL", "--full", job)
    cluster.wait("the job is gone", lambda: not cluster.run("squeue", "--noheader"))
    # Shared memory is the node's, as without a container.
    cluster.wait("nothing is left", lambda: cluster.left() == ["file"])
    cluster.run("rm", "/dev/shm/file")
    cluster.wait("nodes stay in service", lambda: not any(node.is_out for node in cluster.states().values()))


def test_root_starts_no_container(cluster):
    assert "submit" in cluster.run("sh", "-c", "srun --gres=gpu:1 sailloft-container run image 2>&1 || :")


@pytest.mark.long
def test_the_check_says_whether_containers_can_start(cluster):
    assert cluster.run("sh", "-c", "rm -r /run/cdi /run/sailloft; umask 077; sailloft-container check")
    assert cluster.podman("ls /dev/nvidia0").returncode == 0
    outside = cluster.user("sailloft-container", "run", "image")
    assert outside.returncode == 1
    assert "srun" in outside.stderr
    cluster.run("mv", "/usr/bin/crun", "/usr/bin/crun.away")
    try:
        ran = cluster.user("sailloft-container", "check")
        assert ran.returncode == 1
        assert "crun" in ran.stdout
    finally:
        cluster.run("mv", "/usr/bin/crun.away", "/usr/bin/crun")
