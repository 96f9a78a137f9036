# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The controller's part of node_image: it checks the variables of roles, and shows the progress of the build host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail

from ansible_collections.sailloft.fleet.plugins.module_utils.common.names import is_of, nearest, unknown_names
from ansible_collections.sailloft.fleet.plugins.plugin_utils import playbook_registry as registry
from ansible_collections.sailloft.fleet.plugins.plugin_utils.shown_progress import ShownProgress

FIRST_STAGE = Path(__file__).parents[2] / "roles" / "node_image" / "files" / "first-stage" / "init"


class ActionModule(ShownProgress):
    """Pass the module the data that only the controller has, and show its progress."""

    WORK = "the build"
    REMEDY = "end the process named in the file lock in its cache, and run again"

    def arguments(self) -> dict[str, Any]:
        """Return the module's arguments, with the script of the first stage."""
        arguments = super().arguments()
        for text in misspelt(arguments.get("layers")):
            raise AnsibleActionFail(text)
        if not arguments.get("first_stage"):
            arguments["first_stage"] = FIRST_STAGE.read_text(encoding="utf-8")
        # A module starts in the playbook's directory, where Ansible may find another configuration or none.
        if self._connection.transport == "local" and constants.CONFIG_FILE:
            arguments.setdefault("ansible_configuration", constants.CONFIG_FILE)
        return arguments


def misspelt(layers: Any) -> Iterator[str]:
    """Yield an error for each variable in ``vars`` of a layer's role that no role has: nobody would see a warning.

    That is one with the prefix of its role, or a likely misspelling of one. Layers of a wrong form are left to the
    module.
    """
    roles, start = registry.roles(), "sailloft.fleet."
    for layer, settings in layers.items() if isinstance(layers, Mapping) else ():
        applied = settings.get("roles") if isinstance(settings, Mapping) else ()
        for item in applied if isinstance(applied, (list, tuple)) else ():
            full_name, role_vars = (item.get("name"), item.get("vars")) if isinstance(item, Mapping) else ("", {})
            role = str(full_name).partition(start)[2]
            if role not in roles or not isinstance(role_vars, Mapping):
                continue
            valid_names = registry.role_options(role)
            # Roles of a layer may share variables, and take those of the site.
            valid = {*valid_names, *registry.read()["variables"]}.union(*map(registry.role_options, roles))
            for name in sorted(set(map(str, role_vars)) - valid):
                if is_of(name, role, roles) or nearest(name, valid_names):
                    yield from unknown_names(role, {name: [f"layer {layer}: vars"]}, valid_names)
