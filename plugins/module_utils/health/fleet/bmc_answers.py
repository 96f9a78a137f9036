# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask the BMCs of many nodes, and return for each node what its BMC says, in the form of a node's answer.

Nothing is stored: a fault is shown as long as the BMC shows it, what its log says that happened once for a day.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.health import state
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect import settings
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.answers import Answer, Complaint
from ansible_collections.sailloft.fleet.plugins.module_utils.health.judge import RoundMemory, judge
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    FAIL,
    NOT_MEASURED,
    Expected,
    Measurement,
    Place,
    Reading,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.bmc import ipmi, redfish
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.bmc.target import Bmc, read_many
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.bmc import UNREAD
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES, rules_of

READERS = {"redfish": redfish.read, "ipmi": ipmi.read}


def ask(bmcs: Sequence[Bmc], checks: Mapping[str, Any], unread: Mapping[str, str]) -> dict[str, Answer]:
    """Return the answer of each BMC by node. Raises ExpectError.

    ``checks``: the inventory's settings by node; ``unread``: why BMCs of nodes cannot be asked.
    """
    expected = {bmc.host: Expected(bmc.host, settings=settings.read(checks.get(bmc.host) or {}, RULES)) for bmc in bmcs}
    readings = read_many([bmc for bmc in bmcs if bmc.host not in unread], lambda bmc: READERS[bmc.type](bmc))
    readings.update({host: Reading("inventory", error=reason) for host, reason in unread.items()})
    return {host: answer(reading, expected[host]) for host, reading in readings.items()}


def answer(reading: Reading, expected: Expected) -> Answer:
    """Return the answer of a BMC. One that cannot be read, or says nothing, is a fault."""
    rules, now = rules_of(expected), state.moment()
    is_silent = all(measurement.value is None for measurement in reading.measurements)
    reason = reading.error or ("it says nothing of power supplies, fans and temperatures" if is_silent else "")
    unread = Measurement(UNREAD, Place("bmc"), bool(reason), reading.reader, reason)
    judged = judge([reading, Reading("bmc", (unread,))], rules, expected, RoundMemory(), now)
    failed = [(item.check, item.place, item.seen, item.expected) for item in judged.results if item.verdict == FAIL]
    happened = [(item.check, item.place, item.text, "") for item in judged.events]
    faults = tuple(
        Complaint(check, place.kind, place.name, rule.title, rule.layer, rule.action, rule.runbook, "", seen, wanted)
        for check, place, seen, wanted in (*failed, *happened)
        for rule in (rules[check],)
    )
    return Answer(age_s=0.0, faults=faults, unmeasured=sum(item.verdict == NOT_MEASURED for item in judged.results))
