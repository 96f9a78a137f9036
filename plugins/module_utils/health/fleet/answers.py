# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node answers about its health: the part of its state that the fleet's table needs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError

FORMAT = "sailloft-health-answer/1"


@dataclass(frozen=True)
class Complaint:
    """A fault of a node, as the fleet's table shows it."""

    check: str
    kind: str  # of the place: "gpu"
    place: str  # "0000:4b:00.0"
    title: str
    layer: str
    action: str
    runbook: str
    part: str = ""  # "GPU 4, slot 7, serial number: label on the tray"
    seen: str = ""
    expected: str = ""
    since_unix_s: float = 0.0


@dataclass(frozen=True)
class Answer:
    """A node's answer. ``error``: why its health is not known; then nothing else is of use."""

    age_s: float | None = None  # how long ago the last round ended
    error: str = ""
    like: str = ""  # equal on nodes whose values can be compared: what they must have
    faults: tuple[Complaint, ...] = ()
    unmeasured: int = 0  # checks that were not measured in the last round
    drain: str = ""  # a person's reason
    maintenance: str = ""  # a person's reason
    names: dict[str, str] = field(default_factory=dict)  # of places: {"gpu 0000:4b:00.0": "GPU 4"}
    values: dict[str, dict[str, float]] = field(default_factory=dict)  # by check and place


def read(result: Any) -> Answer:
    """Return the answer in a module's result. What is not an answer is one with the reason: never a healthy node."""
    if not isinstance(result, Mapping):
        return Answer(error="it was not asked")
    if "health" not in result:
        text = " ".join(str(result.get("msg") or "its answer has no health").split())
        return Answer(error=f"no answer: {text}" if result.get("unreachable") else text)
    try:
        answer: Answer = stored.load(Answer, result["health"], FORMAT, "health of a node", "update its node_health")
    except StoredError as error:
        return Answer(error=f"its answer cannot be read: {error}")
    if not answer.error and answer.age_s is None:
        return Answer(error="its state has no time")
    return answer
