# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVUE's settings for a switch: the whole tree, the limits of each setting, and refusals as whole messages."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from cumulus_tree import tree_of
from messages import Mentions
from switches import NO_QOS, NOTHING, at
from switches import switch as switch_of

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Headroom, Queue, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import cumulus

DEFAULT = "default-global"


def switch(**changes: Any) -> Switch:
    return switch_of("cumulus", ["swp1"], **changes)


QOS = switch().ports["swp1"]


def refused(wanted: Switch) -> str:
    with pytest.raises(FabricError) as error:
        cumulus.render(wanted)
    return str(error.value)


def test_the_settings_of_the_reference():
    headroom = at(NOTHING, _3=Headroom(19_456, 38_912, 19_456, 0))  # only alpha is the system's to set
    tree = tree_of(switch(headroom=headroom))
    profiles = {
        section: next(iter(tree["qos"][section]))
        for section in ("mapping", "egress-scheduler", "congestion-control", "pfc")
    }
    assert all(re.fullmatch("sailloft-[0-9a-f]{8}", profile) for profile in profiles.values())
    dscps = {str(dscp): {"switch-priority": {26: 3, 48: 6}.get(dscp, 0)} for dscp in range(64)}
    assert tree == {
        "interface": {
            "swp1": {
                "qos": {
                    **{section: {"profile": profile} for section, profile in profiles.items()},
                    "pfc-watchdog": {"state": "enable"},
                },
                "link": {"mtu": 9100},
            }
        },
        "qos": {
            "advance-buffer-config": {DEFAULT: {"ingress-lossless-buffer": {"shared-alpha": "alpha_1"}}},
            "congestion-control": {
                profiles["congestion-control"]: {
                    "traffic-class": {
                        "0": {"ecn": "disable"},
                        "3": {"ecn": "enable", "min-threshold": 150000, "max-threshold": 1500000, "probability": 100},
                        "6": {"ecn": "disable"},
                    }
                }
            },
            "egress-queue-mapping": {
                DEFAULT: {
                    "switch-priority": {"0": {"traffic-class": 0}, "3": {"traffic-class": 3}, "6": {"traffic-class": 6}}
                }
            },
            "egress-scheduler": {
                profiles["egress-scheduler"]: {
                    "traffic-class": {
                        "0": {"mode": "dwrr", "bw-percent": 50},
                        "3": {"mode": "dwrr", "bw-percent": 50},
                        "6": {"mode": "strict"},
                    }
                }
            },
            "mapping": {profiles["mapping"]: {"trust": "l3", "dscp": dscps}},
            "pfc": {
                profiles["pfc"]: {
                    "switch-priority": {"3": {}},
                    "rx": "enable",
                    "tx": "enable",
                    "cable-length": 5,
                }
            },
            "pfc-watchdog": {"polling-interval": 200, "robustness": 1},
            "traffic-pool": {"default-lossless": {"memory-percent": 50}, "default-lossy": {"memory-percent": 50}},
        },
        "system": {
            "forwarding": {
                "ecmp-hash": dict.fromkeys(
                    ("destination-ip", "destination-port", "ip-protocol", "source-ip", "source-port"), "on"
                )
            }
        },
    }


def test_a_switch_without_ports_has_no_qos():
    assert tree_of(replace(switch(), ports={}, ecmp_fields=None)) == {"interface": {}}


def test_a_port_without_settings_has_none():
    empty = switch(**NO_QOS, ip_mtu_bytes=None)
    assert tree_of(replace(empty, ecmp_fields=None)) == {"interface": {"swp1": {}}}


def test_every_class_with_a_queue_is_in_the_mapping_of_the_switch():
    eight = tuple(range(8))
    wanted = switch(class_to_queue=(7,) * 8, class_to_priority=eight, priority_to_queue=(7,) * 8)
    mapping = tree_of(wanted)["qos"]["egress-queue-mapping"][DEFAULT]["switch-priority"]
    assert mapping == {str(number): {"traffic-class": 7} for number in eight}


@pytest.mark.parametrize("percent", [1, 100])
def test_a_share_of_1_to_100_percent_is_rendered(percent):
    (profile,) = tree_of(switch(queues=at(QOS.queues, _0=Queue(False, percent))))["qos"]["egress-scheduler"].values()
    assert profile["traffic-class"]["0"] == {"mode": "dwrr", "bw-percent": percent}


@pytest.mark.parametrize("percent", [None, 0, 101])
def test_other_shares_are_refused(percent):
    assert refused(switch(queues=at(QOS.queues, _0=Queue(False, percent)))) == Mentions(
        "leaf1", "swp1", percent, "bandwidth_percent"
    )


def test_two_priorities_share_one_cable():
    (profile,) = tree_of(switch(pfc=(3, 6)))["qos"]["pfc"].values()
    assert (profile["switch-priority"], profile["cable-length"]) == ({"3": {}, "6": {}}, 5)
