# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Disks: the health log of NVMe controllers by nvme-cli or smartctl, and SATA disks by smartctl.

nvme-cli writes critical_warning as a number or, from 2.11 with -v, as an object; temperatures are not compared, because
only the disk knows its limit, which sets a bit of critical_warning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Measurement, Place, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.files import at_once, optional
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError

CONTROLLERS, BLOCKS = "/sys/class/nvme", "/sys/block"
ANSWER_S = 10.0
CONTROLLER = re.compile(r"nvme[0-9]{1,4}")
SCSI_DISK = re.compile(r"sd[a-z]{1,4}")
# NVM Express Base Specification, SMART / Health Information log: the bits of critical_warning.
SPARE, TEMPERATURE = 0x01, 0x02
FAILED = {
    0x04: "reliability degraded",
    0x08: "read-only",
    0x10: "backup of its volatile memory failed",
    0x20: "persistent memory region unreliable",
}
# Names of one value in nvme-cli's and in smartctl's JSON.
SPARE_LEFT = ("avail_spare", "available_spare")
SPARE_LIMIT = ("spare_thresh", "available_spare_threshold")
USED = ("percent_used", "percentage_used")
MEDIA = ("media_errors",)


def read(node: Node) -> Reading:
    """Measure each local disk. Volumes of RAID controllers and removable disks have no health log."""
    disks: list[Place] = []
    for name in node.names(CONTROLLERS):
        # Controllers behind a network are the storage server's.
        if CONTROLLER.fullmatch(name) and optional(node, f"{CONTROLLERS}/{name}/transport") in ("pcie", ""):
            disks.append(Place("nvme", name))
    for name in node.names(BLOCKS):
        is_sata = optional(node, f"{BLOCKS}/{name}/device/vendor") == "ATA"
        if SCSI_DISK.fullmatch(name) and is_sata and optional(node, f"{BLOCKS}/{name}/removable") != "1":
            disks.append(Place("disk", name))
    ask = {"nvme": _controller, "disk": _disk}
    answers = at_once(lambda place: ask[place.kind](node, place), disks)
    return Reading("nvme", tuple(measurement for answer in answers for measurement in answer))


def _controller(node: Node, place: Place) -> list[Measurement]:
    try:
        ran = node.run(["nvme", "smart-log", f"/dev/{place.name}", "-o", "json"], ANSWER_S)
        if ran.rc:
            raise NotMeasuredError(f"nvme ended with {ran.rc}: {ran.stderr.strip():.200}")
        return list(parse_nvme(ran.stdout, place, "nvme smart-log"))
    except NotMeasuredError as error:
        try:
            return _smartctl(node, place)
        except NotMeasuredError as second:
            return [Measurement("disk_failed", place, None, "nvme smart-log", f"{error.cause}; {second.cause}")]


def _disk(node: Node, place: Place) -> list[Measurement]:
    try:
        return _smartctl(node, place)
    except NotMeasuredError as error:
        return [Measurement("disk_failed", place, None, "smartctl", error.cause)]


def _smartctl(node: Node, place: Place) -> list[Measurement]:
    # A disk that sleeps is not woken.
    ran = node.run(["smartctl", "-j", "-a", "--nocheck=standby", f"/dev/{place.name}"], ANSWER_S)
    return list(parse_smartctl(ran.stdout, place))


def _object(text: str, program: str) -> dict[str, Any]:
    """Return a program's JSON object. Raises NotMeasuredError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotMeasuredError(f"{program} wrote no JSON") from error
    if not isinstance(value, dict):
        raise NotMeasuredError(f"{program} wrote no JSON object")
    return value


def parse_nvme(text: str, place: Place, source: str) -> Iterator[Measurement]:
    """Return the measurements of `nvme smart-log -o json`. Raises NotMeasuredError."""
    log = _object(text, source)
    warning = log.get("critical_warning")
    if isinstance(warning, dict):
        warning = warning.get("value")
    return _health(log, _natural(warning), None, place, source)


def parse_smartctl(text: str, place: Place) -> Iterator[Measurement]:
    """Return the measurements of `smartctl -j -a` of an NVMe or SATA disk. Raises NotMeasuredError."""
    answer = _object(text, "smartctl")
    status = _part(answer, "smartctl").get("exit_status")
    passed = _part(answer, "smart_status").get("passed")
    if not isinstance(passed, bool):
        raise NotMeasuredError(
            _message(answer) or f"smartctl ended with {status} and says nothing of the disk's health"
        )
    log = _part(answer, "nvme_smart_health_information_log")
    if log:
        return _health(log, _natural(log.get("critical_warning")), passed, place, "smartctl")
    return _ata(answer, passed, place)


def _message(answer: Mapping[str, Any]) -> str:
    messages = _part(answer, "smartctl").get("messages")
    texts = [_part({"": item}, "").get("string") for item in messages] if isinstance(messages, list) else []
    return "; ".join(str(text) for text in texts if text)


def _part(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _natural(value: object) -> int | None:
    """Return a count. Old versions of nvme-cli write large ones as text."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 40:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _value(log: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((_natural(log[name]) for name in names if name in log), None)


def _health(
    log: Mapping[str, Any], warning: int | None, passed: bool | None, place: Place, source: str
) -> Iterator[Measurement]:
    """Return the measurements of a controller's health log. Raises nothing for a value that is absent."""
    warnings = [text for bit, text in FAILED.items() if (warning or 0) & bit]
    if passed is False and not warning:
        warnings.append("the disk says that it has failed")
    is_failed = None if warning is None and not warnings else bool(warnings)
    reason = "no critical_warning in its log" if is_failed is None else ", ".join(warnings)
    yield Measurement("disk_failed", place, is_failed, f"{source}: critical_warning", reason)
    spare, limit, used = _value(log, SPARE_LEFT), _value(log, SPARE_LIMIT), _value(log, USED)
    if warning is not None:
        yield Measurement("disk_hot", place, bool(warning & TEMPERATURE), f"{source}: critical_warning")
        # Emulated disks answer 0 of 0.
        is_low = bool(warning & SPARE) or (spare is not None and limit is not None and spare < limit)
        text = f"{spare} % left, threshold {limit} %"
        yield Measurement("disk_spare_low", place, is_low, f"{source}: available spare", text)
    yield Measurement(
        "disk_used", place, used, f"{source}: percentage used", "" if used is not None else "not in its log"
    )
    errors = _value(log, MEDIA)
    reason = "" if errors is not None else "not in its log"
    yield Measurement("disk_media_errors", place, errors, f"{source}: media_errors", reason, is_counter=True)


def _ata(answer: Mapping[str, Any], passed: bool, place: Place) -> Iterator[Measurement]:
    yield Measurement("disk_failed", place, not passed, "smartctl: smart_status", "" if passed else "the disk says so")
    logs = _part(answer, "ata_smart_error_log")
    counts = [_natural(_part(logs, name).get("count")) for name in ("summary", "extended")]
    numbers = [count for count in counts if count is not None]
    if numbers:
        yield Measurement("disk_error_log", place, max(numbers), "smartctl: ata_smart_error_log")
