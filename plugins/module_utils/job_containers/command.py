# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The podman command of a job: with the job's GPUs and the NICs for them, as Slurm gave them to it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.job_containers import cdi
from ansible_collections.sailloft.fleet.plugins.module_utils.job_containers.jobs import (
    CONTAINERS_CONF,
    RUN,
    STORAGE_CONF,
)

PODMAN = "podman"
# Those of podman's commands that start a container of an image.
STARTING = ("run", "create")
# The cgroup of a job's script, of both versions of cgroups.
BATCH = "/step_batch"


def environment(folder: str, current: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of podman, whose files are all in the job's directory."""
    return {
        **current,
        "CONTAINERS_CONF": f"{folder}/{CONTAINERS_CONF}",
        "CONTAINERS_STORAGE_CONF": f"{folder}/{STORAGE_CONF}",
        "XDG_RUNTIME_DIR": f"{folder}/{RUN}",
    }


def gpus(current: Mapping[str, str], cgroups: str) -> list[int]:
    """Return the numbers N of /dev/nvidiaN that Slurm gave to the step, in a job's script to the job.

    A step inherits the variables of the script that starts it, also where it has no GPU; a job's script those of the
    step that submits it. ``cgroups``: /proc/self/cgroup, which has the name of the step.
    """
    is_step = "SLURM_STEP_ID" in current and BATCH not in cgroups
    text = current.get("SLURM_STEP_GPUS" if is_step else "SLURM_JOB_GPUS", "")
    return [int(word) for word in text.split(",") if word.isdecimal()]


def arguments(
    given: Sequence[str],
    current: Mapping[str, str],
    cgroups: str,
    gpu_spec: Mapping[str, Any],
    rdma_spec: Mapping[str, Any],
    volumes: Sequence[str],
) -> list[str]:
    """Return the command line of podman for the arguments of ``sailloft-container``. Raises HostError.

    ``volumes``: files and directories of the node, as podman takes them. NCCL_IB_HCA names the NICs of the container: a
    library would ask for each that /sys shows.
    """
    if not given or given[0] not in STARTING:
        return [PODMAN, *given]
    numbers = gpus(current, cgroups)
    try:
        devices = [f"{cdi.GPU}={name}" for name in cdi.gpu_names(gpu_spec, numbers)]
    except KeyError as error:
        raise HostError(
            f"the job has the GPUs {', '.join(map(str, numbers))}, but the node's CDI file lacks one of them",
            "ask the administrator: sailloft-container check, as root, says why",
        ) from error
    known = [device["name"] for device in rdma_spec["devices"]]
    of_gpus = [name for name in (f"gpu{number}" for number in numbers) if name in known]
    # A NIC of several GPUs once.
    nics = cdi.nics_in(rdma_spec, of_gpus)
    devices += [f"{cdi.RDMA}={name}" for name in nics]
    # Slurm's variables, CUDA_VISIBLE_DEVICES and the user's; those of the image are kept. podman 4.3 does not take this
    # from containers.conf.
    options = ["--env-host", *(option for device in devices for option in ("--device", device))]
    if nics:
        options += ["--env", f"NCCL_IB_HCA=={','.join(nics)}"]
    options += [word for volume in volumes for word in ("--volume", volume)]
    return [PODMAN, given[0], *options, *given[1:]]
