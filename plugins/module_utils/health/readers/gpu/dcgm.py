# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read DCGM where it is installed: ``dcgmi health`` in each round, ``dcgmi diag`` (3 and 4) as a deep check.

DCGM says of a test that did not run "Skip" or "Not Run", or nothing at all: that is not measured. A failure of
configuration (severity 5: persistence mode off) is none of the GPU's test.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Measurement, Place, Reading, clean
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.address import gpus, pci_address
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.gpu import jobs
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.gpu import DIAGNOSTICS

READER, DEEP_READER = "dcgm", "dcgm_diag"
PROGRAM = "/usr/bin/dcgmi"
HEALTH_SOURCE, NO_WATCHES = "dcgmi health -g 0 -c -j", "Health watches not enabled"
TIMEOUT_S = 20.0
# Level 3 takes 15 minutes and more on a node of eight GPUs (NVIDIA's documentation says 30 at most).
DEEP_TIMEOUT_S = 2400.0
LEVEL = 3
# What level 3 must have a result of, for each GPU.
REQUIRED = ("software", "memory", "pcie", "diagnostic", "targeted_stress", "targeted_power")
MONITOR, CONFIGURATION, RESET = 1, 5, 6  # severities of an error
NAMES = {"gpu_memory": "memory", "eud_test": "eud", "pulse": "pulse_test", "deployment": "software"}
# Tests of DCGM 3 that say something of the GPU, not of how the node is set up.
GPU_DEPLOYMENT = ("Page Retirement/Row Remap", "Inforom")
# From here on NVML's and DCGM's 64-bit numbers are no values (dcgm_fields.h).
BLANK = 0x7FFFFFFFFFFFFFF0
_ENTRY = re.compile(r"\|\s*(\d{1,3})\s*\|[^\n]*(?:\n\|\s*\|[^\n]*){0,2}?PCI Bus ID:\s*([0-9A-Fa-f:.]+)")


def read(node: Node) -> Reading:
    """Ask what DCGM's watches have seen."""
    if not gpus(node.expected) or not os.path.exists(node.path(PROGRAM)):
        return Reading(READER)
    addresses = entities(node.run(("dcgmi", "discovery", "-l"), TIMEOUT_S).stdout)
    ran = node.run(("dcgmi", "health", "-g", "0", "-c", "-j"), TIMEOUT_S)
    return Reading(READER, parse_health(ran.stdout or ran.stderr, addresses))


def read_diagnostic(node: Node) -> Reading:
    """Run DCGM's diagnostic, which needs the GPUs for itself: only on a drained node."""
    if not gpus(node.expected) or not os.path.exists(node.path(PROGRAM)):
        return Reading(DEEP_READER)
    ran = jobs.alone(node, ("dcgmi", "diag", "-r", str(LEVEL), "-j"), DEEP_TIMEOUT_S)
    addresses = entities(node.run(("dcgmi", "discovery", "-l"), TIMEOUT_S).stdout)
    return Reading(DEEP_READER, parse_diagnostic(ran.stdout or ran.stderr, addresses))


def entities(text: str) -> dict[int, str]:
    """Return the address of each GPU by DCGM's number, from ``dcgmi discovery -l``."""
    addresses = {int(number): pci_address(address) for number, address in _ENTRY.findall(text)}
    result = {number: address for number, address in addresses.items() if address}
    if not result:
        raise NotMeasuredError(f"dcgmi discovery lists no GPU: {clean(text):.200}")
    return result


def _document(text: str) -> dict[str, Any]:
    """Return the JSON object that follows other text."""
    start = text.find("{")
    if start < 0:
        raise NotMeasuredError(f"dcgmi printed no JSON but: {clean(text) or 'nothing':.200}")
    try:
        document = json.JSONDecoder().raw_decode(text, start)[0]
    except (ValueError, RecursionError) as error:
        raise NotMeasuredError(f"dcgmi's JSON cannot be read: {clean(str(error)):.200}") from error
    return _dict(document)


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def parse_health(text: str, addresses: dict[int, str]) -> tuple[Measurement, ...]:
    """Return what DCGM's watches say of each GPU. Raises NotMeasuredError.

    Watches that nobody enabled are only noted: without them DCGM watches nothing, as after its installation.
    """
    if NO_WATCHES in text:
        reason = "DCGM's watches are not enabled: dcgmi health -g 0 -s a"
        return (Measurement("dcgm_health", Place("node"), None, HEALTH_SOURCE, reason, is_occasional=True),)
    body = _dict(_document(text).get("body"))
    overall = _dict(body.get("Overall Health")).get("value")
    if overall not in ("Healthy", "Warning", "Failure"):
        raise NotMeasuredError(f"dcgmi health has no overall health: {clean(str(overall)):.100}")
    seen: dict[Place, list[tuple[str, str]]] = {Place("gpu", address): [] for address in addresses.values()}
    for group, entry in body.items():
        for number, entity in _dict(_dict(entry).get("children")).items():
            systems = _dict(_dict(_dict(_dict(entity).get("children")).get("Errors")).get("children"))
            for system, error in systems.items():
                message = " ".join(str(entity) for entity in _list(_dict(error).get("overflow")))
                place = _place(number, addresses) if group == "GPU" else Place("node")
                seen.setdefault(place, []).append((str(_dict(error).get("value")), f"{system}: {message}"))
    if overall != "Healthy" and not any(seen.values()):
        seen[Place("node")] = [(overall, "DCGM names no part")]
    measurements = []
    for place, errors in seen.items():
        for check, word in (("dcgm_health", "Failure"), ("dcgm_health_warning", "Warning")):
            message = "; ".join(text for value, text in errors if value == word)
            # A new word counts as a failure: it is not Healthy.
            message = message or "; ".join(
                text for value, text in errors if word == "Failure" and value not in ("Warning", "Healthy")
            )
            measurements.append(Measurement(check, place, message or "Healthy", HEALTH_SOURCE))
    return tuple(measurements)


def _place(number: object, addresses: dict[int, str]) -> Place:
    text = str(number)
    address = addresses.get(int(text)) if text.isdecimal() and len(text) < 4 else None
    return Place("gpu", address or f"DCGM {clean(text):.20}")


@dataclass
class _Outcome:
    """The results of one test on one place."""

    statuses: list[str] = field(default_factory=list)  # "pass", "fail", "warn", "skip", "not run"
    failures: list[tuple[int, str]] = field(default_factory=list)  # severity, text
    remarks: list[str] = field(default_factory=list)  # why it did not run


def parse_diagnostic(text: str, addresses: dict[int, str]) -> tuple[Measurement, ...]:
    """Return the measurements of a diagnostic of DCGM 3 or 4. Raises NotMeasuredError if it did not run."""
    document = _document(text)
    report = _dict(document.get("DCGM Diagnostic") or document.get("DCGM GPU Diagnostic"))
    if report.get("runtime_error"):
        raise NotMeasuredError(f"dcgmi diag did not run: {clean(str(report['runtime_error'])):.200}")
    outcomes: dict[Place, dict[str, _Outcome]] = {Place("gpu", address): {} for address in addresses.values()}
    blank = False
    for test in _tests(report):
        blank = _add(test, addresses, outcomes) or blank
    if not blank and not any(outcomes.values()):
        raise NotMeasuredError("dcgmi diag has no result")
    return tuple(
        measurement for place, tests in sorted(outcomes.items()) for measurement in _measurements(place, tests)
    )


def _tests(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for part in (report, *_list(report.get("iterations"))):
        for category in _list(_dict(part).get("test_categories")):
            for test in _list(_dict(category).get("tests")):
                if isinstance(test, dict) and isinstance(test.get("name"), str):
                    name = test["name"]
                    key = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
                    is_deployment = _dict(category).get("category") == "Deployment"
                    key = "software" if is_deployment else NAMES.get(key, key)
                    yield {**test, "key": key if key in DIAGNOSTICS else "other", "is_deployment": is_deployment}


def _add(test: dict[str, Any], addresses: dict[int, str], outcomes: dict[Place, dict[str, _Outcome]]) -> bool:
    """Add a test's results by place; True if it has any."""
    key, results = test["key"], [result for result in _list(test.get("results")) if isinstance(result, dict)]
    remarks = [*_texts(_dict(test.get("test_summary")).get("info"))]
    for result in results:
        status = str(result.get("status", "")).lower()
        for place in _places(result, addresses):
            # That a test without any GPU passed says nothing of a GPU.
            if place.kind == "node" and status not in ("fail", "warn"):
                continue
            outcome = outcomes.setdefault(place, {}).setdefault(key, _Outcome())
            outcome.statuses.append(status)
            outcome.remarks += [*_texts(result.get("info")), *remarks]
            if status in ("fail", "warn"):
                failures = _failures(test, result, status)
                outcome.failures += [(severity, text) for severity, text in failures if severity]
                outcome.remarks += [text for severity, text in failures if not severity]
            else:
                outcome.remarks += [text for _severity, text in _warnings(result)]
    return bool(results)


def _places(result: dict[str, Any], addresses: dict[int, str]) -> list[Place]:
    ids = result.get("gpu_ids", result.get("gpu_id"))
    if "entity_group_id" in result or "entity_group" in result:
        is_gpu = result.get("entity_group_id") == 1 or result.get("entity_group") == "GPU"
        ids = result.get("entity_id") if is_gpu else None
    if ids is None:
        return [Place("node")]
    return [_place(identifier.strip(), addresses) for identifier in str(ids).split(",") if identifier.strip()]


def _failures(test: dict[str, Any], result: dict[str, Any], status: str) -> list[tuple[int, str]]:
    """Return severity and text of each warning of a result: 0 if it only warns, which is no verdict on the GPU."""
    name = test["name"]
    unknown = 3
    if test["is_deployment"] and name != "software" and name not in GPU_DEPLOYMENT:
        unknown = CONFIGURATION
    elif status == "warn":
        unknown = 0
    failures = [(severity or unknown, f"{name}: {text}") for severity, text in _warnings(result)]
    return failures or [(unknown, f"{name}: {status}")]


def _warnings(result: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Return severity, 0 if it has none, and text of each warning: an object, or a text in early versions."""
    warnings = result.get("warnings")
    for warning in warnings if isinstance(warnings, list) else [warnings] if warnings else []:
        severity = _dict(warning).get("error_severity")
        text = _dict(warning).get("warning", warning if isinstance(warning, str) else "")
        yield (severity if isinstance(severity, int) and 0 < severity < 7 else 0), str(text)


def _texts(value: object) -> Iterable[str]:
    return [str(item) for item in (value if isinstance(value, list) else [value] if value else [])]


def _measurements(place: Place, tests: dict[str, _Outcome]) -> Iterator[Measurement]:
    """Return a place's measurement of each test, and one of each kind of failure that is not the GPU's own."""
    source = f"dcgmi diag -r {LEVEL} -j"
    kinds: dict[int, list[str]] = {MONITOR: [], CONFIGURATION: [], RESET: []}
    passed = []
    for key in sorted({*tests, *REQUIRED}) if place.kind == "gpu" else sorted(tests):
        outcome = tests.get(key, _Outcome(remarks=["no result"]))
        for severity, text in outcome.failures:
            kinds.get(severity, []).append(text)
        hardware = [text for severity, text in outcome.failures if severity not in kinds]
        if hardware:
            yield Measurement(f"dcgm_diag_{key}", place, f"Fail: {'; '.join(hardware)}", source)
        elif outcome.statuses and set(outcome.statuses) == {"pass"}:
            passed.append(key)
            yield Measurement(f"dcgm_diag_{key}", place, "Pass", source, _blanks(outcome.remarks))
        elif place.kind == "gpu":
            texts = [text for _severity, text in outcome.failures] or outcome.remarks
            reason = "; ".join([*texts, _blanks(outcome.remarks)] if outcome.failures else texts)
            message = clean(reason.strip("; ")) or ", ".join(sorted(set(outcome.statuses)))
            yield Measurement(f"dcgm_diag_{key}", place, None, source, message)
    names = {MONITOR: "monitor", CONFIGURATION: "configuration", RESET: "reset"}
    for severity, texts in kinds.items():
        # The software test is the one that looks for pending resets and for the node's configuration.
        if texts or "software" in passed:
            value = "; ".join(texts) or "Pass"
            yield Measurement(f"dcgm_diag_{names[severity]}", place, value, source)


def _blanks(remarks: Iterable[str]) -> str:
    """Return the remarks on values that DCGM could not read."""
    return "; ".join(
        text for text in remarks if any(int(number) >= BLANK for number in re.findall(r"\b\d{19}\b", text))
    )
