# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The processors, GPUs and NICs of a node as Slurm counts them, from its recorded topology. Pure.

Slurm numbers cores as hwloc does (``Core L#`` of lstopo; gres.conf(5), Cores): socket by socket, not as Linux numbers
CPUs. hwloc orders sockets by their first CPU. Slurm places jobs with GPUs by whole sockets, and refuses parts of them
since 24.11, so that the cores of a device are always all cores of its socket.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.errors import SchedulerError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import NVIDIA
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host, NumaNode
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Paths
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.rails import OF_ONE_SWITCH

# A node with less memory than RealMemory is drained. Kernels reserve more or less of it: 2 percent, and what is left of
# 256 MiB, are given away, so that equal servers stay equal.
MEMORY_SHARE, MEMORY_STEP_MIB = 0.98, 256
_MINOR = re.compile(r"^Device Minor:\s*(\d+)\s*$", re.MULTILINE)


class NodeHardware(NamedTuple):
    """A node for Slurm: its processors, memory, and the socket of each GPU and NIC (None: not known).

    ``gpus``: the addresses of NVIDIA's GPUs in PCI order, with the socket. Their driver numbers /dev/nvidiaN in the
    order in which it finds them, which is this one if all are there when it starts. ``nics``: the NICs below the switch
    of a GPU.
    """

    sockets: int
    cores_per_socket: int
    threads_per_core: int
    memory_mib: int
    gpus: tuple[tuple[str, int | None], ...] = ()
    nics: tuple[tuple[str, int | None], ...] = ()

    def cores(self, socket: int) -> str:
        """Return the logical numbers of a socket's cores, "48-95"."""
        first = socket * self.cores_per_socket
        last = first + self.cores_per_socket - 1
        return f"{first}-{last}" if last > first else f"{first}"

    def counts(self) -> dict[str, int]:
        """Return the number of devices by name of generic resource, those that the node has."""
        return {name: len(items) for name, items in (("gpu", self.gpus), ("nic", self.nics)) if items}

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form, which ``differences`` takes."""
        return {**self._asdict(), "gpus": [address for address, _socket in self.gpus], "nics": len(self.nics)}


class DeviceRun(NamedTuple):
    """Devices with consecutive numbers on one socket: those from ``first`` to ``last``, and their cores ("": any)."""

    first: int
    last: int
    cores: str


def hardware(host: Host) -> tuple[NodeHardware | None, list[str]]:
    """Return a node's hardware and what is not known; None if the recording does not say what Slurm must know."""
    numa_nodes = [node for node in host.numa_nodes if node.cpus]
    if not numa_nodes:
        return None, ["the recording has no CPUs"]
    if any(node.socket is None for node in numa_nodes):
        return None, ["the recording does not say which socket its CPUs are in; record the node again"]
    sockets = _sockets(numa_nodes)
    cores = {sum(len(node.siblings) for node in nodes) for nodes in sockets}
    threads = {len(siblings) for node in numa_nodes for siblings in node.siblings}
    if len(cores) != 1 or len(threads) != 1:
        return None, ["its sockets have different numbers of cores or threads, which Slurm cannot describe"]
    socket_of = {node.id: number for number, nodes in enumerate(sockets) for node in nodes}
    notes = []
    gpus, other_count = _gpus(host)
    if other_count:
        notes.append(
            f"{other_count} GPUs are not NVIDIA's: the names of their files are not known, so they are left out"
        )
    memory_mib = sum(node.memory_bytes for node in host.numa_nodes) >> 20
    planned_mib = int(memory_mib * MEMORY_SHARE) // MEMORY_STEP_MIB * MEMORY_STEP_MIB
    node = NodeHardware(
        len(sockets),
        cores.pop(),
        threads.pop(),
        planned_mib,
        tuple((gpu.address, socket_of.get(host.node_of(gpu))) for gpu in gpus),  # type: ignore[arg-type]
        tuple((nic.address, socket_of.get(host.node_of(nic))) for nic in _nics(host, gpus)),  # type: ignore[arg-type]
    )
    if any(socket is None for _address, socket in (*node.gpus, *node.nics)):
        notes.append("the NUMA node of some devices is not known: they have no Cores, and Slurm takes any")
    return node, notes


def runs(node: NodeHardware, devices: tuple[tuple[str, int | None], ...]) -> list[DeviceRun]:
    """Return the devices of a node in runs of one socket each."""
    device_runs = []
    for socket, numbered in groupby(enumerate(devices), lambda item: item[1][1]):
        numbers = [number for number, _device in numbered]
        device_runs.append(DeviceRun(numbers[0], numbers[-1], "" if socket is None else node.cores(socket)))
    return device_runs


def differences(planned: Mapping[str, Any], slurmd_c: str, gpu_files: Mapping[str, str]) -> list[str]:
    """Compare a planned node with what ``slurmd -C`` prints on it; ``gpu_files``: the driver's text by address.

    Raises SchedulerError for a text that is not that of ``slurmd -C``.
    """
    detected = read_slurmd(slurmd_c)
    wrong = [
        f"{name} is {detected[key]}, planned is {planned[key]}"
        for key, name in (
            ("sockets", "Sockets"),
            ("cores_per_socket", "CoresPerSocket"),
            ("threads_per_core", "ThreadsPerCore"),
        )
        if detected[key] != planned[key]
    ]
    if detected["memory_mib"] < planned["memory_mib"]:
        wrong.append(f"RealMemory is {detected['memory_mib']}, planned is at least {planned['memory_mib']}")
    minors = {}
    for address, text in gpu_files.items():
        minor = _MINOR.search(text)
        if minor:
            minors[address.lower()] = int(minor[1])
    for number, address in enumerate(planned.get("gpus") or ()):
        if minors.get(address, number) != number:
            wrong.append(f"GPU {address} is /dev/nvidia{minors[address]}, planned is /dev/nvidia{number}")
    if minors and len(minors) != len(planned.get("gpus") or ()):
        wrong.append(f"it has {len(minors)} GPUs, planned are {len(planned.get('gpus') or ())}")
    return wrong


def read_slurmd(text: str) -> dict[str, int]:
    """Return the hardware in the output of ``slurmd -C``. Raises SchedulerError."""
    pairs = dict(re.findall(r"(\w+)=(\d+)", text))
    try:
        return {
            "sockets": int(pairs["Sockets"] if "Sockets" in pairs else pairs["SocketsPerBoard"]) * _boards(pairs),
            "cores_per_socket": int(pairs["CoresPerSocket"]),
            "threads_per_core": int(pairs["ThreadsPerCore"]),
            "memory_mib": int(pairs["RealMemory"]),
        }
    except KeyError as error:
        raise SchedulerError(
            f"slurmd -C printed no {error.args[0]}: {text.strip():.120}", "run it on the node"
        ) from None


def _boards(pairs: Mapping[str, str]) -> int:
    return int(pairs.get("Boards", "1")) if "SocketsPerBoard" in pairs else 1


def _sockets(numa_nodes: list[NumaNode]) -> list[list[NumaNode]]:
    """Return the NUMA nodes of each socket, the sockets in hwloc's order."""
    by_socket: dict[int | None, list[NumaNode]] = {}
    for node in numa_nodes:
        by_socket.setdefault(node.socket, []).append(node)
    return sorted(by_socket.values(), key=lambda nodes: min(cpu for node in nodes for cpu in node.cpus))


def _gpus(host: Host) -> tuple[list[Function], int]:
    """Return NVIDIA's GPUs in PCI order, and the number of the others."""
    gpus = [function for function in host.functions if function.kind == "gpu" and function.physical_function is None]
    ours = [gpu for gpu in gpus if gpu.vendor_id == NVIDIA]
    return sorted(ours, key=lambda gpu: gpu.address), len(gpus) - len(ours)


def _nics(host: Host, gpus: list[Function]) -> list[Function]:
    paths = Paths(host)
    return [
        nic
        for nic in sorted(host.functions, key=lambda function: function.address)
        if nic.kind == "nic"
        and nic.physical_function is None
        and any(paths.path_class(nic.address, gpu.address) in OF_ONE_SWITCH for gpu in gpus)
    ]
