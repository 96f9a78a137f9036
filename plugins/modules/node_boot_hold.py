#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Holds of nodes, a channel, or a whole store."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_boot_hold
short_description: Hold nodes and a channel on a boot server, so that two runs do not change the same objects
version_added: 0.1.0
description:
  - A hold is a file in the store of a boot server, which all operators share. It records who changes which nodes, which
    channel or the whole store, from which controller and since when. It is written under the lock of the store.
  - Two holds with a common node or channel exclude each other, and a hold of the whole store excludes all others. The
    second run fails with the holder's name. Runs for other nodes continue.
  - The modules that change scripts, channels and images fail for objects that another run holds. If they get the name
    of their own run's hold, they also fail after it was taken over.
  - A hold stays until it is released. The hold of a run that was killed is taken over by name with O(take_over). On the
    controller of that run, it is taken over automatically, with a warning, if its process has ended.
  - A hold belongs to the run, so taking and releasing it are not reported as changes. In check mode no hold is taken,
    and holds of others are reported as warnings.
extends_documentation_fragment:
  - sailloft.fleet.node_image
options:
  name:
    description: The hold's name, C(hold-) and eight hexadecimal digits. The same for all stores of one run.
    type: str
    required: true
  state:
    description: V(held) takes the hold and replaces one of the same name. V(released) removes it.
    type: str
    choices: [held, released]
    default: held
  nodes:
    description: Names of the nodes that the run changes.
    type: list
    elements: str
    default: []
  channel:
    description: The channel that the run changes; empty for none.
    type: str
    default: ""
  whole:
    description: Whether the run may change anything in the store, as the removal of images does.
    type: bool
    default: false
  take_over:
    description: Names of holds to take over. Their runs must have ended.
    type: list
    elements: str
    default: []
  holder:
    description: The run. The controller fills this in.
    type: dict
    suboptions:
      user:
        description: Who runs ansible-playbook.
        type: str
        required: true
      host:
        description: The controller's host name.
        type: str
        required: true
      machine:
        description: The id of the machine or container in which process ids are unique; empty if it is unknown.
        type: str
        required: true
      process:
        description: Process id of ansible-playbook.
        type: int
        required: true
      playbook:
        description: The playbook.
        type: str
        required: true
      since:
        description: The time on the controller, UTC.
        type: str
        required: true
attributes:
  check_mode:
    description: Takes no hold in check mode, and warns of holds that would make the run fail.
    support: full
  diff_mode:
    description: Will return details on what has changed.
    support: none
"""

EXAMPLES = r"""
- name: Hold a node and the channel
  sailloft.fleet.node_boot_hold:
    store: /srv/sailloft
    name: hold-0123abcd
    nodes: [bm01]
    channel: stable

- name: Release them
  sailloft.fleet.node_boot_hold:
    store: /srv/sailloft
    name: hold-0123abcd
    state: released
"""

RETURN = r"""
conflicts:
  description: The holds that exclude this one. The task fails if there are any, except in check mode.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The hold's name.
      type: str
    machine:
      description: The id of the machine or container in which its process id is unique.
      type: str
    process:
      description: Process id of its ansible-playbook.
      type: int
    described:
      description: The holder, the held objects and the time, as text.
      type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import holds
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

HOLDER = {
    "user": {"type": "str", "required": True},
    "host": {"type": "str", "required": True},
    "machine": {"type": "str", "required": True},
    "process": {"type": "int", "required": True},
    "playbook": {"type": "str", "required": True},
    "since": {"type": "str", "required": True},
}


def conflict(hold: holds.Hold) -> dict[str, Any]:
    """Return a hold in the form of the module's result."""
    return {
        "name": hold.name,
        "machine": hold.holder.machine,
        "process": hold.holder.process,
        "described": holds.described(hold),
    }


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "store": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["held", "released"], "default": "held"},
            "nodes": {"type": "list", "elements": "str", "default": []},
            "channel": {"type": "str", "default": ""},
            "whole": {"type": "bool", "default": False},
            "take_over": {"type": "list", "elements": "str", "default": []},
            "holder": {"type": "dict", "options": HOLDER},
        },
        required_if=[("state", "held", ["holder"])],
        supports_check_mode=True,
    )
    params = module.params
    store = Store(params["store"])

    def work() -> dict[str, Any]:
        if params["state"] == "released":
            if not module.check_mode:
                holds.release(store, params["name"])
            return {"conflicts": []}
        scope = holds.scope_of(params["nodes"], params["channel"], params["whole"])
        hold = holds.Hold(params["name"], holds.Holder(**params["holder"]), scope)
        other_holds = holds.take(store, hold, params["take_over"], module.check_mode)
        conflicts = [conflict(other_hold) for other_hold in other_holds]
        if other_holds and not module.check_mode:
            return {"failed": True, "msg": str(holds.refusal(scope, other_holds)), "conflicts": conflicts}
        if other_holds:
            module.warn(f"this run would be refused: {holds.refusal(scope, other_holds)}")
        return {"conflicts": conflicts}

    finish(module, work)


if __name__ == "__main__":
    main()
