# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Actions whose modules take nodes: a task names the nodes, and the action reads the variables of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.plugin_utils.named_variables import VariablesOfHosts


class NamedNodesAction(ActionBase):
    """Run the module of the same name with rows of nodes instead of their names, and stores instead of loop results."""

    _supports_check_mode = True
    # The parts of a store that the module takes.
    STORE_PARTS: tuple[str, ...] = ()
    # The options of the action that the module does not have.
    OWN: tuple[str, ...] = ()

    def rows(self, names: list[str], hostvars: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the module's option ``nodes``. Raises AnsibleActionFail for variables that are not valid."""
        raise NotImplementedError  # by a subclass whose module has nodes

    def beside(self, names: list[str], hostvars: Mapping[str, Any]) -> dict[str, Any]:
        """Return further options of the module from the variables of nodes. Raises AnsibleActionFail."""
        return {}

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        variables = task_vars or {}
        result = super().run(tmp, variables)
        arguments = dict(self._task.args)
        self.given = {name: arguments.pop(name) for name in self.OWN if name in arguments}
        nodes, stores = arguments.get("nodes"), arguments.get("stores")
        if isinstance(nodes, list) and all(isinstance(node, str) for node in nodes):
            hostvars = VariablesOfHosts(variables.get("hostvars", {}))
            arguments["nodes"] = self.rows(nodes, hostvars)
            arguments.update(self.beside(nodes, hostvars))
        if isinstance(stores, list):
            arguments["stores"] = [store_of(store, self.STORE_PARTS) for store in stores]
        return {**result, **self._execute_module(module_args=arguments, task_vars=variables)}


def store_of(answer: Mapping[str, Any], parts: tuple[str, ...]) -> Mapping[str, Any]:
    """Return a result of node_image_store, from a loop over stores, with its host; a store itself as it is."""
    if "item" not in answer:
        return answer
    return {"host": answer["item"]["host"], **{part: answer[part] for part in parts}}
