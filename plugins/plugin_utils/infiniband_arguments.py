# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The arguments from which actions plan an InfiniBand fabric, and the files that have its readings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan, plan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import SubnetReadings, together, unpack
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
    "readings": {"type": "dict", "default": {}},
    **_SETTINGS,
}


def read_readings(paths: Mapping[str, Any]) -> SubnetReadings:
    """Return the readings in the files of ib_fabric_info, by host. Raises InfinibandError, StoredError."""
    by_host = {}
    for host, path in paths.items():
        try:
            with open(path, "rb") as stream:
                by_host[host] = unpack(str(path), stream.read())
        except (OSError, TypeError, ValueError) as error:
            raise InfinibandError(
                f"{error}", "give the path that ib_fabric_info returned", subject=f"readings of {host}"
            ) from None
    return together(by_host)


def planned_fabric(
    arguments: Mapping[str, Any], task_vars: Mapping[str, Any] | None, readings: SubnetReadings | None = None
) -> FabricPlan:
    """Return the plan for ``ARGUMENTS``. Raises SiteError, InfinibandError, StoredError.

    ``readings``: those of the arguments, if they were read already.
    """
    return plan(
        read_site(arguments["blueprint"]),
        arguments["fabric"],
        {name: arguments[name] for name in _SETTINGS},
        arguments["guids"],
        [*arguments["found"], (readings or read_readings(arguments["readings"])).found],
        (task_vars or {}).get("groups"),
    )
