# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Remediation of Cumulus sets what is wanted, removes our other settings, and keeps the settings of others."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from cumulus_tree import BY_HAND, PORTS, as_text, reference, tree_of

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Ecn
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.cumulus import names_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax import block_yaml
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import cumulus


def apply(patch: str, tree: dict[str, Any]) -> dict[str, Any]:
    """Apply a patch as NVUE does: null removes, all else is merged."""

    def merge(into: dict[str, Any], added: dict[str, Any]) -> None:
        for key, value in added.items():
            if value is None:
                into.pop(key, None)
            elif isinstance(value, dict) and isinstance(into.get(key), dict):
                merge(into[key], value)
            else:
                into[key] = value

    result = copy.deepcopy(tree)
    if patch:
        merge(result, json.loads(patch)[0]["set"])
    return result


FOREIGN = [
    block_yaml.read(BY_HAND)[1]["set"],
    {"interface": {"swp1-3": {"link": {"mtu": 1500}, "qos": {"link-pause": {"profile": "p"}}}},
     "qos": {"link-pause": {"p": {"rx": "enable"}}, "pfc": {"default-global": {"switch-priority": {"2": {}}}},
             "egress-queue-mapping": {"default-global": {"switch-priority": {"1-2": {"traffic-class": 3}}}},
             "congestion-control": {"default-global": {"traffic-class": {"0": {"ecn": "enable"}}}}}},
    {"interface": {"swp1": {"qos": None}}, "qos": {"traffic-pool": None, "pfc": "theirs", "mapping": None}},
    {"interface": {}, "qos": {}},
]  # fmt: skip


def apart(node: Any) -> Any:
    """Return the settings as NVUE keeps them: one key each, without ranges."""
    if not isinstance(node, dict):
        return node
    return {name: apart(value) for key, value in node.items() for name in names_of(key, "")}


@pytest.mark.parametrize("running", FOREIGN)
@pytest.mark.parametrize("changes", [{}, {"pfc": (), "cable_m": None, "watchdog": None}])
def test_remediation_reaches_the_wanted_settings_and_keeps_other_settings(running, changes):
    wanted = reference(**changes)
    patch = cumulus.remediation(as_text(running), wanted)
    changed = apply(patch, apart(running))
    seen = cumulus.parse(as_text(changed), "leaf1")
    assert {port: seen.ports[port] for port in PORTS} == wanted.ports
    assert cumulus.remediation(as_text(changed), wanted) == ""
    assert changed.get("bridge") == running.get("bridge")
    assert changed["qos"].get("link-pause") == running["qos"].get("link-pause")


@pytest.mark.parametrize(
    ("profile", "rewrite", "rewritten"),
    [
        ("default-global", "l3", PORTS),
        ("default-global", "both", PORTS),
        ("default-global", "l2", []),
        ("default-global", None, []),
        ("own", "l3", PORTS[:1]),
        ("own", None, []),
    ],
)
def test_rewriting_of_dscps_is_detected_and_turned_off(profile, rewrite, rewritten):
    tree = tree_of(reference())
    flag = {"rewrite": rewrite} if rewrite else {}
    tree["qos"]["remark"] = {profile: {**flag, "switch-priority": {"3": {"dscp": 10}}}}
    if profile == "own":
        tree["interface"][PORTS[0]]["qos"]["remark"] = {"profile": "own"}
    seen = cumulus.parse(as_text(tree), "leaf1").ports
    assert [port for port in PORTS if seen[port].rewrites_dscp] == rewritten
    changed = apply(cumulus.remediation(as_text(tree), reference()), tree)
    assert cumulus.parse(as_text(changed), "leaf1") == reference()
    assert changed["qos"]["remark"][profile]["switch-priority"] == {"3": {"dscp": 10}}
    if not rewritten:
        assert changed == tree


def test_keywords_of_later_releases_are_not_a_difference():
    text = cumulus.render(reference()).replace('"enable"', '"enabled"').replace('"on"', '"enabled"')
    assert cumulus.parse(text, "leaf1") == reference()
    assert cumulus.remediation(text, reference()) == ""


def test_remediation_removes_only_our_old_profile_and_extra_settings():
    original = reference()
    changed = reference(ip_mtu_bytes=9000, queues=tuple(
        queue and replace(queue, ecn=queue.ecn and Ecn(1, 2, 3)) for queue in original.ports["swp1"].queues
    ))  # fmt: skip
    running = tree_of(original)
    running["qos"]["congestion-control"]["theirs"] = {"traffic-class": {"1": {"ecn": "enable"}}}
    (scheduler,) = running["qos"]["egress-scheduler"]
    running["qos"]["egress-scheduler"][scheduler]["traffic-class"]["5"] = {"mode": "strict"}
    patch = json.loads(cumulus.remediation(as_text(running), changed))[0]["set"]
    (old,) = tree_of(original)["qos"]["congestion-control"]
    (new,) = tree_of(changed)["qos"]["congestion-control"]
    assert set(patch["qos"]) == {"congestion-control", "egress-scheduler"}
    assert patch["qos"]["congestion-control"] == {old: None, new: tree_of(changed)["qos"]["congestion-control"][new]}
    assert patch["qos"]["egress-scheduler"] == {scheduler: {"traffic-class": {"5": None}}}
    assert patch["interface"]["swp1"] == {"qos": {"congestion-control": {"profile": new}}, "link": {"mtu": 9000}}
    assert set(patch) == {"qos", "interface"}


def test_the_hash_of_a_bond_of_wanted_ports_gets_the_fields_of_the_policy():
    off = {"source-port": "off", "destination-ip": "disabled", "ether-type": "off"}
    tree = {**tree_of(reference()), "system": {**tree_of(reference())["system"]}}
    tree["system"]["forwarding"] = {**tree["system"]["forwarding"], "lag-hash": off}
    assert cumulus.remediation(as_text(tree), reference()) == ""
    tree["interface"] = {**tree["interface"], "bond1": {"bond": {"member": {f"{PORTS[0]}-9": {}}}}}
    changed = apply(cumulus.remediation(as_text(tree), reference()), tree)
    on = {"source-port": "on", "destination-ip": "on", "ether-type": "off"}
    assert changed["system"]["forwarding"]["lag-hash"] == on
    assert cumulus.remediation(as_text(changed), reference()) == ""
    assert apply(cumulus.restoration(as_text(tree), as_text(changed), "leaf1"), changed) == tree
