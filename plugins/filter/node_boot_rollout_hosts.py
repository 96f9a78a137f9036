# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Choose the hosts of the next play of a rollout."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_boot_rollout_hosts
short_description: Choose the hosts of a step of a rollout
version_added: 0.1.0
extends_documentation_fragment: sailloft.fleet.of_nodes
description:
  - For C(hosts) of a play. Reads the last result of M(sailloft.fleet.node_image_rollout) that the role
    P(sailloft.fleet.node_boot#role) registered. The pattern that matches no host is the result if a step has nothing to
    do.
  - Most steps work on all nodes in one task, which runs on one node that stands for all. Further hosts are the nodes
    whose hooks are files of tasks, and at the end those that failed.
  - The controller is one of the hosts, and does nothing there. Ansible ends the whole run when all hosts of a play are
    lost, for example when the only canary dies in its health check; then the rollout could not be rolled back.
  - If an earlier step of the run has failed altogether, there are no hosts.
options:
  step:
    description: The step.
    type: str
    choices: [health, canaries, promote, waves, decide_end, end]
    required: true
"""

EXAMPLES = r"""
hosts: "{{ groups.nodes | sailloft.fleet.node_boot_rollout_hosts(hostvars | default({}), 'waves') }}"
"""

RETURN = r"""
_value:
  description: Names, or C(all:!all) if there are none.
  type: list
  elements: str
"""

from collections.abc import Callable, Mapping
from typing import Any

NOBODY = ["all:!all"]
CONTROLLER = "localhost"
GOES_ON = ("canary", "promote", "wave")
# Whether a step has something to do, by the last decision.
STEPS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "canaries": lambda decided: decided["step"] == "canary",
    "promote": lambda decided: decided["step"] in ("canary", "promote"),
    "waves": lambda decided: bool(decided["waves"]) and decided["step"] in GOES_ON,
    "decide_end": lambda _decided: True,
    "end": lambda _decided: True,
}


def node_boot_rollout_hosts(names: list[str], hostvars: Mapping[str, Any], step: str) -> list[str]:
    """Return the names for ``hosts``."""
    controller = hostvars.get(CONTROLLER, {})
    if not names or controller.get("__node_boot_step_failed"):
        return NOBODY
    rows = _first(names, hostvars, "__node_boot_rows", names)
    with_tasks = [name for name in names if rows.get(name, {}).get("tasks")]
    # One node stands for all, whose variables of the rollout are the same.
    hosts = [*[name for name in names if name in rows][:1], *with_tasks]
    if step == "health":
        due = _first(names, hostvars, "__node_boot_fleet", ["due"]).get("due")
        return [*dict.fromkeys(hosts), CONTROLLER] if due else NOBODY
    # All plays but the first include the controller, which has the last result. Its task was skipped if no node was
    # left in the play.
    last = controller.get("__node_boot_rollout") or {}
    if last.get("skipped") and step == "waves":
        return NOBODY
    decided = last if "step" in last else _first(names, hostvars, "__node_boot_rollout", ["step"])
    if not decided or not STEPS[step](decided):
        return NOBODY
    return [*dict.fromkeys([*hosts, *(decided["lost"] if step == "end" else [])]), CONTROLLER]


def _first(names: list[str], hostvars: Mapping[str, Any], variable: str, keys: list[str]) -> Mapping[str, Any]:
    """Return the first value of a variable that has one of the keys: a node outside of the run's limit has none."""
    values = (hostvars.get(name, {}).get(variable) or {} for name in names)
    return next((value for value in values if any(key in value for key in keys)), {})


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"node_boot_rollout_hosts": node_boot_rollout_hosts}
