# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Check on the controller that no other server runs a virtual machine, or write that one does."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from ansible_collections.sailloft.fleet.plugins.module_utils.proof import files
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.place import VmPlace, check, dump
from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction


class ActionModule(ControllerAction):
    """Read or write files; no host is reached."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "path": {"type": "path", "required": True},
        "vms": {"type": "list", "elements": "str", "required": True},
        "server": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["checked", "written"], "default": "checked"},
    }

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        server, is_changed = arguments["server"], False
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
        return {"changed": is_changed}
