# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Make one table of the health of many nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_health_table
short_description: Make one table of the health of many nodes, worst first
version_added: 0.1.0
description:
  - Folds equal faults of several nodes into one line with what a technician needs, and names nodes whose values are far
    from the median of like nodes.
  - A node without an answer, or with a state that is too old, is named and never counted as healthy. One whose reading
    was skipped has no row, unless its BMC was read.
  - Says which spares are healthy if a node has a fault; a blueprint sets C(site_spare) of them.
extends_documentation_fragment: [sailloft.fleet.of_nodes]
positional: hostvars
options:
  variable:
    description: The variable with the result of M(sailloft.fleet.node_health_info).
    type: str
    default: node_health_read
  bmcs:
    description: What the nodes' BMCs say, as RV(sailloft.fleet.node_health_info#module:bmcs).
    type: dict
"""

EXAMPLES = r"""
table: "{{ ansible_play_hosts_all | sailloft.fleet.node_health_table(hostvars) }}"
"""

RETURN = r"""
_value:
  description: >-
    C(lines) (the table), C(summary) (one sentence), C(holds) (whether all nodes are known and none has a fault outside
    of a maintenance), the names of the nodes that are C(healthy), C(faulty), C(noted) (with an application's faults or
    notes only), C(unknown), C(drained) and C(maintained), and the C(outliers).
  type: dict
"""

from collections.abc import Iterator, Mapping
from typing import Any


def node_health_table(
    names: list[str],
    hostvars: Mapping[str, Any],
    variable: str = "node_health_read",
    bmcs: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the table."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.table import table

    def read() -> Iterator[tuple[str, Any]]:
        for name in names:
            result = hostvars[name].get(variable)
            if not (isinstance(result, Mapping) and result.get("skipped")):
                yield name, result
            elif bmcs and name in bmcs:
                yield name, {"health": bmcs[name]}

    spares = frozenset(name for name in names if hostvars[name].get("site_spare"))
    return table(read(), bmcs, spares=spares).to_dict()


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"node_health_table": node_health_table}
