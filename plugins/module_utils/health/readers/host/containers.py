# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ability of a node to start jobs' containers, by the command that the role scheduler installs there."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Measurement, Place, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node

COMMAND = "/usr/bin/sailloft-container"
# The command describes the GPUs anew after a change of their driver, which may take a minute.
ANSWER_S = 90.0
CANNOT = 1


def read(node: Node) -> Reading:
    """Measure by ``sailloft-container check``, which starts no container. Raises NotMeasuredError."""
    if COMMAND.rpartition("/")[2] not in node.names("/usr/bin"):
        return Reading("containers")
    argv = [COMMAND, "check"]
    ran = node.run(argv, ANSWER_S)
    reason = "; ".join((ran.stdout.strip() or ran.stderr.strip()).splitlines())
    value = ran.rc == CANNOT if ran.rc in (0, CANNOT) else None
    return Reading(
        "containers", (Measurement("container_cannot_start", Place("node"), value, " ".join(argv), f"{reason:.400}"),)
    )
