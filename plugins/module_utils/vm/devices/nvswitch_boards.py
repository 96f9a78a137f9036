# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""GPU baseboards with NVSwitches, and the partitions that Fabric Manager makes on them. Pure.

The GPUs of a virtual machine have NVLink between them only if a partition has exactly these GPUs. The partitions are
fixed: Fabric Manager has a table for each board, and so does this module.

Source: NVIDIA Fabric Manager User Guide, chapter "GPU Partitions" (tables of DGX-2 and HGX-2, of DGX A100 and HGX A100,
of DGX H100 and HGX H100), https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/; for B200 and B300
Ubicloud, "Virtualizing NVIDIA HGX B200 GPUs with Open Source", section "Predefined HGX B200 Partitions". The tables use
GPU physical ids (from Hopper on the "GPU Module ID" of ``nvidia-smi -q``), which the baseboard sets by GPIOs and /sys
does not show. Without ``module_ids`` in ``recognise`` this module assumes PCI address order, which is known to be
wrong on some servers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import (
    HGX_B200,
    HGX_B300,
    MANAGEMENT,
    NVIDIA,
    is_virtual,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError


@dataclass(frozen=True)
class Board:
    """A type of board. ``gpu_counts`` are the possible numbers of GPUs; ``partitions`` maps ids to GPU physical ids.

    ``nvswitch_device`` is None on NVLink 5 boards, whose NVSwitches are managed through ConnectX functions.
    """

    name: str
    gpu_devices: frozenset[int]  # PCI device ids, vendor NVIDIA
    nvswitch_device: int | None
    gpu_counts: tuple[int, ...]
    partitions: dict[int, tuple[int, ...]]
    switch_counts: tuple[int, ...] = ()  # the NVSwitches, by gpu_counts (same source); empty: not known

    def is_switch(self, function: Function) -> bool:
        """Return True for an NVSwitch of the board, or for a function that manages its NVSwitches."""
        if self.nvswitch_device is None:
            return function.kind == MANAGEMENT and not is_virtual(function)
        ids = (function.vendor_id, function.device_id)
        return function.kind == "nvswitch" and ids == (NVIDIA, self.nvswitch_device)

    @property
    def switches(self) -> str:
        """Return the name of what ``is_switch`` finds, for messages."""
        return "NVSwitches" if self.nvswitch_device else "functions that manage the NVSwitches"

    @property
    def managers(self) -> str:
        """Return the programs that run where the switches are, with their verb."""
        return "Fabric Manager runs" if self.nvswitch_device else "Fabric Manager and NVLSM run"


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
        switch_counts=(12,),
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
        switch_counts=(6, 12),
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
        switch_counts=(4,),
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
    *(
        Board(
            name=name,
            gpu_devices=devices,
            nvswitch_device=None,
            gpu_counts=(8,),
            partitions={
                1: _ids((1, 8)),
                2: _ids((1, 4)),
                3: _ids((5, 8)),
                4: (1, 2),
                5: (3, 4),
                6: (5, 6),
                7: (7, 8),
                **_singles(8, 8),
            },
        )
        for name, devices in (("HGX B200", HGX_B200), ("HGX B300", HGX_B300))
    ),
)


@dataclass(frozen=True)
class NvlinkPartition:
    """A partition. ``id`` is Fabric Manager's (None: the physical ids are unknown); ``members``: PCI addresses."""

    id: int | None
    members: frozenset[str]


@dataclass(frozen=True)
class SharedPartition:
    """The partition that a Fabric Manager outside of a virtual machine must have active for it.

    ``physical_ids`` are those of its GPUs, ascending. ``switches`` are the addresses of the NVSwitches, or of the
    functions that manage them, and ``driver`` is the one that Fabric Manager needs for them on the host.
    """

    partition: int
    physical_ids: tuple[int, ...]
    switches: tuple[str, ...]
    driver: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form; ``stored.build`` is its inverse."""
        return {**asdict(self), "physical_ids": list(self.physical_ids), "switches": list(self.switches)}


@dataclass
class NvlinkFabric:
    """The board of one host. ``physical_ids``, by PCI address, is empty if a GPU is missing and no ids were given."""

    board: Board
    gpus: list[str]
    nvswitches: list[Function]
    physical_ids: dict[str, int]
    assumed: bool  # the physical ids are assumed to be in PCI address order
    partitions: list[NvlinkPartition] = field(default_factory=list)

    @property
    def sizes(self) -> list[int]:
        """Return the numbers of GPUs that a partition can have, ascending."""
        return sorted({len(partition.members) for partition in self.partitions})

    @property
    def incomplete(self) -> str:
        """Return what the board lacks, such as "7 of 8 GPUs"; empty if nothing, as far as its type is known."""
        number = next(index for index, count in enumerate(self.board.gpu_counts) if count >= len(self.gpus))
        expected = {"GPUs": (len(self.gpus), self.board.gpu_counts[number])}
        if self.board.switch_counts:
            expected["NVSwitches"] = (len(self.nvswitches), self.board.switch_counts[number])
        return " and ".join(f"{seen} of {count} {label}" for label, (seen, count) in expected.items() if seen < count)

    def partition(self, gpus: set[str]) -> NvlinkPartition | None:
        """Return the partition of exactly these GPUs, or None."""
        return next((item for item in self.partitions if item.members == gpus), None)

    def shared(self, gpus: set[str]) -> SharedPartition | None:
        """Return what a virtual machine with these GPUs needs; None if they are no partition with a known id."""
        partition = self.partition(gpus)
        if partition is None or partition.id is None:
            return None
        ids = tuple(sorted(self.physical_ids[address] for address in gpus))
        switches = tuple(item.address for item in self.nvswitches)
        return SharedPartition(partition.id, ids, switches, "nvidia" if self.board.nvswitch_device else "mlx5_core")


def recognise(
    host: Host,
    module_ids: dict[str, int] | None = None,
    partitions: dict[int, tuple[int, ...]] | None = None,
) -> NvlinkFabric | None:
    """Return the board of ``host``, recognised by its GPUs and NVSwitches, or None if it is unknown.

    ``module_ids`` maps the PCI address of each of its GPUs to the physical id. ``partitions`` are those that its Fabric
    Manager lists, in place of the board's table. Raises DomainError if one of them does not fit the board.
    """
    for board in BOARDS:
        switches = [item for item in host.functions if board.is_switch(item)]
        if not switches and board.nvswitch_device:
            continue
        gpus = sorted(
            item.address
            for item in host.functions
            if item.kind == "gpu"
            and item.vendor_id == NVIDIA
            and item.device_id in board.gpu_devices
            and not is_virtual(item)
        )
        if not gpus or len(gpus) > max(board.gpu_counts):
            continue
        if partitions:
            board = _with(board, partitions)
        if module_ids:
            _check(board, gpus, module_ids)
            ids = {address: module_ids[address] for address in gpus}
        else:
            complete = len(gpus) in board.gpu_counts
            ids = {address: number for number, address in enumerate(gpus, 1)} if complete else {}
        return NvlinkFabric(board, gpus, switches, ids, not module_ids and bool(ids), _partitions(board, gpus, ids))
    for name, setting in (("gpu_module_ids", module_ids), ("gpu_partitions", partitions)):
        if setting:
            raise DomainError(f"{name} is set, but this host has no known NVSwitch board", "leave it out")
    return None


def _with(board: Board, partitions: dict[int, tuple[int, ...]]) -> Board:
    """Return the board with other partitions. Raises DomainError for a GPU that it does not have."""
    board_ids = {number for members in board.partitions.values() for number in members}
    for number, members in partitions.items():
        foreign = sorted(set(members) - board_ids)
        if foreign:
            raise DomainError(
                f"gpu_partitions: {foreign[0]} of partition {number} is not a GPU physical id of {board.name}",
                f"valid ids are 1 to {max(board_ids)}",
            )
    return replace(board, partitions=partitions)


def _check(board: Board, gpus: list[str], module_ids: dict[str, int]) -> None:
    wrong = sorted(set(gpus) ^ set(module_ids))
    if wrong:
        problem = "is not a GPU of" if wrong[0] in module_ids else "is missing; it is a GPU of"
        raise DomainError(f"gpu_module_ids: {wrong[0]} {problem} this host's {board.name}", "give the id of each GPU")
    board_ids = {number for members in board.partitions.values() for number in members}
    for address in gpus:
        if module_ids[address] not in board_ids:
            raise DomainError(
                f"gpu_module_ids: {module_ids[address]!r} of {address} is not a GPU physical id of {board.name}",
                f"valid ids are 1 to {max(board_ids)} (nvidia-smi -q, GPU Module ID)",
            )
    if len(set(module_ids.values())) < len(module_ids):
        raise DomainError("gpu_module_ids: an id is listed twice", "each GPU has its own")


def _partitions(board: Board, gpus: list[str], ids: dict[str, int]) -> list[NvlinkPartition]:
    """Return the partitions whose GPUs are all present, by id."""
    if not ids:
        return [NvlinkPartition(None, frozenset({address})) for address in gpus]
    address_of_id = {number: address for address, number in ids.items()}
    return [
        NvlinkPartition(number, frozenset(address_of_id[member] for member in members))
        for number, members in sorted(board.partitions.items())
        if all(member in address_of_id for member in members)
    ]


def note(fabric: NvlinkFabric, vm_gpus: set[str]) -> str:
    """Return the note on what Fabric Manager must do for a virtual machine with these GPUs of the board."""
    partition = fabric.partition(vm_gpus)
    names = ", ".join(sorted(vm_gpus))
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
    ids = ", ".join(str(number) for number in sorted(fabric.physical_ids[address] for address in vm_gpus))
    text = (
        f"Fabric Manager in shared mode (FABRIC_MODE=1) must activate partition {partition.id} (GPU physical id "
        f"{ids}) before it starts; the {len(fabric.nvswitches)} {fabric.board.switches} of the {fabric.board.name} "
        f"stay with the host or its service VM{'' if fabric.board.nvswitch_device else ', and so does NVLSM'}"
    )
    if fabric.assumed and len(vm_gpus) < len(fabric.gpus):
        text += (
            "; physical ids are assumed to be in PCI address order: compare them with GPU Module ID of nvidia-smi -q, "
            "and set gpu_module_ids if they are not"
        )
    return text


def in_words(numbers: list[int]) -> str:
    """Return the numbers as text, such as "1, 2 or 4"."""
    texts = [str(number) for number in numbers]
    return " or ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)
