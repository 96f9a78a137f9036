# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Take proved nodes into service by scontrol, and keep spares in reserve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.errors import SchedulerError
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.service import NodeState, changes, read_nodes


def release(system: System, options: Mapping[str, Any], check: bool = False) -> Outcome:
    """Change what the options of the module ``slurm_release`` demand. Raises HostError.

    Fact: ``out``, the nodes that stay out of service, with state and reason, as lines.
    """
    outcome = Outcome()
    try:
        nodes = read_nodes(system.run(["scontrol", "show", "node", "--oneliner"]))
    except HostError as error:
        if not check:
            raise
        # A first run in check mode has started no slurmctld.
        outcome.facts["out"] = [f"which nodes are out of service is not known: {error.cause}"]
        return outcome
    except SchedulerError as error:
        raise HostError.of(error) from error
    service_changes = changes(nodes, options["proved"], options["spares"])
    for change in service_changes:
        outcome.differ(change.node, _shown(nodes[change.node]), f"{change.state} {change.reason}".strip())
        if not check:
            system.run(["scontrol", "update", *change.arguments])
    changed = {change.node for change in service_changes}
    outcome.facts["out"] = [
        f"{node.name}: {_shown(node)}"
        for node in nodes.values()
        if (node.is_out or node.is_absent) and node.name not in changed
    ]
    return outcome


def _shown(node: NodeState) -> str:
    return f"{'+'.join(sorted(node.states))}: {node.reason or 'no reason'}"
