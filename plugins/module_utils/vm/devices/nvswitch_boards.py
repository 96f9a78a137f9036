# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""GPU baseboards with NVSwitches, and the partitions that Fabric Manager makes on them. Pure.

The GPUs of a virtual machine have NVLink between them only if a partition has exactly these GPUs. The partitions are
fixed: Fabric Manager has a table for each board, and so does this module.

Source: NVIDIA Fabric Manager User Guide, chapter "GPU Partitions" (tables of DGX-2 and HGX-2, of DGX A100 and HGX A100,
of DGX H100 and HGX H100), https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/. The tables use GPU
physical ids (on Hopper the "GPU Module ID" of ``nvidia-smi -q``), which the baseboard sets by GPIOs and /sys does not
show. Without ``module_ids`` in ``recognise`` this module assumes PCI address order, which is known to be wrong on some
servers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError

NVIDIA = 0x10DE


@dataclass(frozen=True)
class Board:
    """A type of board. ``gpu_counts`` are the possible numbers of GPUs; ``partitions`` maps ids to GPU physical ids."""

    name: str
    gpu_devices: frozenset[int]  # PCI device ids, vendor NVIDIA
    nvswitch_device: int
    gpu_counts: tuple[int, ...]
    partitions: dict[int, tuple[int, ...]]


def _ids(*ranges: tuple[int, int]) -> tuple[int, ...]:
    return tuple(number for first, last in ranges for number in range(first, last + 1))


def _singles(first_partition: int, gpus: int) -> dict[int, tuple[int, ...]]:
    return {first_partition + number: (number + 1,) for number in range(gpus)}


# PCI device ids: the PCI ID database (pci-ids.ucw.cz); 2329 and 2335 from the supported products of
# NVIDIA/open-gpu-kernel-modules, README.md.
BOARDS = (
    Board(
        name="DGX-2 or HGX-2",
        gpu_devices=frozenset({0x1DB8}),  # V100 SXM3 32GB
        nvswitch_device=0x1AC2,
        gpu_counts=(16,),
        partitions={
            0: _ids((1, 16)),
            1: _ids((1, 8)),
            2: _ids((9, 16)),
            3: (1, 4, 6, 7, 9, 12, 14, 15),
            4: (2, 3, 5, 8, 10, 11, 13, 16),
            5: (1, 4, 6, 7),
            6: (2, 3, 5, 8),
            7: (9, 12, 14, 15),
            8: (10, 11, 13, 16),
            9: (1, 4),
            10: (2, 3),
            11: (5, 8),
            12: (6, 7),
            13: (9, 12),
            14: (10, 11),
            15: (13, 16),
            16: (14, 15),
            **_singles(17, 16),
        },
    ),
    # One baseboard (8 GPUs) or two (16). A single one that is strapped as the top tray has the ids 9 to 16.
    Board(
        name="HGX A100",
        gpu_devices=frozenset({0x20B0, 0x20B2, 0x20F3}),  # A100 SXM4 40GB, 80GB, A800 SXM4 80GB
        nvswitch_device=0x1AF1,
        gpu_counts=(8, 16),
        partitions={
            0: _ids((1, 16)),
            1: _ids((1, 8)),
            2: _ids((9, 16)),
            3: _ids((1, 4), (9, 12)),
            4: _ids((5, 8), (13, 16)),
            5: _ids((1, 4), (13, 16)),
            6: _ids((5, 8), (9, 12)),
            7: _ids((1, 4)),
            8: _ids((5, 8)),
            9: _ids((9, 12)),
            10: _ids((13, 16)),
            **{11 + pair: (2 * pair + 1, 2 * pair + 2) for pair in range(8)},
            **_singles(19, 16),
        },
    ),
    # H200, H800 and H20 have the partitions of H100 (note in the same chapter).
    Board(
        name="HGX H100 or H200",
        gpu_devices=frozenset({0x2330, 0x2324, 0x2329, 0x2335}),  # H100 SXM5 80GB, H800, H20, H200 SXM
        nvswitch_device=0x22A3,
        gpu_counts=(8,),
        partitions={
            0: _ids((1, 8)),
            1: _ids((1, 4)),
            2: _ids((5, 8)),
            3: (1, 3),
            4: (2, 4),
            5: (5, 7),
            6: (6, 8),
            **_singles(7, 8),
        },
    ),
)


@dataclass(frozen=True)
class Partition:
    """A partition. ``id`` is Fabric Manager's (None: the physical ids are unknown); ``members``: PCI addresses."""

    id: int | None
    members: frozenset[str]


@dataclass
class Fabric:
    """The board of one host. ``physical_ids``, by PCI address, is empty if a GPU is missing and no ids were given."""

    board: Board
    gpus: list[str]
    nvswitches: list[Function]
    physical_ids: dict[str, int]
    assumed: bool  # the physical ids are assumed to be in PCI address order
    partitions: list[Partition] = field(default_factory=list)

    @property
    def sizes(self) -> list[int]:
        """Return the numbers of GPUs that a partition can have, ascending."""
        return sorted({len(partition.members) for partition in self.partitions})

    def partition(self, gpus: set[str]) -> Partition | None:
        """Return the partition of exactly these GPUs, or None."""
        return next((item for item in self.partitions if item.members == gpus), None)


def recognise(host: Host, module_ids: dict[str, int] | None = None) -> Fabric | None:
    """Return the board of ``host``, recognised by its GPUs and NVSwitches, or None if it is unknown.

    ``module_ids`` maps the PCI address of each of its GPUs to the physical id. Raises DomainError if that does not
    fit the board.
    """
    for board in BOARDS:
        switches = [
            item
            for item in host.functions
            if item.kind == "nvswitch" and (item.vendor_id, item.device_id) == (NVIDIA, board.nvswitch_device)
        ]
        if not switches:
            continue
        gpus = sorted(
            item.address
            for item in host.functions
            if item.kind == "gpu" and item.vendor_id == NVIDIA and item.device_id in board.gpu_devices
        )
        if not gpus or len(gpus) > max(board.gpu_counts):
            continue
        if module_ids:
            _check(board, gpus, module_ids)
            ids = {address: module_ids[address] for address in gpus}
        else:
            complete = len(gpus) in board.gpu_counts
            ids = {address: number for number, address in enumerate(gpus, 1)} if complete else {}
        return Fabric(board, gpus, switches, ids, not module_ids and bool(ids), _partitions(board, gpus, ids))
    if module_ids:
        raise DomainError("gpu_module_ids is set, but this host has no known NVSwitch board", "leave it out")
    return None


def _check(board: Board, gpus: list[str], module_ids: dict[str, int]) -> None:
    wrong = sorted(set(gpus) ^ set(module_ids))
    if wrong:
        there = "is not a GPU of" if wrong[0] in module_ids else "is missing; it is a GPU of"
        raise DomainError(f"gpu_module_ids: {wrong[0]} {there} this host's {board.name}", "give the id of each GPU")
    known = {number for members in board.partitions.values() for number in members}
    for address in gpus:
        if module_ids[address] not in known:
            raise DomainError(
                f"gpu_module_ids: {module_ids[address]!r} of {address} is not a GPU physical id of {board.name}",
                f"valid ids are 1 to {max(known)} (nvidia-smi -q, GPU Module ID)",
            )
    if len(set(module_ids.values())) < len(module_ids):
        raise DomainError("gpu_module_ids: an id is listed twice", "each GPU has its own")


def _partitions(board: Board, gpus: list[str], ids: dict[str, int]) -> list[Partition]:
    """Return the partitions whose GPUs are all present, by id."""
    if not ids:
        return [Partition(None, frozenset({address})) for address in gpus]
    at = {number: address for address, number in ids.items()}
    return [
        Partition(number, frozenset(at[member] for member in members))
        for number, members in sorted(board.partitions.items())
        if all(member in at for member in members)
    ]


def note(fabric: Fabric, own: set[str]) -> str:
    """Return the note on what Fabric Manager must do for a virtual machine with these GPUs of the board."""
    partition = fabric.partition(own)
    names = ", ".join(sorted(own))
    if partition is None:
        return (
            f"its GPUs {names} are not a Fabric Manager partition of {fabric.board.name} (valid sizes: "
            f"{in_words(fabric.sizes)}): there is no NVLink between them"
        )
    if partition.id is None:
        return (
            f"{names} is on a {fabric.board.name} of which a GPU is missing: set gpu_module_ids to identify its "
            "Fabric Manager partition"
        )
    ids = ", ".join(str(number) for number in sorted(fabric.physical_ids[address] for address in own))
    text = (
        f"Fabric Manager in shared mode (FABRIC_MODE=1) must activate partition {partition.id} (GPU physical id "
        f"{ids}) before it starts; the {len(fabric.nvswitches)} NVSwitches of the {fabric.board.name} stay with the "
        "host or its service VM"
    )
    if fabric.assumed and len(own) < len(fabric.gpus):
        text += (
            "; physical ids are assumed to be in PCI address order: compare them with GPU Module ID of nvidia-smi -q, "
            "and set gpu_module_ids if they are not"
        )
    return text


def in_words(numbers: list[int]) -> str:
    """Return the numbers as text, such as "1, 2 or 4"."""
    words = [str(number) for number in numbers]
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
