# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Nodes with GPUs for tests: what they are expected to have, their nvidia-smi, and the verdicts on what it says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.health.judge import RoundMemory, judge
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    FAIL,
    NOT_MEASURED,
    PASS,
    Expected,
    ExpectedDevice,
    Moment,
    Place,
    Reading,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError, Ran
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import rules_of

FIRST, SECOND = "0000:1a:00.0", "0000:1b:00.0"
LISTS = {"nvidia_smi": ("gpu",)}
# One GPU as driver 550 describes it, without what no reader needs; each field can be replaced by its path.
FIELDS = {
    "persistence_mode": "Enabled",
    "mig_mode/current_mig": "Disabled",
    "gpu_reset_status/reset_required": "No",
    "gpu_reset_status/drain_and_reset_recommended": "No",
    "pci/pci_gpu_link_info/pcie_gen/current_link_gen": "5",
    "pci/pci_gpu_link_info/link_widths/current_link_width": "16x",
    "pci/replay_counter": "0",
    "performance_state": "P0",
    "clocks_event_reasons/clocks_event_reason_gpu_idle": "Not Active",
    "clocks_event_reasons/clocks_event_reason_sw_power_cap": "Not Active",
    "clocks_event_reasons/clocks_event_reason_hw_slowdown": "Not Active",
    "clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown": "Not Active",
    "clocks_event_reasons/clocks_event_reason_hw_power_brake_slowdown": "Not Active",
    "utilization/gpu_util": "98 %",
    "ecc_mode/current_ecc": "Enabled",
    "ecc_mode/pending_ecc": "Enabled",
    "ecc_errors/volatile/sram_uncorrectable_parity": "0",
    "ecc_errors/volatile/sram_uncorrectable_secded": "0",
    "ecc_errors/volatile/dram_uncorrectable": "0",
    "ecc_errors/aggregate/sram_uncorrectable_parity": "0",
    "ecc_errors/aggregate/sram_uncorrectable_secded": "0",
    "ecc_errors/aggregate/dram_uncorrectable": "0",
    "ecc_errors/aggregate/sram_threshold_exceeded": "No",
    "retired_pages/pending_blacklist": "N/A",
    "retired_pages/pending_retirement": "N/A",
    "remapped_rows/remapped_row_pending": "No",
    "remapped_rows/remapped_row_failure": "No",
    "temperature/gpu_temp": "64 C",
    "temperature/memory_temp": "74 C",
    "gpu_power_readings/instant_power_draw": "651.00 W",
    "clocks/sm_clock": "1965 MHz",
    "clocks/mem_clock": "1593 MHz",
    "fabric/state": "Completed",
    "fabric/status": "Success",
    "fabric/health/bandwidth": "Full",
}


def expected(*addresses: str, **terms: object) -> Expected:
    """Return what a node with these GPUs must have: each on 16 lanes at 32 GT/s with 18 NVLinks."""
    devices = tuple(
        ExpectedDevice(each, "gpu", f"GPU {number}", "10de:2330", 32.0, 16, nvlinks=18)
        for number, each in enumerate(addresses or (FIRST,))
    )
    settings = {"persistence_mode": "Enabled", "ecc_mode": "Enabled"}
    return Expected("gpu-001", **{"devices": devices, "gpu_settings": settings, **terms})  # type: ignore[arg-type]


def report(*gpus: str, dtd: str = "v12") -> str:
    """Return the XML of nvidia-smi with these GPUs."""
    inner = "\n".join(gpus)
    return (
        f'<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_{dtd}.dtd">\n<nvidia_smi_log>\n'
        f"<attached_gpus>{len(gpus)}</attached_gpus>\n{inner}\n</nvidia_smi_log>\n"
    )


def gpu(address: str = FIRST, without: Iterable[str] = (), **changed: str) -> str:
    """Return one GPU's XML. ``changed``: fields by the last part of their path; ``without``: absent ones."""
    fields = {path: changed.pop(path.rpartition("/")[2], value) for path, value in FIELDS.items()}
    fields = {path: value for path, value in fields.items() if not path.startswith(tuple(without) or ("-",))}
    fields.update({path.replace("__", "/"): value for path, value in changed.items()})
    tree: dict = {}
    for path, value in fields.items():
        *parents, name = path.split("/")
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
        branch[name] = value
    return f'<gpu id="0000{address.upper()}">{_xml(tree)}</gpu>'


def _xml(tree: dict) -> str:
    return "".join(
        f"<{name}>{_xml(value) if isinstance(value, dict) else value}</{name}>" for name, value in tree.items()
    )


def node(tmp_path: Path, answers: dict[str, Ran | str], plan: Expected | None = None, **terms: object) -> Node:
    """Return a node whose programs give these answers, by their command line; a text is an answer with status 0."""

    def run(argv: Sequence[str], timeout_s: float, *more: object) -> Ran:
        answer = answers.get(" ".join(argv))
        if answer is None:
            raise NotMeasuredError(f"{argv[0]}: no such program")
        return Ran(0, answer, "") if isinstance(answer, str) else answer

    return Node(plan or expected(), str(tmp_path), run=run, **terms)  # type: ignore[arg-type]


def write(root: Path, path: str, text: str | bytes) -> None:
    """Write a file of the node below its root."""
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())


class Verdicts:
    """The verdicts on a reading, after an earlier one of the same node if there is one."""

    def __init__(self, reading: Reading, plan: Expected | None = None, earlier: Reading | None = None) -> None:
        plan = plan or expected()
        rules, memory = rules_of(plan), RoundMemory()
        for at, each in ((0.0, earlier), (3600.0, reading)):
            if each:
                judged = judge([each], rules, plan, memory, Moment(at, "boot", at), LISTS)
                memory = judged.memory
        self.results = {(each.check, each.place): each for each in judged.results}
        self.events = judged.events

    def faults(self) -> set[tuple[str, str]]:
        """Return check and place of what failed or happened."""
        failed = {(check, str(place)) for (check, place), each in self.results.items() if each.verdict == FAIL}
        return failed | {(event.check, str(event.place)) for event in self.events}

    def _with(self, verdict: str, address: str) -> set[str]:
        place = Place("gpu", address)
        return {check for (check, at), each in self.results.items() if at == place and each.verdict == verdict}

    def passed(self, address: str = FIRST) -> set[str]:
        """Return the checks that a GPU passed."""
        return self._with(PASS, address)

    def unmeasured(self, address: str = FIRST) -> set[str]:
        """Return the checks of a GPU that were not measured."""
        return self._with(NOT_MEASURED, address)
