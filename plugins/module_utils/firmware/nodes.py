# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare the firmware of many nodes with their baselines in one call, and set what differs."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.baseline import Baseline, BaselineError
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.redfish import BaselineBmc, Registries
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.state import NodeFirmware
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.updates import Images
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.at_once import AT_ONCE, at_once
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import REMEDIES, BmcError, BootBmc

# What one BMC may take to be read, in answers of its time limit: it is asked about 10 times, and most answer at once.
ANSWERS = 4
# Seconds for the tasks of one update, and for values to be shown after a restart. Estimates: no maker states them.
UPDATE_S, READ_BACK_S = 1800.0, 120.0
# The next step by what the cause contains, before those of every access to a BMC.
NEXT_STEPS = (
    ("has no baseline", "write one for this model, or check whether the host was replaced"),
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

    update_s: float = UPDATE_S
    read_back_s: float = READ_BACK_S


class FirmwareOfNodes:
    """Nodes, accessed from ``host``."""

    def __init__(self, nodes: Sequence[BaselineNode], host: str, limits: BaselineLimits) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.host, self.limits = host, limits
        self.registries = Registries()

    def read(self) -> dict[str, NodeFirmware]:
        """Return what each node's BMC shows."""
        return self._ask(lambda bmc: bmc.read(), 0.0)

    def read_back(self, kinds: Collection[str]) -> dict[str, NodeFirmware]:
        """Return what each node's BMC shows after its restart, as soon as these kinds are as wanted."""
        return self._ask(lambda bmc: bmc.read_back(kinds, self.limits.read_back_s), self.limits.read_back_s)

    def set(self, before: dict[str, NodeFirmware], kinds: Collection[str]) -> dict[str, NodeFirmware]:
        """Set what differs, and return what each BMC shows then. ``before``: what ``read`` returned.

        Nothing is sent to a node whose firmware cannot have a value, or for which an image is not the one of its
        baseline: these have the reasons as ``refused``.
        """
        result = dict(before)
        updates_s: dict[str, float] = {}
        with tempfile.TemporaryDirectory() as folder:
            images = Images(folder)
            for name, node in before.items():
                settings = node.to_send(kinds)
                names = {setting.name for setting in settings if setting.kind == "firmware"}
                refused = list(node.refused) or self._image_faults(name, node.model, names, images)
                if refused:
                    error = f"nothing was sent: {'; '.join(refused)}; correct node_bmc_baselines"
                    result[name] = replace(node, error=error, refused=tuple(refused))
                elif settings:
                    updates_s[name] = len(names) * self.limits.update_s
            most_s = max(updates_s.values(), default=0.0)
            return {**result, **self._ask(lambda bmc: bmc.set(kinds, images, self.limits.update_s), most_s, updates_s)}

    def _image_faults(self, name: str, model: str, names: Collection[str], images: Images) -> list[str]:
        """Fetch the images of the firmware of these names of a node's baseline, and return why some cannot be used."""
        faults = []
        for wanted in self.nodes[name].baselines[model].firmware if names else ():
            try:
                if wanted.name in names:
                    images.fetch(wanted)
            except BaselineError as error:
                faults.append(str(error))
        return faults

    def _ask(
        self, ask: Callable[[BaselineBmc], NodeFirmware], more_s: float, names: Iterable[str] | None = None
    ) -> dict[str, NodeFirmware]:
        answers: dict[str, NodeFirmware] = {}

        def of_node(name: str) -> NodeFirmware:
            node = self.nodes[name]
            if node.bmc is None:
                return NodeFirmware(error="it has no node_boot_bmc")
            return ask(BaselineBmc(node.bmc, node.baselines, self.registries))

        def ended(name: str, outcome: NodeFirmware | Exception) -> None:
            if isinstance(outcome, NodeFirmware):
                answers[name] = outcome
                return
            cause = f"its answer could not be read ({type(outcome).__name__})"  # its text may have parts of the request
            if isinstance(outcome, BmcError):
                cause = str(outcome)
            elif isinstance(outcome, TimeoutError):
                cause = f"it did not answer in {limit_s(name):g} s"
            answers[name] = NodeFirmware(error=self._failure(name, cause))

        def limit_s(name: str) -> float:
            bmc = self.nodes[name].bmc
            return ANSWERS * (bmc.timeout_s if bmc else 1) + more_s

        at_once(self.nodes if names is None else names, of_node, ended, limit_s)
        return answers

    def _failure(self, name: str, cause: str) -> str:
        bmc = self.nodes[name].bmc
        step = next((text for pattern, text in NEXT_STEPS if re.search(pattern, cause)), OTHERWISE)
        return f"its BMC {bmc.address if bmc else ''}: {cause}; {step.format(host=self.host)}"


def call_limit_s(nodes: Sequence[dict[str, Any]]) -> float:
    """Return the time limit in seconds for one call with ``nodes``, the module's option; they take turns."""
    images = max(
        (len(model.get("firmware") or {}) for node in nodes for model in node["baselines"].values()), default=0
    )
    bmc_s = max((float((node["bmc"] or {}).get("timeout_s") or 30) for node in nodes), default=0.0)
    return -(-len(nodes) // AT_ONCE) * (ANSWERS * bmc_s + READ_BACK_S + images * UPDATE_S)
