#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The next step of a rollout."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_image_rollout
short_description: Decide what a rollout of an image does next
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - "Says what comes next when a fleet is to boot another image: the canaries, the promotion of the channel, a wave, the
    end, or the way back."
  - It keeps no state. What the nodes run and what the channel names say how far the rollout is, so one whose controller
    died goes on where it was.
  - No node boots the image while more than O(budget) nodes have failed, and none but a canary before all canaries hold.
    So at most the budget and one wave are ever lost.
  - Runs on the controller, on what other modules have read; it reaches no host.
options:
  target:
    description: Digest of the image that all are to run.
    type: str
    required: true
  channel:
    description: Digest that the channel names, of each boot server; empty for a channel that is not there yet.
    type: list
    elements: str
    required: true
  pinned:
    description: Whether the boot servers pin a node of the channel to the target, as a canary before the promotion.
    type: bool
    default: false
  fresh:
    description:
      - Whether the channel has never named another image than O(target). Its nodes may never have booted then, and one
        that does not answer is one that is still to boot.
    type: bool
    default: false
  nodes:
    description: The nodes, in the order in which they are to boot.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the node.
        type: str
        required: true
      running:
        description: Digest of the image that it runs; empty for none.
        type: str
        default: ""
      holds:
        description: Whether it is proven, its health gate included.
        type: bool
        default: true
      reachable:
        description: Whether it answers. A node that does not counts against the budget.
        type: bool
        default: true
      tried:
        description: Whether this run had it boot the image. One that still runs another counts against the budget.
        type: bool
        default: false
  canaries:
    description: Names of the nodes that boot the image first. Without any, the first node is the canary.
    type: list
    elements: str
    default: []
  waves:
    description: >-
      How many nodes boot together, wave by wave, as numbers or as shares of all nodes (V(25%)). The last is repeated.
    type: list
    elements: str
    default: ["1", "4", "10%", "25%"]
  budget:
    description: How many nodes may fail over the whole rollout before it is taken back.
    type: int
    default: 0
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
"""

EXAMPLES = r"""
- name: What comes next
  sailloft.fleet.node_image_rollout:
    target: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
    channel: [486ea46224d1bb4fb680f34f7c9ad96a8f24ec88be73ea8e5a6c65260e9cb8a7]
    nodes:
      - name: bm01
        running: 486ea46224d1bb4fb680f34f7c9ad96a8f24ec88be73ea8e5a6c65260e9cb8a7
    budget: 1
  delegate_to: localhost
"""

RETURN = r"""
step:
  description:
    - V(canary) and V(wave) have RV(nodes) boot the image; V(promote) makes the channel name it; V(done) is the end.
    - V(rollback) takes RV(nodes), and with RV(channel_back) the channel, back to the image from before.
    - V(stopped) is a rollout that must not begin, because too much has failed already.
  returned: success
  type: str
  sample: wave
nodes:
  description: The nodes that the step is for.
  returned: success
  type: list
  elements: str
why:
  description: Why this comes next.
  returned: success
  type: str
channel_back:
  description: Whether the channel is to go back.
  returned: success
  type: bool
canaries:
  description: The canaries.
  returned: success
  type: list
  elements: str
waves:
  description: The waves that are left if nothing fails, in order.
  returned: success
  type: list
  elements: list
lost:
  description: The nodes that count against the budget.
  returned: success
  type: list
  elements: str
table:
  description: The plan, a line each.
  returned: success
  type: list
  elements: str
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.given.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.image import rollout


def result(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result for its arguments. Raises ImageError."""
    names = [node["name"] for node in params["nodes"]]
    canaries = rollout.canaries(names, params["canaries"])
    nodes = [rollout.Node(canary=node["name"] in canaries, **node) for node in params["nodes"]]
    if params["fresh"]:
        nodes = [replace(node, reachable=node.reachable or not node.tried) for node in nodes]
    rules = rollout.Rules(rollout.sizes(params["waves"], len(nodes)), params["budget"])
    channel = rollout.Channel(tuple(params["channel"]), params["pinned"])
    step = rollout.decide(nodes, params["target"], channel, rules)
    waves = rollout.planned(nodes, params["target"], channel.everywhere(params["target"]), rules)
    return {
        "step": step.kind,
        "nodes": list(step.nodes),
        "why": step.why,
        "channel_back": step.channel,
        "canaries": list(canaries),
        "waves": [list(wave) for wave in waves],
        "lost": list(rollout.failed(nodes, params["target"])),
        "table": rollout.table(nodes, params["target"], step, waves, rules),
    }


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "target": {"type": "str", "required": True},
            "channel": {"type": "list", "elements": "str", "required": True},
            "pinned": {"type": "bool", "default": False},
            "fresh": {"type": "bool", "default": False},
            "nodes": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "running": {"type": "str", "default": ""},
                    "holds": {"type": "bool", "default": True},
                    "reachable": {"type": "bool", "default": True},
                    "tried": {"type": "bool", "default": False},
                },
            },
            "canaries": {"type": "list", "elements": "str", "default": []},
            "waves": {"type": "list", "elements": "str", "default": ["1", "4", "10%", "25%"]},
            "budget": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: result(module.params))


if __name__ == "__main__":
    main()
