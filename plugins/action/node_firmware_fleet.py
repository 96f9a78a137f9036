# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Compare the firmware and BIOS settings of many hosts with their baselines in one task."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware import state
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written
from ansible_collections.sailloft.fleet.plugins.plugin_utils.firmware_calls import ask_firmware, baselines_of, kinds_of
from ansible_collections.sailloft.fleet.plugins.plugin_utils.node_shells import HostsOfTask
from ansible_collections.sailloft.fleet.plugins.plugin_utils.print_lines import print_lines


class ActionModule(ActionBase):
    """Take one step with all named hosts."""

    _supports_check_mode = True
    _supports_diff = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        result = super().run(tmp, task_vars)
        _given, given = self.validate_argument_spec(
            {
                "step": {"type": "str", "choices": ["compare", "set", "read_back"], "default": "compare"},
                "names": {"type": "list", "elements": "str", "required": True},
                "path": {"type": "path"},
            }
        )
        host = HostsOfTask(self, task_vars or {})
        names = [name for name in given["names"] if baselines_of(host(name))]
        without = [name for name in given["names"] if name not in names]
        nodes, diffs = ask_firmware(host, names, given["step"] != "compare", given["step"] == "read_back")
        nodes = {name: nodes[name] for name in names}
        proved: dict[str, Any] = {}
        if given["path"]:
            proof = state.proof(nodes)
            proved = written(proof, page(proof), given["path"], self._task.check_mode)
        lines = state.lines(nodes)
        if without:
            lines.insert(0, f"{fold(without)}: not compared, without bmc_baselines")
        if given["step"] != "set":
            print_lines(lines)
        kinds = {name: kinds_of(host(name)) for name in names}
        failures = {
            name: node.error if given["step"] == "set" else node.why_not(kinds[name]) for name, node in nodes.items()
        }
        return {
            **result,
            "changed": bool(diffs or proved.get("changed")),
            "diff": [*diffs, *proved.get("diff", [])],
            "lines": lines,
            "holds": bool(nodes) and all(node.holds for node in nodes.values()),
            "to_set": [name for name, node in nodes.items() if not node.refused and node.to_set(kinds[name])],
            "refused": [name for name, node in nodes.items() if node.refused],
            "failures": {name: why for name, why in failures.items() if why},
        }
