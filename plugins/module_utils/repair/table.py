# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one table of repairs: what a fault asks for, by its action in the table of health rules, and the steps. Pure.

The steps of a fault are tried in their order, each at most so often for one node and fault; then a person is asked. A
step is left out where the node cannot do it. No step proves itself: the fault's own check does, in a later round.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import CONFIGURATION

# What a step is called in the log, and in tasks/steps of the role.
DRAIN, EVICT, PROVE, RETURN = "drain", "evict", "prove", "return"
RESET, RESTART_VM, REBOOT, REIMAGE, SWAP, PERSON = "reset", "restart_vm", "reboot", "reimage", "swap", "person"
# Steps that change a node: their attempts are counted, and one whose outcome is not known is not repeated.
REPAIRS = (RESET, RESTART_VM, REBOOT, REIMAGE, SWAP)
# Beside the health check's own rules: neither the node nor its daemon answers.
NO_ANSWER = "no_answer"

Steps = tuple[tuple[str, int], ...]
# By the fault's action, and for some actions by its layer. Mild actions have no steps: such faults are only reported.
# "2 reboots, then inspection": leptonai/gpud; a reset cures at least 95% of slow links: arXiv 2407.05467, 2.3.
STEPS: dict[str, Steps] = {
    "drain": ((RESET, 1), (REBOOT, 2), (SWAP, 1)),
    "reset_gpu": ((RESET, 1), (REBOOT, 2), (SWAP, 1)),
    "restart_vm": ((RESTART_VM, 2), (SWAP, 1)),
    "reboot": ((REBOOT, 2), (SWAP, 1)),
    "person": ((SWAP, 1),),
}
# Software that is not as it must be: a new image, where the node boots one.
OF_CONFIGURATION: dict[str, Steps] = dict.fromkeys(("drain", "reboot"), ((REIMAGE, 2), (REBOOT, 2), (SWAP, 1)))
# Only a BMC reaches it.
OF_NO_ANSWER: Steps = ((REIMAGE, 2), (SWAP, 1))


def steps_of(check: str, action: str, layer: str) -> Steps:
    """Return the steps of a fault, each with the most attempts; none for one of an unknown action."""
    if check == NO_ANSWER:
        return OF_NO_ANSWER
    special = OF_CONFIGURATION.get(action) if layer == CONFIGURATION else None
    return special or STEPS.get(action, ())
