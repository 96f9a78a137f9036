# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node's answer about its health: the part of its state that the fleet's table needs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.health import state as states
from ansible_collections.sailloft.fleet.plugins.module_utils.health.judge import places_of
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import Fault, Word
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Expected, Moment

FORMAT = "sailloft-health-answer/1"
STEP_TIME = "step_time"


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

    host: str = ""  # the inventory name for which expected.json was made; "" in an image, whose nodes share one
    age_s: float | None = None  # how long ago the last round ended
    period_s: float = 60.0  # from one round to the next
    error: str = ""
    like: str = ""  # equal on nodes whose values can be compared: what they must have
    faults: tuple[Complaint, ...] = ()
    unmeasured: int = 0  # checks that were not measured in the last round
    drain: str = ""  # a person's reason
    maintenance: str = ""  # a person's reason
    names: dict[str, str] = field(default_factory=dict)  # of places: {"gpu 0000:4b:00.0": "GPU 4"}
    values: dict[str, dict[str, float]] = field(default_factory=dict)  # by check and place
    now_unix_s: float = 0.0  # by the node's clock, when it answered


def read(result: Any) -> Answer:
    """Return the answer in a module's result. What is not an answer is one with the reason: never a healthy node."""
    if not isinstance(result, Mapping):
        return Answer(error="it was not asked")
    if "health" not in result:
        text = " ".join(str(result.get("msg") or "its answer has no health").split()).removeprefix("Task failed: ")
        return Answer(error=f"no answer: {text}" if result.get("unreachable") else text)
    try:
        answer: Answer = stored.load(Answer, result["health"], FORMAT, "health of a node", "update its node_health")
    except StoredError as error:
        return Answer(error=f"its answer cannot be read: {error}")
    if not answer.error and answer.age_s is None:
        return Answer(error="its state has no time")
    return answer


def of_state(state: states.State, expected: Expected | None, now: Moment, step_time_s: float | None = None) -> Answer:
    """Return the answer of a node with this state. ``step_time_s``: of the job that runs, where it exports one."""
    if state.round is None:
        return Answer(error="no round of the health check was saved yet")
    if state.round.ended.boot_id != now.boot_id:
        return Answer(error="no round of the health check was saved since its last boot")
    condition = state.condition
    names = {}
    if expected is not None:
        titles = [*(part.name for part in expected.devices), *(part.name for part in expected.ports)]
        names = dict(zip(map(str, places_of(expected)), titles))
    values = dict(state.values)
    if step_time_s is not None:
        values[STEP_TIME] = {"node": step_time_s}
    return Answer(
        host=expected.host if expected else "",
        age_s=round(states.age_s(state.round.ended, now), 1),
        period_s=state.round.period_s,
        like=like(expected) if expected else "",
        faults=tuple(map(_complaint, condition.faults)),
        unmeasured=len(condition.unmeasured),
        drain=_said(condition.drain),
        maintenance=_said(condition.maintenance),
        names=names,
        values=values,
        now_unix_s=now.unix_s,
    )


def to_dict(answer: Answer) -> dict[str, Any]:
    """Return the JSON-ready form, which ``read`` reads."""
    return {"format": FORMAT, **asdict(answer), "faults": [asdict(fault) for fault in answer.faults]}


def like(expected: Expected) -> str:
    """Return a text that is equal for nodes with the same planned devices: "8 x gpu 10de:2330, 1 x nic 15b3:1021"."""
    counts = Counter(f"{device.kind} {device.device_id}" for device in expected.devices if device.kind != "bridge")
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items()))


def _complaint(fault: Fault) -> Complaint:
    return Complaint(
        check=fault.check,
        kind=fault.place.kind,
        place=fault.place.name,
        title=fault.title,
        layer=fault.layer,
        action=fault.action,
        runbook=fault.runbook,
        part=fault.part,
        seen=fault.seen,
        expected=fault.expected,
        since_unix_s=fault.since.unix_s,
    )


def _said(word: Word | None) -> str:
    return f"{word.reason} ({word.by})" if word and word.by else word.reason if word else ""
