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
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy, read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running import linux as running
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import read_switches
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import linux

# The counters of any transfer include management traffic, ARP and similar packets.
MOST_OTHER_SHARE = 0.01


def planned(request: dict[str, Any]) -> Switch:
    return plan(read_policy(request["policy"]), read_switches(request["switches"]))[request["name"]]


def equal(request: dict[str, Any]) -> str:
    wanted = planned(request)
    seen = linux.parse(request["running"], request["name"])
    unset = {field: getattr(PortQos(), field) for field in linux.LINUX.not_held}
    ports = {name: replace(port, **unset) for name, port in wanted.ports.items()}
    wanted = replace(wanted, ports=ports)
    seen = replace(seen, ports={name: seen.ports[name] for name in ports})
    return "yes" if seen == wanted else f"wanted {wanted}\nseen {seen}"


def counters(text: str, device: str) -> dict[str, dict[str, int]]:
    """Return tc's counters by the number of the queue, which is part of its handle."""
    matches = [(running.CHILD.fullmatch(row["handle"]), row) for row in json.loads(text) if row["dev"] == device]
    keys = ("bytes", "packets", "drops", "marked", "early", "backlog")
    return {match[1]: {key: row.get(key, 0) for key in keys} for match, row in matches if match}


def queues(request: dict[str, Any]) -> str:
    before, after = (counters(request[reading], request["device"]) for reading in ("before", "after"))
    return json.dumps(
        {queue: {key: value - before[queue][key] for key, value in row.items()} for queue, row in after.items()}
    )


def sent(text: str, device: str, policy: Policy) -> tuple[int, ...]:
    """Return the bytes that left the device, by priority."""
    priority = {str(item.queue): item.priority for item in policy.all_classes}
    sent_bytes = [0] * CLASSES
    for queue, row in counters(text, device).items():
        sent_bytes[priority[queue]] += row["bytes"]
    return tuple(sent_bytes)


def misclassified(sent_bytes: tuple[int, ...], policy: Policy) -> list[str]:
    """Return the error of a transfer of RoCE's first class by the bytes of each priority, in a list; [] if none."""
    total = sum(sent_bytes)
    if total == 0:
        return ["the transfer is not in the counters: it used another port"]
    expected = (policy.classes[0].priority, policy.cnp.priority)
    shares = [f"priority {priority}: {count / total:.1%}" for priority, count in enumerate(sent_bytes) if count]
    other_bytes = sum(count for priority, count in enumerate(sent_bytes) if priority not in expected)
    return [", ".join(shares)] if other_bytes > MOST_OTHER_SHARE * total else []


def priorities(request: dict[str, Any]) -> str:
    policy = read_policy(request["policy"])
    before, after = (sent(request[reading], request["device"], policy) for reading in ("before", "after"))
    sent_bytes = tuple(new - old for old, new in zip(before, after))
    return json.dumps({"bytes": sent_bytes, "faults": misclassified(sent_bytes, policy)})


WHAT = {
    "equal": equal,
    "queues": queues,
    "priorities": priorities,
}

if __name__ == "__main__":
    sys.stdout.write(WHAT[sys.argv[1]](json.load(sys.stdin)))
