# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Made-up switch systems, and an inventory of a leaf and a spine that is read and planned."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace

from plain_system import PLAIN

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import BufferShares, Ecn
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.configs import wanted_and_seen
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import read_switches
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import plan


def attainable(qos, buffer):
    """Return ``qos`` with its thresholds rounded down to whole percents of ``buffer``, but to at least one percent."""

    def whole(number):
        return max(1, number * 100 // buffer) * buffer // 100

    def held(queue):
        if queue is None or queue.ecn is None:
            return queue
        return replace(queue, ecn=Ecn(whole(queue.ecn.minimum_bytes), whole(queue.ecn.maximum_bytes), 100))

    return replace(qos, queues=tuple(held(queue) for queue in qos.queues))


def planned_as_read(params):
    """Return the switches as planned with what was read of them. Raises the first refusal of one of them."""
    readings = wanted_and_seen(params)
    for error in readings.refused.values():
        raise error
    return readings.wanted


def check_cable(subject, cable):
    if cable != 3:
        raise FabricError(f"not {cable}", "take 3", subject=subject)


WHOLE = replace(PLAIN, not_held={})
SYSTEMS = {
    "plain": PLAIN,
    "few": replace(WHOLE, asics=("spectrum3",), not_asics={"jericho2": "few has other queues there"}),
    "named": replace(WHOLE, port=re.compile("Ethernet[0-9]+"), port_example="Ethernet0"),
    "parts": replace(WHOLE, buffer_shares=BufferShares(30)),
    "cut": replace(WHOLE, default_shares={"tomahawk3": BufferShares(9, 45)}),
    "sizes": replace(WHOLE, not_held={"headroom": "", "cable_m": ""}, sizes_headroom=True, check_cable=check_cable),
    "steps": replace(WHOLE, not_held={"headroom": "", "cable_m": ""}, held_cable_m=lambda cable: 40),
    "soft": replace(WHOLE, not_held={"pfc": "it sends none", "headroom": "none"}),
    "percents": replace(WHOLE, attainable=attainable),
    "reckons": replace(WHOLE, not_held={"headroom": "it reckons it"}),
}
SYSTEMS = {name: replace(system, name=name) for name, system in SYSTEMS.items()}


STORAGE = {"dscp": 20, "traffic_class": 4, "bandwidth_percent": 20}


LEAF = {
    "system": "plain",
    "asic": "spectrum3",
    "ports": {
        "swp1": {"speed_gbit_s": 200, "cable_m": 3, "peer": {"host": "gpu01", "port": "mlx5_0"}},
        "swp2": {"speed_gbit_s": 200, "cable_m": 3, "peer": {"host": "gpu01", "port": "mlx5_1"}},
        "swp3": {"speed_gbit_s": 400, "cable_m": 30, "peer": {"switch": "spine1", "port": "Ethernet1"}},
    },
}


SPINE = {
    "system": "plain",
    "asic": "tomahawk3",
    "ports": {"Ethernet1": {"speed_gbit_s": 400, "cable_m": 30, "peer": {"switch": "leaf1", "port": "swp3"}}},
}


BOTH = {"leaf1": LEAF, "spine1": SPINE}


HOSTS = {"gpu01": {"mlx5_0": {"speed_gbit_s": 200}, "mlx5_1": {}}, "gpu02": {}, "gpu03": None}


def read(switches=None, hosts=..., asics=None):
    hosts = HOSTS if hosts is ... else hosts
    return read_switches(BOTH if switches is None else switches, hosts, asics, SYSTEMS)


def planned(policy=None, switches=None, **given):
    return plan(read_policy(policy), read(switches, **given))


def one(asic="spectrum3", ports=2, speed=400, cable=5, **settings):
    lines = {f"swp{at}": {"speed_gbit_s": speed, "cable_m": cable} for at in range(ports)}
    return {"leaf1": {"system": "plain", "asic": asic, "ports": lines, **settings}}


def change(path, value, switches=None):
    """Return ``switches`` with one value changed; None removes it."""
    changed = deepcopy(BOTH if switches is None else switches)
    at = changed
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return changed
