# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare the firmware of many nodes with their baselines in one call, and set what differs."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.baseline import Baseline, BaselineError
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.redfish import BaselineBmc, Registries
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.state import NodeFirmware
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.updates import Images
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.bmc.target import AT_ONCE, ask_many
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import REMEDIES, BmcError, BootBmc

# What one BMC may take to be read, in answers of its time limit: it is asked about 10 times, and most answer at once.
ANSWERS = 4
# The next step by what the cause contains, before those of every access to a BMC.
NEXT_STEPS = (
    ("has no baseline", "write one for this model, or check whether the node was replaced"),
    ("IPMI shows", "set node_boot_bmc.type to redfish"),
    *REMEDIES,
)
OTHERWISE = "read the BMC's own log, update its firmware or restart it"


@dataclass(frozen=True)
class BaselineNode:
    """A node, its BMC (None if the inventory has none) and its baselines by model."""

    name: str
    bmc: BootBmc | None
    baselines: dict[str, Baseline]


@dataclass(frozen=True)
class BaselineLimits:
    """Times in seconds: for the tasks of an update, and for values to be as wanted after a restart."""

    update_s: float
    read_back_s: float


class FirmwareOfNodes:
    """Nodes, accessed from ``host``."""

    def __init__(self, nodes: Sequence[BaselineNode], host: str, limits: BaselineLimits) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.host, self.limits = host, limits
        self.registries = Registries()

    def read(self) -> dict[str, NodeFirmware]:
        """Return what each node's BMC shows."""
        return self._ask(lambda bmc: bmc.read(), 0.0)

    def read_back(self) -> dict[str, NodeFirmware]:
        """Return what each node's BMC shows after its restart, as soon as it is as wanted."""
        return self._ask(lambda bmc: bmc.read_back(self.limits.read_back_s), self.limits.read_back_s)

    def set(self, before: dict[str, NodeFirmware], kinds: Collection[str]) -> dict[str, NodeFirmware]:
        """Set what differs, and return what each BMC shows then. ``before``: what ``read`` returned.

        Nothing is sent, and BaselineError is raised, if a value is not possible or an image not the one of the
        baseline.
        """
        refuse(before)
        wanted = [
            firmware
            for name, node in before.items()
            for setting in node.differing
            if setting.kind == "firmware" and "firmware" in kinds
            for firmware in self.nodes[name].baselines[node.model].firmware
            if firmware.name == setting.name
        ]
        with tempfile.TemporaryDirectory() as folder:
            images = Images(folder)
            images.fetch(wanted)
            updates = len({firmware.name for firmware in wanted})
            return self._ask(lambda bmc: bmc.set(kinds, images, self.limits.update_s), updates * self.limits.update_s)

    def _ask(self, ask: Callable[[BaselineBmc], NodeFirmware], more_s: float) -> dict[str, NodeFirmware]:
        def of_node(node: BaselineNode) -> NodeFirmware:
            if node.bmc is None:
                return NodeFirmware(error="it has no node_boot_bmc")
            try:
                return ask(BaselineBmc(node.bmc, node.baselines, self.registries))
            except BmcError as error:
                return NodeFirmware(error=_failure(node.bmc, self.host, str(error)))
            except Exception as error:  # an answer of a kind that nobody expected must not end the others
                # Not its text, which may have parts of the request.
                return NodeFirmware(error=f"the answer of its BMC could not be read ({type(error).__name__})")

        rounds = -(-len(self.nodes) // AT_ONCE)
        slowest_s = max((node.bmc.timeout_s for node in self.nodes.values() if node.bmc), default=0)
        limit_s = rounds * (ANSWERS * slowest_s + more_s)
        answers = ask_many(self.nodes, of_node, AT_ONCE, limit_s)
        late = NodeFirmware(error=f"its BMC did not answer in {limit_s:g} s")
        return {name: answers.get(name, late) for name in self.nodes}


def refuse(nodes: Mapping[str, NodeFirmware]) -> None:
    """Raise BaselineError if a node's firmware cannot have a value of its baseline."""
    refused: dict[str, list[str]] = {}
    for name, node in nodes.items():
        for text in node.refused:
            refused.setdefault(text, []).append(name)
    if refused:
        cause = "; ".join(f"{fold(names)}: {text}" for text, names in refused.items())
        raise BaselineError(cause, "nothing was sent; correct node_boot_baselines")


def _failure(bmc: BootBmc, host: str, cause: str) -> str:
    step = next((text for pattern, text in NEXT_STEPS if re.search(pattern, cause)), OTHERWISE)
    return f"its BMC {bmc.address}: {cause}; {step.format(host=host)}"
