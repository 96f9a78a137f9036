# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Deep checks with the tools of accept.yml that need one node only, where they are installed, by its own arguments.

While nvbandwidth copies, the links to the GPUs are awake, so that their speed counts, as it does not on an idle GPU.
Rails need a second node: accept.yml measures them.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator, Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.common import measuring_tools
from ansible_collections.sailloft.fleet.plugins.module_utils.common.measuring_tools import (
    ALL_REDUCE,
    BETWEEN_GPUS,
    FROM_GPU,
    TO_GPU,
    Copies,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    ExpectedDevice,
    Measurement,
    Place,
    Reading,
    clean,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.address import gpus
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.gpu import jobs
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host import pcie
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.files import optional
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.bandwidth import DEEP

NVBANDWIDTH = "nvbandwidth"
# The defaults of gpu_node_accept_paths, then those of all programs.
DIRECTORIES = ("/opt/nccl-tests/build", "/opt/nvbandwidth", "/usr/local/bin", "/usr/bin", "/bin")
COPIES = ("--json", "-t", TO_GPU, FROM_GPU, BETWEEN_GPUS)
COLLECTIVE = ("-b", "1G", "-e", "8G", "-f", "2", "-g")  # and the number of GPUs
TIMEOUT_S = 300.0
# Between two looks at the links. nvbandwidth copies 512 MiB several times to each GPU, for 0.1 s or more.
LOOK_S = 0.02


def read_copies(node: Node) -> Reading:
    """Copy between the host and each GPU, and between GPUs, and look at the links meanwhile."""
    program = _program(node, NVBANDWIDTH)
    if not gpus(node.expected) or not program:
        return Reading(NVBANDWIDTH)
    output, speeds = _watched(node, (program, *COPIES))
    try:
        report = measuring_tools.copies(output)
    except measuring_tools.UnreadableError as error:
        raise NotMeasuredError(f"{NVBANDWIDTH}: {error.cause}") from error
    if not report.copies:
        raise NotMeasuredError(f"{NVBANDWIDTH} made no copy: {', '.join(report.waived) or 'no test'}")
    return Reading(NVBANDWIDTH, (*_rates(node, report), *_between(node, report), *_speeds(node, report, speeds)))


def read_collective(node: Node) -> Reading:
    """Run NCCL's collective over the GPUs of the node, if it was accepted."""
    program = _program(node, ALL_REDUCE)
    if not gpus(node.expected) or not program or ALL_REDUCE not in node.expected.accepted:
        return Reading(ALL_REDUCE)
    output = _output(node, (program, *COLLECTIVE, str(len(gpus(node.expected)))))
    try:
        rate = measuring_tools.nccl_bus_gb_per_s(output)
    except measuring_tools.UnreadableError as error:
        raise NotMeasuredError(f"{ALL_REDUCE}: {error.cause}") from error
    return Reading(ALL_REDUCE, (Measurement(DEEP[ALL_REDUCE][0], Place("node"), rate, ALL_REDUCE),))


def _program(node: Node, name: str) -> str:
    paths = (f"{directory}/{name}" for directory in DIRECTORIES)
    return next((path for path in paths if os.path.isfile(node.path(path))), "")


def _output(node: Node, argv: tuple[str, ...]) -> str:
    ran = jobs.alone(node, argv, TIMEOUT_S)
    if ran.rc:
        raise NotMeasuredError(f"{argv[0]} ended with {ran.rc}: {clean((ran.stderr or ran.stdout)[-200:])}")
    return ran.stdout


def _rates(node: Node, report: Copies) -> Iterator[Measurement]:
    """Return the rate of each GPU's copies, none with the reason for one that was not copied to or from."""
    for test in (TO_GPU, FROM_GPU):
        rates = {
            report.gpus[copy.column]: copy.gb_per_s
            for copy in report.copies
            if copy.test == test and copy.column < len(report.gpus)
        }
        for address in sorted({*rates, *(gpu.address for gpu in gpus(node.expected))}):
            reason = "" if address in rates else _omitted(report, test)
            yield Measurement(
                DEEP[test][0], Place("gpu", address), rates.get(address), f"{NVBANDWIDTH}: {test}", reason
            )


def _between(node: Node, report: Copies) -> Iterator[Measurement]:
    """Return the rate of the slowest pair of GPUs, none with the reason if a pair of planned ones was not copied."""
    pairs = {
        (report.gpus[copy.row], report.gpus[copy.column]): copy.gb_per_s
        for copy in report.copies
        if copy.test == BETWEEN_GPUS and max(copy.row, copy.column) < len(report.gpus)
    }
    planned = sorted({gpu.address for gpu in gpus(node.expected)})
    missing = [pair for pair in itertools.permutations(planned, 2) if pair not in pairs]
    check, place = DEEP[BETWEEN_GPUS][0], Place("node")
    if missing:
        reason = f"{_omitted(report, BETWEEN_GPUS)} from {missing[0][1]} to {missing[0][0]}"
        yield Measurement(check, place, None, f"{NVBANDWIDTH}: {BETWEEN_GPUS}", reason)
    elif pairs:
        worst = min(pairs, key=lambda pair: pairs[pair])
        yield Measurement(check, place, pairs[worst], f"{NVBANDWIDTH}: {BETWEEN_GPUS}, {worst[0]} and {worst[1]}")


def _omitted(report: Copies, test: str) -> str:
    """Return why a copy of a test is missing."""
    return next((text for text in report.waived if text.startswith(f"{test} ")), "it made no copy")


def _watched(node: Node, argv: tuple[str, ...]) -> tuple[str, dict[str, float]]:
    """Run a program, and return its output and the highest speed of each link to a GPU meanwhile, in GT/s."""
    links = [device.address for device in _links(node)]
    speeds: dict[str, float] = {}
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_S):
            for address in links:
                speed = pcie.parse_speed(optional(node, f"{pcie.DEVICES}/{address}/current_link_speed"))
                if speed is not None:
                    speeds[address] = max(speed, speeds.get(address, 0.0))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        return _output(node, argv), speeds
    finally:
        ended.set()
        watcher.join(LOOK_S)


def _links(node: Node) -> list[ExpectedDevice]:
    planned = (device for device in node.expected.devices if device.link_speed_gt_s is not None)
    return [device for device in planned if pcie.gpus_of(node, device)]


def _speeds(node: Node, report: Copies, speeds: Mapping[str, float]) -> Iterator[Measurement]:
    """Return the speed of each link to a GPU that took part in the copies."""
    for device in _links(node):
        if set(pcie.gpus_of(node, device)) & set(report.gpus):
            speed = speeds.get(device.address)
            reason = "" if speed else "its speed was not seen while nvbandwidth copied"
            source = f"{pcie.DEVICES}/{device.address}/current_link_speed while {NVBANDWIDTH} copied"
            yield Measurement("pcie_speed", Place(device.kind, device.address), speed, source, reason)
