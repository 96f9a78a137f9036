# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Check on the controller that no other server runs a virtual machine, or write that one does."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.proof import files
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.place import VmPlace, check, dump


class ActionModule(ActionBase):
    """Read or write files; no host is reached."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        result = super().run(tmp, task_vars)
        _given, arguments = self.validate_argument_spec(
            {
                "path": {"type": "path", "required": True},
                "vms": {"type": "list", "elements": "str", "required": True},
                "server": {"type": "str", "required": True},
                "state": {"type": "str", "choices": ["checked", "written"], "default": "checked"},
            }
        )
        server, is_changed = arguments["server"], False
        try:
            for vm in arguments["vms"]:
                # No virtual machine has a slash in its name, which gpu_domain says.
                path = os.path.join(arguments["path"], f"{vm.replace('/', '_')}.json")
                old = files.read(path)
                if arguments["state"] == "checked":
                    if old is not None:
                        check(vm, server, old, path)
                elif old != dump(VmPlace(vm, server)):
                    is_changed = True
                    if not self._task.check_mode:
                        files.write(path, dump(VmPlace(vm, server)))
        except SailloftError as error:
            raise AnsibleActionFail(str(error)) from error
        return {**result, "changed": is_changed}
