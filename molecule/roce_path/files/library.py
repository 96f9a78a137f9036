# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run the library's part of the scenario on the controller: library.py WHAT, with a JSON object as its input.

equal {policy, switches, name, running}: "yes" if the running configuration is exactly the planned one, else both.
queues {before, after, device}: the traffic through each queue of the device, from the output of `tc -s -j qdisc show`
    before and after.
priorities {policy, before, after, device}: the bytes by the priority whose queue they left through, and the faults of
    that for RoCE's first class.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / ".collections"))

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES, PortQos, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import priority_counters
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy, read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running import linux as running
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import read_switches
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import linux


def planned(given: dict[str, Any]) -> Switch:
    return plan(read_policy(given["policy"]), read_switches(given["switches"]))[given["name"]]


def equal(given: dict[str, Any]) -> str:
    wanted = planned(given)
    seen = linux.parse(given["running"], given["name"])
    unset = {field: getattr(PortQos(), field) for field in linux.LINUX.not_held}
    ports = {name: replace(port, **unset) for name, port in wanted.ports.items()}
    wanted = replace(wanted, ports=ports)
    seen = replace(seen, ports={name: seen.ports[name] for name in ports})
    return "yes" if seen == wanted else f"wanted {wanted}\nseen {seen}"


def counters(text: str, device: str) -> dict[str, dict[str, int]]:
    """Return tc's counters by the number of the queue, which is part of its handle."""
    matches = [(running.CHILD.fullmatch(each["handle"]), each) for each in json.loads(text) if each["dev"] == device]
    keys = ("bytes", "packets", "drops", "marked", "early", "backlog")
    return {match[1]: {key: each.get(key, 0) for key in keys} for match, each in matches if match}


def queues(given: dict[str, Any]) -> str:
    before, after = (counters(given[at], given["device"]) for at in ("before", "after"))
    return json.dumps(
        {queue: {key: value - before[queue][key] for key, value in found.items()} for queue, found in after.items()}
    )


def left(text: str, device: str, policy: Policy) -> tuple[int, ...]:
    """Return the bytes that left the device, by priority."""
    others = (policy.cnp, policy.default)
    priority = {str(each.queue): each.priority for each in policy.classes}
    priority.update((str(each.queue), each.priority) for each in others)
    sent = [0] * CLASSES
    for queue, found in counters(text, device).items():
        sent[priority[queue]] += found["bytes"]
    return tuple(sent)


def counted(given: dict[str, Any]) -> str:
    policy, device = read_policy(given["policy"]), given["device"]
    before, after = (left(given[at], device, policy) for at in ("before", "after"))
    rode = priority_counters.rode(before, after, device)
    faults = [str(fault) for fault in priority_counters.astray(rode, policy.classes[0], policy, device)]
    return json.dumps({"rode": rode, "shares": priority_counters.shares(rode), "faults": faults})


WHAT = {
    "equal": equal,
    "queues": queues,
    "priorities": counted,
}

if __name__ == "__main__":
    sys.stdout.write(WHAT[sys.argv[1]](json.load(sys.stdin)))
