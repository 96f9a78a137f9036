#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The next step of a rollout."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_image_rollout
short_description: Decide the next step of a rollout of an image
version_added: 0.1.0
description:
  - "Returns the next step when a fleet changes to another image: the canaries, the promotion of the channel, a wave,
    the end, or a rollback."
  - It keeps no state. The progress of a rollout follows from the images of the nodes and the channel. Therefore a
    rollout can continue after its controller has died.
  - No node boots the image if more than O(budget) nodes have failed, and only canaries boot it before all canaries
    hold. Therefore at most the budget and one wave of nodes can fail.
  - Runs on the controller with the results of other modules; it contacts no host.
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  target:
    description: Digest of the new image.
    type: str
    required: true
  channel:
    description: Name of the channel.
    type: str
    required: true
  stores:
    description:
      - The stores of all boot servers. The results of a loop of M(sailloft.fleet.node_image_store) over stores, each
        with C(host), are stores too.
    type: list
    elements: dict
    required: true
    suboptions:
      host:
        description: The host that has it.
        type: str
        required: true
      images:
        description: Its images, as M(sailloft.fleet.node_image_store) returns them.
        type: list
        elements: dict
        required: true
      channels:
        description: Its channels, as M(sailloft.fleet.node_image_store) returns them.
        type: list
        elements: dict
        required: true
  nodes:
    description:
      - The nodes, in the order in which they boot. A list of names stands for what
        M(sailloft.fleet.node_boot_fleet) has read from each node and done in this run, in C(rows).
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the node.
        type: str
        required: true
      mac:
        description: MAC address of the NIC from which it boots; empty if it is not known.
        type: str
        default: ""
      running:
        description: Digest of the image that it runs; empty for none.
        type: str
        default: ""
      holds:
        description: Whether its proof holds, including the health check.
        type: bool
        default: true
      reachable:
        description: Whether it answers. A node that does not answer counts against the budget.
        type: bool
        default: true
      tried:
        description: Whether this run booted it. If it still runs another image, it counts against the budget.
        type: bool
        default: false
      spare:
        description: Whether it is in service only in place of another node.
        type: bool
        default: false
      domains:
        description: The names of its racks, feeds, leaf switches and the like, as lists by kind.
        type: dict
        default: {}
      power_kw:
        description: What its start draws, in kilowatts.
        type: float
        default: 0.0
  without:
    description: Names of nodes that wait for repair. They are not booted and do not count as failures.
    type: list
    elements: str
    default: []
  canaries:
    description: Names of the nodes that boot the image first. Without any, the first node is the canary.
    type: list
    elements: str
    default: []
  waves:
    description: >-
      The sizes of the waves, as numbers or shares of all nodes (V(25%)). The last one is repeated.
    type: list
    elements: str
    default: ["1", "4", "10%", "25%"]
  limits:
    description:
      - How many nodes of each domain a wave may have, by the kind of the domain, as a number or a share of its nodes
        (V(25%)).
      - C(power_kw) is how much power the starts of a wave may draw together, in kilowatts.
    type: dict
    default: {}
  budget:
    description: How many nodes may fail in the whole rollout before it is rolled back.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Decide the next step of the rollout
  sailloft.fleet.node_image_rollout:
    target: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
    channel: stable
    stores:
      - host: boot01
        images: "{{ store.images }}"
        channels: "{{ store.channels }}"
    nodes:
      - name: bm01
        running: 486ea46224d1bb4fb680f34f7c9ad96a8f24ec88be73ea8e5a6c65260e9cb8a7
    budget: 1
  delegate_to: localhost
"""

RETURN = r"""
step:
  description:
    - V(canary) and V(wave) boot RV(nodes) into the image; V(promote) points the channel to it; V(done) is the end.
    - V(rollback) returns RV(nodes), and the channel on the hosts RV(channel_back), to the previous image.
    - V(stopped) means that the rollout must not begin, because too many nodes have failed already.
  returned: success
  type: str
  sample: wave
nodes:
  description: The nodes of the step.
  returned: success
  type: list
  elements: str
parts:
  description: RV(nodes) in parts that O(limits) lets start together.
  returned: success
  type: list
  elements: list
why:
  description: The reason for this step.
  returned: success
  type: str
channel_back:
  description: The boot servers on which the channel is rolled back.
  returned: success
  type: list
  elements: str
back_to:
  description: The digest that the channel then points to; empty if it has none, or the step is another one.
  returned: success
  type: str
can_go_back:
  description: >-
    Whether the channel then points to an image from before the rollout. This is not possible in a fleet's first
    rollout.
  returned: success
  type: bool
canaries:
  description: The canaries.
  returned: success
  type: list
  elements: str
waves:
  description: The remaining waves if nothing fails, in order.
  returned: success
  type: list
  elements: list
lost:
  description: The nodes that count against the budget.
  returned: success
  type: list
  elements: str
replacements:
  description:
    - The nodes that are out of service, because they failed or are in O(without), each with the spare that replaces it.
    - RV(replacements[].spare) is empty if no proven spare is left.
  returned: success
  type: list
  elements: dict
  contains:
    node:
      description: The node that is out of service.
      type: str
    spare:
      description: The spare.
      type: str
  sample: [{node: bm03, spare: bm10}]
table:
  description: The plan as lines of text.
  returned: success
  type: list
  elements: str
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.image import rollout, wave_limits


def result(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result for its arguments. Raises ImageError."""
    target = params["target"]
    macs = [node["mac"] for node in params["nodes"] if node["mac"]]
    channel = rollout.read_channel(params["stores"], params["channel"], target, macs)
    omitted = ("mac", "domains", "power_kw")
    fields = [{key: value for key, value in node.items() if key not in omitted} for node in params["nodes"]]
    places = [wave_limits.placed(node["name"], node["domains"], node["power_kw"]) for node in params["nodes"]]
    limits = wave_limits.read(params["limits"], places)
    every = [
        rollout.RolloutNode(**node, domains=place.domains, power_kw=place.power_kw)
        for node, place in zip(fields, places)
    ]
    nodes = rollout.without(every, params["without"])
    canaries = rollout.canaries([node.name for node in nodes], params["canaries"])
    nodes = [replace(node, canary=node.name in canaries) for node in nodes]
    if channel.is_new(target):
        # The nodes of a new channel may never have booted: a node that does not answer still has to boot.
        nodes = [replace(node, reachable=node.reachable or not node.tried) for node in nodes]
    rules = rollout.Rules(rollout.sizes(params["waves"], len(nodes)), params["budget"], limits)
    step = rollout.decide(nodes, target, channel, rules)
    waves = rollout.planned(nodes, target, channel.everywhere(target), rules)
    lines = rollout.table(nodes, target, step, waves, rules)
    if params["without"]:
        lines.append(f"  left out     {', '.join(params['without'])} (waiting for repair)")
    repaired = [node for node in every if node.name in params["without"]]
    chosen = set(step.nodes)
    replacements = rollout.replacements(nodes, target, repaired) if any(node.spare for node in every) else []
    if step.kind in (rollout.DONE, rollout.ROLLBACK):
        lines += [f"  out of service {node}, replaced by {spare or 'no node'}" for node, spare in replacements]
    return {
        "step": step.kind,
        "nodes": list(step.nodes),
        "parts": limits.cut([node.placed for node in nodes if node.name in chosen]),
        "why": step.why,
        "channel_back": list(channel.with_history) if step.channel else [],
        "back_to": channel.back_to(step, target),
        "can_go_back": channel.can_go_back(step),
        "canaries": list(canaries),
        "waves": [list(wave) for wave in waves],
        "lost": list(rollout.failed(nodes, target)),
        "replacements": [{"node": node, "spare": spare} for node, spare in replacements],
        "table": lines,
    }


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "target": {"type": "str", "required": True},
            "channel": {"type": "str", "required": True},
            "stores": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "host": {"type": "str", "required": True},
                    "images": {"type": "list", "elements": "dict", "required": True},
                    "channels": {"type": "list", "elements": "dict", "required": True},
                },
            },
            "nodes": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "mac": {"type": "str", "default": ""},
                    "running": {"type": "str", "default": ""},
                    "holds": {"type": "bool", "default": True},
                    "reachable": {"type": "bool", "default": True},
                    "tried": {"type": "bool", "default": False},
                    "spare": {"type": "bool", "default": False},
                    "domains": {"type": "dict", "default": {}},
                    "power_kw": {"type": "float", "default": 0.0},
                },
            },
            "without": {"type": "list", "elements": "str", "default": []},
            "canaries": {"type": "list", "elements": "str", "default": []},
            "waves": {"type": "list", "elements": "str", "default": ["1", "4", "10%", "25%"]},
            "limits": {"type": "dict", "default": {}},
            "budget": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: result(module.params))


if __name__ == "__main__":
    main()
