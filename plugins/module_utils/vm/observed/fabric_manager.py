# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The Fabric Manager that runs on the host and shares its NVSwitches: its version, its partitions.

``fmpm -l`` prints the partitions as JSON (NVIDIA/Fabric-Manager-Client, fmpm.cpp). Neither program was ever run here:
the formats are those of its source and of Ubicloud's recorded output.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

LIST = ("fmpm", "-l")
VERSION = ("nv-fabricmanager", "--version")
TIMEOUT_S = 30


@dataclass(frozen=True)
class PartitionState:
    """A partition as Fabric Manager lists it; ``gpus`` are physical ids, ascending."""

    active: bool
    gpus: tuple[int, ...]


@dataclass
class FabricManager:
    """``partitions`` by id, None if they could not be read, for ``cause``; ``version`` is None if it is not known."""

    version: str | None = None
    partitions: dict[int, PartitionState] | None = None
    cause: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form; ``of_dict`` is its inverse."""
        listed = {str(number): [item.active, list(item.gpus)] for number, item in (self.partitions or {}).items()}
        return {"version": self.version, "partitions": None if self.partitions is None else listed, "cause": self.cause}

    @classmethod
    def of_dict(cls, data: dict[str, Any]) -> FabricManager:
        """Read ``to_dict``'s data. Raises KeyError, TypeError or ValueError if it is another module's."""
        listed = data["partitions"]
        partitions = None
        if listed is not None:
            partitions = {int(number): PartitionState(active, tuple(gpus)) for number, (active, gpus) in listed.items()}
        return cls(data["version"], partitions, data["cause"])


def read(run: Callable[[Sequence[str]], str] | None = None) -> FabricManager:
    """Ask the host's Fabric Manager. ``run`` returns the output of a command, or raises OSError or ValueError."""
    run = run or _run
    manager = FabricManager()
    try:
        match = re.search(r"\d+(\.\d+)+", run(VERSION))
        manager.version = match[0] if match else None
    except (OSError, ValueError) as error:
        manager.cause = f"{VERSION[0]}: {error}"
    try:
        manager.partitions = _partitions(json.loads(run(LIST)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        manager.cause = f"{' '.join(LIST)}: {error}"
    return manager


def _partitions(data: Any) -> dict[int, PartitionState]:
    return {
        int(item["partitionId"]): PartitionState(
            bool(item["isActive"]), tuple(sorted(int(gpu["physicalId"]) for gpu in item["gpuInfo"]))
        )
        for item in data["partitionInfo"]
    }


def _run(argv: Sequence[str]) -> str:
    try:
        process = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"no answer within {TIMEOUT_S} s") from error
    if process.returncode:
        raise ValueError((process.stderr or process.stdout).strip()[:200] or f"exit status {process.returncode}")
    return process.stdout
