# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read what ``gdscheck -p`` printed, and compare it with the plan. Pure.

Up to GDS 1.15 a line of the driver configuration says "Supported", with a line of its own for P2PDMA ("NVMe P2PDMA");
from 1.16 on it lists modes ("NVMe : p2pdma, nvfs, compat"; GDS Release Notes 1.16). gdscheck tells which mode the
library would choose, and moves no data: only a run of gdsio with allow_compat_mode false shows that data goes that way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.acceptance.run import MEASURED
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage import cufile, modes
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare, not_applicable

LAYER, SOURCE = "gpudirect storage", "gdscheck -p"
TOKENS = {modes.P2PDMA: "p2pdma", modes.NVIDIA_FS: "nvfs"}
# gdscheck's names of settings, where they differ from the path in cufile.json.
SHOWN = {
    "properties.allow_compat_mode": "properties.use_compat_mode",
    "properties.io_batchsize": "properties.max_batch_io_size",
}
SECTION = re.compile(r"([A-Z ]+):")
LINE = re.compile(r"([A-Za-z][\w .-]*?)\s*:\s*(.*)")
GPU = re.compile(r"GPU index (\d+) (.*)")
ACS = re.compile(r"Found ACS enabled for switch ([0-9a-fA-F:.]+)")


@dataclass(frozen=True)
class GdsCheck:
    """The output. ``drivers`` has the modes by driver as gdscheck names it ("NVMe"); ``settings`` are texts by path."""

    release: str | None = None
    drivers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    gpus: dict[int, bool] = field(default_factory=dict)
    iommu: str | None = None
    acs_ports: tuple[str, ...] = ()


def parse(text: str) -> GdsCheck:
    """Return the output as data. What is not in the text is not in the result, and so not known."""
    section = ""
    drivers: dict[str, tuple[str, ...]] = {}
    printed: dict[str, str] = {}
    gpus: dict[int, bool] = {}
    iommu = release = None
    for line in map(str.strip, text.splitlines()):
        title, gpu, pair = SECTION.fullmatch(line), GPU.match(line), LINE.fullmatch(line)
        if title:
            section = title[1]
        elif gpu:
            gpus[int(gpu[1])] = "supports GDS" in gpu[2]
        elif pair and pair[1] == "GDS release version":
            release = pair[2]
        elif pair and section == "DRIVER CONFIGURATION":
            drivers[pair[1]] = tuple(part.strip() for part in pair[2].split(","))
        elif pair and section == "CUFILE CONFIGURATION":
            printed[pair[1]] = pair[2].strip()
        elif pair and section == "PLATFORM INFO" and pair[1] == "IOMMU":
            iommu = pair[2]
    return GdsCheck(release, _unified(drivers), printed, gpus, iommu, tuple(sorted(set(ACS.findall(text)))))


def _unified(drivers: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the drivers' modes in the newer form: "Supported" is nvfs, "NVMe P2PDMA" is a mode of NVMe."""
    modes_by_driver = {}
    for name, tokens in drivers.items():
        older: dict[tuple[str, ...], tuple[str, ...]] = {("Supported",): ("nvfs",), ("Unsupported",): ()}
        modes_by_driver[name] = older.get(tokens, tokens)
    if modes_by_driver.pop("NVMe P2PDMA", ()):
        modes_by_driver["NVMe"] = ("p2pdma", *modes_by_driver.get("NVMe", ()))
    return modes_by_driver


def claims(run: Mapping[str, Any], mode: str, settings: Mapping[str, Any], gpus: int) -> list[Claim]:
    """Return the claims about a run of gdscheck (``run.Done.to_dict``) on a node with ``gpus`` GPUs.

    ``mode`` is P2PDMA or NVIDIA_FS, ``settings`` those of ``cufile.settings``.
    """
    driver = f"cuFile uses {TOKENS[mode]} for NVMe drives"
    if run.get("status") != MEASURED:
        reason = f"not measured: {run.get('reason') or 'gdscheck did not run'}"
        return [not_applicable(LAYER, driver, TOKENS[mode], SOURCE, reason)]
    seen = parse(run["output"])
    tokens = seen.drivers.get("NVMe")
    first = tokens[0] if tokens else None if tokens is None else "no direct mode"
    judged = [
        Claim(
            LAYER,
            driver,
            TOKENS[mode],
            first,
            first == TOKENS[mode],
            SOURCE,
            "" if first == TOKENS[mode] else "gpu_storage_info shows why a mode is not possible",
        ),
        compare(LAYER, "all GPUs support GPUDirect Storage", [True] * gpus, list(seen.gpus.values()) or None, SOURCE),
        compare(LAYER, "no switch has ACS on", [], list(seen.acs_ports) if seen.iommu else None, SOURCE),
    ]
    for path, wanted in sorted(settings.items()):
        name = SHOWN.get(path, path)
        claim = f"{path} is in force"
        if wanted == cufile.RAILS or (name not in seen.settings and seen.settings):
            judged.append(not_applicable(LAYER, claim, wanted, SOURCE, "gdscheck does not print it"))
        else:
            judged.append(compare(LAYER, claim, wanted, _read(seen.settings.get(name), wanted), SOURCE))
    return judged


def _read(text: str | None, wanted: Any) -> Any:
    """Return a printed setting in the form of ``wanted``, as text where it has another form; None if there is none."""
    if text is None:
        return None
    if isinstance(wanted, bool):
        return {"true": True, "1": True, "false": False, "0": False}.get(text, text)
    if isinstance(wanted, list):
        return [_read(part, wanted[0] if wanted else "") for part in text.split()]
    return int(text) if isinstance(wanted, int) and text.isdecimal() else text
