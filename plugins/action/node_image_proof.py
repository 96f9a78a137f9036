# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Prove that a node runs its image, in the process of the task: no other Python is started on the controller.

What the inventory says of the node is read from its variables, as for its script (node_boot_scripts).
"""

from __future__ import annotations

import shlex
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.action import node_boot_scripts
from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_claims import NodePlan
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.claims import (
    ExpectedImage,
    Gate,
    SeenNode,
    prove,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written

SPEC: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "name": {"type": "str", "required": True},
    "digest": {"type": "str", "required": True},
    "channel": {"type": "str", "default": ""},
    "manifest": {"type": "str", "required": True},
    "prediction": {"type": "str", "default": ""},
    "sequence": {"type": "int", "default": 0},
    "booted": {"type": "bool", "default": False},
    "state": {"type": "dict"},
    "only_if_it_runs": {"type": "bool", "default": False},
    "health": {
        "type": "dict",
        "mutually_exclusive": [("command", "held"), ("command", "output")],
        "required_one_of": [("what", "command")],
        "options": {
            "what": {"type": "str"},
            "command": {"type": "list", "elements": "str"},
            "held": {"type": "bool"},
            "output": {"type": "str", "default": ""},
        },
    },
}
ANSWER = ("changed", "invocation", "failed", "warnings", "deprecations", "ansible_facts")


class ActionModule(ActionBase):
    """Read the node's state if it is not given, run the health check, and write the proof."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        variables = task_vars or {}
        result = super().run(tmp, variables)
        _given, params = self.validate_argument_spec(SPEC)
        state = params["state"]
        if state is None:
            answer = self._execute_module("sailloft.fleet.node_image_info", {}, task_vars=variables)
            if answer.get("failed") or "boot_id" not in answer:
                return {**result, **answer, "failed": True}
            state = {key: value for key, value in answer.items() if key not in ANSWER}
            result.update({key: answer[key] for key in ("ansible_facts", "warnings") if key in answer})
        result["state"] = state
        if params["only_if_it_runs"] and state.get("image") != params["digest"]:
            return {**result, "changed": False, "holds": False}
        name = params["name"]
        node = variables["hostvars"][name]
        row = node_boot_scripts.node_row(name, node)
        try:
            expected = ExpectedImage.of_text(
                params["digest"],
                params["manifest"],
                NodePlan.of_options(name, {**row, **params}),
                params["channel"],
                row["kernel_arguments"],
                node_boot_scripts.texts(name, "node_boot_units_may_fail", node),
            )
            proof = prove(name, expected, SeenNode(state, self._gate(params["health"])))
            return {**result, **written(proof, page(proof), params["path"], self._task.check_mode)}
        except SailloftError as error:
            return {**result, **error.result(), "failed": True, "msg": f"{name}: {error}"}

    def _gate(self, health: dict[str, Any] | None) -> Gate | None:
        """Return the health check; its command runs on the node, through the shell of the connection."""
        if health is None:
            return None
        if not health["command"]:
            return Gate(health["what"], health["held"], health["output"])
        line = shlex.join(health["command"])
        title = health["what"] or " ".join(health["command"])
        try:
            answer = self._low_level_execute_command(f"{self._compute_environment_string()} {line}".strip())
        except AnsibleConnectionFailure as error:  # the node answered a moment before
            return Gate(title, False, f"the node does not answer: {error}")
        output = next((text for text in (answer["stderr"], answer["stdout"]) if text.strip()), "")
        return Gate(title, answer["rc"] == 0, output.strip())
