# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The CDI files of a node's GPUs and RDMA devices: written anew after a boot, and when driver or devices have changed.

They are under another name than NVIDIA's own file, which its service nvidia-cdi-refresh may write beside.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.disk import locked
from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.job_containers import cdi
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.sysfs import read_host

# Engines read this directory beside /etc/cdi; it is empty after a boot.
FOLDER = "/run/cdi"
RDMA_FILE, GPU_FILE = f"{FOLDER}/sailloft-rdma.json", f"{FOLDER}/sailloft-gpu.json"
# What the files were made of.
KEY_FILE, LOCK_FILE = "/run/sailloft/job-containers.key", "/run/sailloft/job-containers.lock"
# Of nvidia-ctk. Engines read no file before it is complete.
NEW_FILE = "/run/sailloft/job-containers-gpu.json"
VERBS, GPUS, DRIVER = "/sys/class/infiniband_verbs", "/proc/driver/nvidia/gpus", "/proc/driver/nvidia/version"
NCCL_CONF = "/etc/nccl.conf"
# Of 8 GPUs it takes seconds, with a driver that is not kept loaded longer.
NVIDIA_CTK_S = 60
NVIDIA_CTK = ("nvidia-ctk", "cdi", "generate", "--format=json", f"--output={NEW_FILE}", "--vendor=sailloft.fleet")
_MINOR = re.compile(r"^Device Minor:\s*(\d+)\s*$", re.MULTILINE)
_HCA = re.compile(r"^NCCL_IB_HCA=(.*)$", re.MULTILINE)


def refresh(system: System) -> list[str]:
    """Write the files that are not of the present driver and devices, and return what failed, as lines.

    A file that cannot be made is removed: a job then learns that the device is not there. Prologs, slurmd's start and
    the health check wait for each other. Raises HostError.
    """
    try:
        os.makedirs(os.path.dirname(system.path(LOCK_FILE)), exist_ok=True)
        with locked(system.path(LOCK_FILE)):
            return _refreshed(system)
    except OSError as error:
        raise HostError(f"{LOCK_FILE}: {error.strerror}", "look at the file system of /run") from error


def _refreshed(system: System) -> list[str]:
    verbs, minors = _verbs(system), _minors(system)
    nccl = system.read(NCCL_CONF) or ""
    parts = [verbs, minors, system.read(DRIVER), nccl, system.exists(cdi.RDMA_CM), cdi.VERSION]
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    wanted = [path for path, devices in ((RDMA_FILE, verbs), (GPU_FILE, minors)) if devices]
    if system.read(KEY_FILE) == key and all(system.exists(path) for path in wanted):
        return []
    failures = []
    try:
        hca = _HCA.search(nccl)
        spec = verbs and cdi.rdma_spec(
            read_host(system.root), verbs, minors, hca[1] if hca else "", system.exists(cdi.RDMA_CM)
        )
        if spec:
            system.replace(RDMA_FILE, f"{json.dumps(spec, indent=1)}\n".encode())
        else:
            system.remove(RDMA_FILE)
    except SailloftError as error:
        system.remove(RDMA_FILE)
        failures.append(f"RDMA devices for containers: {error}")
    failures += _write_gpus(system, sorted(minors.values()))
    if not failures:
        system.replace(KEY_FILE, key.encode())
    return failures


def _write_gpus(system: System, minors: list[int]) -> list[str]:
    if not minors:
        system.remove(GPU_FILE)
        return []
    try:
        system.remove(NEW_FILE)
        system.run(list(NVIDIA_CTK), timeout_s=NVIDIA_CTK_S)
        cdi.gpu_names(loaded(system, NEW_FILE), minors)
        system.replace(GPU_FILE, system.read_bytes(NEW_FILE) or b"")
    except SailloftError as error:
        failure = str(error)
    except (KeyError, TypeError, ValueError) as error:
        failure = f"nvidia-ctk wrote no device for /dev/nvidiaN, as for a GPU with MIG: {error!r:.80}"
    else:
        return []
    system.remove(GPU_FILE)
    return [f"GPUs for containers: {failure}"]


def loaded(system: System, path: str) -> dict[str, Any]:
    """Return a CDI file, without devices if there is none. Raises ValueError for other text."""
    return json.loads(system.read(path) or '{"devices": []}')


def _verbs(system: System) -> dict[str, str]:
    """Return the device file of each RDMA device: /sys/class/infiniband_verbs/uverbs0/ibdev is "mlx5_0"."""
    names = {name: system.read(f"{VERBS}/{name}/ibdev") for name in system.names(VERBS) if name.startswith("uverbs")}
    return {device: f"/dev/infiniband/{name}" for name, device in names.items() if device}


def _minors(system: System) -> dict[str, int]:
    matches = {name: _MINOR.search(system.read(f"{GPUS}/{name}/information") or "") for name in system.names(GPUS)}
    return {name.lower(): int(minor[1]) for name, minor in matches.items() if minor}
