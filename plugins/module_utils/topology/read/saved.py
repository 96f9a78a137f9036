# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read a host from the data that ``Host.to_dict`` returns, for example the ``topology`` of a module's result. Pure."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.checks import check
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import mark_management
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import FORMAT, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.shape import build


def read_saved(data: Any) -> Host:
    """Return the host. Raises TopologyError if the data has another shape or contradicts itself."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise TopologyError(
            f"not a topology: its format is {found!r}, expected {FORMAT!r}", "read it again with host_topology_info"
        )
    host = build(Host, {key: value for key, value in data.items() if key != "format"})
    check(host)
    mark_management(host.functions)
    return host
