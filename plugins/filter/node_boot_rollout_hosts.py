# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Choose the hosts of the next play of a rollout: the nodes that it has to change."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_boot_rollout_hosts
short_description: Choose the nodes on which a step of a rollout has something to do
version_added: 0.1.0
extends_documentation_fragment: sailloft.fleet.of_nodes
description:
  - For C(hosts) of a play. Reads the last result of M(sailloft.fleet.node_image_rollout) that the role
    P(sailloft.fleet.node_boot#role) registered. An empty result is the pattern that matches no host.
  - The controller is one of the hosts, and does nothing there. Ansible ends the whole run when all hosts of a play are
    lost, for example when the only canary dies in its health check; then the rollout could not be rolled back.
  - If an earlier step of the run has failed altogether, there are no hosts.
options:
  step:
    description: The step.
    type: str
    choices: [canaries, promote, waves, decide_end, end]
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


def _end(decided: Mapping[str, Any], names: list[str]) -> list[str]:
    spares = [row["spare"] for row in decided["replacements"]]
    # Canaries are proven by the channel, or unpinned when the rollout rolls back.
    concerned = {*decided["canaries"], *decided["lost"], *decided["nodes"], *spares}
    # Without any of these, one node is needed to release the hold.
    return [name for name in names if name in concerned] or names[:1]


STEPS: dict[str, Callable[[Mapping[str, Any], list[str]], list[str]]] = {
    "canaries": lambda decided, _names: decided["nodes"] if decided["step"] == "canary" else [],
    "promote": lambda decided, _names: decided["canaries"] if decided["step"] in ("canary", "promote") else [],
    "waves": lambda decided, _names: [name for wave in decided["waves"] for name in wave if decided["step"] in GOES_ON],
    "decide_end": lambda _decided, names: names,
    "end": _end,
}


def node_boot_rollout_hosts(names: list[str], hostvars: Mapping[str, Any], step: str) -> list[str]:
    """Return the names for ``hosts``."""
    controller = hostvars.get(CONTROLLER, {})
    if not names or controller.get("__node_boot_step_failed"):
        return NOBODY
    # All plays but the first include the controller, which has the last result. Its task was skipped if no node was
    # left in the play.
    last = controller.get("__node_boot_rollout") or {}
    if last.get("skipped") and step == "waves":
        return NOBODY
    decided = last if "step" in last else hostvars.get(names[0], {}).get("__node_boot_rollout")
    chosen = STEPS[step](decided, names) if decided else []
    return [*chosen, CONTROLLER] if chosen else NOBODY


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"node_boot_rollout_hosts": node_boot_rollout_hosts}
