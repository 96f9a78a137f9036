# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read a host from the data that ``Host.to_dict`` returns, for example the ``topology`` of a module's result. Pure."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError, load
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.checks import check
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import mark_management
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import FORMAT, Host


def read_saved(data: Any) -> Host:
    """Return the host. Raises TopologyError if the data has another shape or contradicts itself."""
    try:
        host = load(Host, data, FORMAT, "topology", "read it again with host_topology_info")
    except StoredError as error:
        raise TopologyError(error.cause, error.remedy) from error
    check(host)
    mark_management(host.functions)
    return host
