# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The arguments from which actions plan an InfiniBand fabric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan, plan
from ansible_collections.sailloft.fleet.plugins.plugin_utils.blueprint_file import read_site

_SETTINGS: dict[str, Any] = {
    "subnet_manager": {"type": "str", "choices": ["nvidia", "opensm"], "default": "opensm"},
    "managers": {"type": "list", "elements": "str", "default": []},
    "routing": {"type": "list", "elements": "str"},
    "default": {"type": "dict"},
    "partitions": {"type": "dict"},
    "service_levels": {"type": "dict"},
    "options": {"type": "dict"},
    "directory": {"type": "path", "default": "/etc/opensm"},
}
ARGUMENTS: dict[str, Any] = {
    "blueprint": {"type": "path", "required": True},
    "fabric": {"type": "str", "required": True},
    "guids": {"type": "dict", "default": {}},
    "found": {"type": "list", "elements": "str", "default": []},
    **_SETTINGS,
}


def planned_fabric(arguments: Mapping[str, Any], task_vars: Mapping[str, Any] | None) -> FabricPlan:
    """Return the plan for ``ARGUMENTS``. Raises SiteError, InfinibandError."""
    return plan(
        read_site(arguments["blueprint"]),
        arguments["fabric"],
        {name: arguments[name] for name in _SETTINGS},
        arguments["guids"],
        arguments["found"],
        (task_vars or {}).get("groups"),
    )
