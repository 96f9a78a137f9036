# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whole patches of Cumulus: what remediation removes and leaves, and what restoration brings back."""

from __future__ import annotations

import json
from typing import Any

import pytest
import switches
from cumulus_tree import as_text, tree_of

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import cumulus

WANTED = switches.switch("cumulus", ["swp1"])
LOSSY = switches.switch("cumulus", ["swp1"], **switches.LOSSY)
DEFAULT = "default-global"


def patch_of(text: str) -> dict[str, Any]:
    return json.loads(text)[0]["set"] if text else {}


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    result = dict(first)
    for key, value in second.items():
        result[key] = (
            merged(first[key], value) if isinstance(value, dict) and isinstance(first.get(key), dict) else value
        )
    return result


def change(settings: dict[str, Any], wanted: switches.Switch = WANTED) -> dict[str, Any]:
    """Return the patch for a switch that has the wanted settings, and more."""
    return patch_of(cumulus.remediation(as_text(merged(tree_of(wanted), settings)), wanted))


def of_switch(**sections: Any) -> dict[str, Any]:
    return {"qos": {section.replace("_", "-"): value for section, value in sections.items()}}


def of_port(**sections: Any) -> dict[str, Any]:
    return {"interface": {"swp1": of_switch(**sections)}}


@pytest.mark.parametrize(
    ("settings", "patch"),
    [
        ({}, {}),
        (
            of_switch(traffic_pool={"roce-lossless": {"memory-percent": 50}}),
            of_switch(traffic_pool={"roce-lossless": None}),
        ),
        (of_switch(traffic_pool={"mine": {"memory-percent": 1}}), {}),
        (of_switch(roce={"enable": "on"}), of_switch(roce=None)),
        (of_switch(roce={"enable": "off"}), {}),
        (of_switch(mapping={"sailloft-01234567": {"trust": "l3"}}), of_switch(mapping={"sailloft-01234567": None})),
        (of_switch(mapping={"mine": {"trust": "l3"}}), {}),
        (
            of_switch(egress_queue_mapping={DEFAULT: {"switch-priority": {"1": {"traffic-class": 3}}}}),
            of_switch(egress_queue_mapping={DEFAULT: {"switch-priority": {"1": None}}}),
        ),
        (of_port(link_pause={"profile": "p"}), of_port(link_pause=None)),
        (of_port(storm_control={"rate": 1}), {}),
        ({"interface": {"swp9": {"qos": {"link-pause": {"profile": "p"}}}}}, {}),
        ({"interface": {"swp1": {"link": {"mtu": 1500}}}}, {"interface": {"swp1": {"link": {"mtu": 9100}}}}),
        ({"interface": {"swp1": {"link": {"state": {"up": {}}}}}}, {}),
        ({"system": {"forwarding": {"ecmp-hash": {"gtp-teid": "on"}}}}, {}),
    ],
)
def test_only_what_contradicts_the_policy_is_removed(settings, patch):
    assert change(settings) == patch


@pytest.mark.parametrize(
    ("settings", "patch"),
    [
        (of_port(link_pause={"profile": "p"}), {}),  # a port that must not pause may keep it
        (of_port(pfc={"profile": "p"}), of_port(pfc=None)),
        (of_port(pfc_watchdog={"state": "enable"}), of_port(pfc_watchdog=None)),
        (of_switch(pfc={DEFAULT: {"switch-priority": {"2": {}}}}), of_switch(pfc={DEFAULT: None})),
    ],
)
def test_a_lossy_port_loses_what_would_make_it_pause(settings, patch):
    foreign = {"qos": {"pfc": {"p": {"rx": "enable"}}, "link-pause": {"p": {"rx": "enable"}}}}
    assert change(merged(foreign, settings), LOSSY) == patch


def test_settings_that_our_profile_does_not_have_are_removed():
    (profile,) = tree_of(WANTED)["qos"]["mapping"]
    settings = {"pcp": {"0": {"switch-priority": 1}}, "dscp": {"0": {"switch-priority": 3}}}
    assert change(of_switch(mapping={profile: settings})) == of_switch(
        mapping={profile: {"pcp": None, "dscp": {"0": {"switch-priority": 0}}}}
    )


@pytest.mark.parametrize(("word", "is_equal"), [("ENABLED", True), ("true", True), ("disable", False)])
def test_words_are_compared_by_their_meaning(word, is_equal):
    (profile,) = tree_of(WANTED)["qos"]["pfc"]
    settings = of_switch(pfc={profile: {"tx": word}})
    assert change(settings) == ({} if is_equal else of_switch(pfc={profile: {"tx": "enable"}}))


def test_ranges_of_a_running_configuration_are_compared_number_by_number():
    tree = tree_of(WANTED)
    (profile,) = tree["qos"]["mapping"].values()
    profile["dscp"] = {
        **{span: {"switch-priority": 0} for span in ("0-25", "27-47", "49-63")},
        "26": {"switch-priority": 3},
        "48": {"switch-priority": 6},
    }
    assert cumulus.remediation(as_text(tree), WANTED) == ""
    profile["dscp"]["0-25"] = {"switch-priority": 3}
    patch = patch_of(cumulus.remediation(as_text(tree), WANTED))
    (changed,) = patch["qos"]["mapping"].values()
    assert changed == {"dscp": {str(dscp): {"switch-priority": 0} for dscp in range(26)}}


PORT = {
    "link": {"mtu": 9100, "state": {"up": {}}},
    "qos": {"pfc": {"profile": "a"}, "pfc-watchdog": {"state": "enable"}},
}
BEFORE = {
    "interface": {"swp1": PORT, "swp2": {"type": "swp"}},
    "qos": {"pfc": {"a": {"rx": "enable", "switch-priority": {"3": {}}}}, "roce": {"enable": "on"}},
    "system": {"hostname": "leaf1", "forwarding": {"ecmp-hash": {"source-ip": "on"}}},
}


@pytest.mark.parametrize(
    ("now", "patch"),
    [
        ({}, {}),
        ({"interface": {"swp1": {"link": {"mtu": 1500}}}}, {"interface": {"swp1": {"link": {"mtu": 9100}}}}),
        ({"interface": {"swp2": {"link": {"mtu": 1500}}}}, {"interface": {"swp2": {"link": {"mtu": None}}}}),
        ({"interface": {"swp2": {"description": "x"}}}, {}),
        (
            {"interface": {"swp3": {"qos": {"pfc": {}}, "link": {"mtu": 1}}}},
            {"interface": {"swp3": {"qos": {"pfc": None}, "link": {"mtu": None}}}},
        ),
        ({"interface": {"swp3": {"type": "swp"}}}, {}),
        ({"interface": {"swp3": None}}, {}),
        (
            {"interface": {"swp1": {"qos": {"pfc": {"profile": "b"}}}}},
            {"interface": {"swp1": {"qos": {"pfc": {"profile": "a"}}}}},
        ),
        (
            {"interface": {"swp1": {"qos": {"mapping": {"profile": "b"}}}}},
            {"interface": {"swp1": {"qos": {"mapping": None}}}},
        ),
        ({"qos": {"roce": "off"}}, {"qos": {"roce": {"enable": "on"}}}),
        (
            {"qos": {"pfc": {"a": {"switch-priority": {"4": {}}}, "b": {}}}},
            {"qos": {"pfc": {"a": {"switch-priority": {"4": None}}, "b": None}}},
        ),
        (
            {"system": {"hostname": "x", "forwarding": {"ecmp-hash": {"source-ip": "off", "source-port": "on"}}}},
            {"system": {"forwarding": {"ecmp-hash": {"source-ip": "on", "source-port": None}}}},
        ),
    ],
)
def test_restoration_brings_back_what_a_policy_can_change(now, patch):
    assert patch_of(cumulus.restoration(as_text(BEFORE), as_text(merged(BEFORE, now)), "leaf1")) == patch


def test_restoration_of_what_was_not_there_and_of_what_is_gone():
    bare = {"interface": {"swp1": {"type": "swp"}}}
    assert patch_of(cumulus.restoration(as_text(bare), as_text(BEFORE), "leaf1")) == {
        "interface": {"swp1": {"qos": {"pfc": None, "pfc-watchdog": None}, "link": {"mtu": None}}},
        "qos": {"pfc": None, "roce": None},
        "system": {"forwarding": {"ecmp-hash": None}},
    }
    assert patch_of(cumulus.restoration(as_text(BEFORE), as_text(bare), "leaf1")) == {
        "interface": {
            "swp1": {"qos": PORT["qos"], "link": {"mtu": 9100}},
            "swp2": {"qos": {}, "link": {}},
        },
        "qos": BEFORE["qos"],
        "system": {"forwarding": {"ecmp-hash": {"source-ip": "on"}}},
    }


@pytest.mark.parametrize(
    "now",
    [
        {"interface": 1.5},
        {"interface": {"swp1": {"link": [[]]}}},
        {"interface": {"swp1": {"qos": True}}},
        {"qos": 1.5},
        {"system": 1.5},
        {"system": {"forwarding": [{}]}},
    ],
)
def test_restoration_refuses_other_values_in_place_of_settings(now):
    text = as_text({**BEFORE, **now})
    for backup, running in ((text, as_text(BEFORE)), (as_text(BEFORE), text)):
        with pytest.raises(FabricError, match="leaf1: NVUE configuration"):
            cumulus.restoration(backup, running, "leaf1")
