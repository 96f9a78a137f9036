# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The refusal to set NICs that could be the functions that manage NVSwitches. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import possible_management
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host


def refuse_unknown(host: Host, addresses: Iterable[str], subject: str) -> None:
    """Raise HostError if one of the functions could manage NVSwitches, because its VPD could not be read."""
    unknown = sorted({item.address for item in possible_management(host)} & set(addresses))
    if unknown:
        raise HostError(
            f"{subject}: whether {', '.join(unknown)} manages NVSwitches is not known, because VPD could not be read",
            "see the kernel's log, and leave it out until it can be read",
        )
