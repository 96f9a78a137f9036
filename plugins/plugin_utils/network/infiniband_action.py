# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The base of the actions on an InfiniBand fabric: its readings and plan, errors; no host is reached."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import FabricPlan, plan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import SubnetReadings, together, unpack
from ansible_collections.sailloft.fleet.plugins.plugin_utils.blueprint_file import read_site
from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction

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
_ARGUMENTS: dict[str, Any] = {
    "blueprint": {"type": "path", "required": True},
    "fabric": {"type": "str", "required": True},
    "guids": {"type": "dict", "default": {}},
    "found": {"type": "list", "elements": "str", "default": []},
    "readings": {"type": "dict", "default": {}},
    **_SETTINGS,
}


class InfinibandAction(ControllerAction):
    """Plan the fabric, and do the work of one module; a subclass names its options besides those of the fabric."""

    def __init_subclass__(cls) -> None:
        """Add the options of the fabric."""
        cls.OPTIONS = {**_ARGUMENTS, **cls.OPTIONS}

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        readings = _read(arguments["readings"])
        planned = plan(
            read_site(arguments["blueprint"]),
            arguments["fabric"],
            {name: arguments[name] for name in _SETTINGS},
            arguments["guids"],
            [*arguments["found"], readings.found],
            variables.get("groups"),
        )
        return self.work(planned, readings, arguments)

    @abstractmethod
    def work(self, plan: FabricPlan, readings: SubnetReadings, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module. Raises SailloftError."""


def _read(paths: Mapping[str, Any]) -> SubnetReadings:
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
