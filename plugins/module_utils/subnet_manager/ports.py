# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the counters of all ports of a subnet; disable and enable a switch's port."""

from __future__ import annotations

import re
import time
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.manager_files import NAMES
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.readings import ManagerReadings
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.diags import COUNTERS, Diags

ENABLED, DISABLED = "enabled", "disabled"
_STATE = re.compile(r"(?m)^PhysLinkState:\.+(\w+)$")


def read_ports(diags: Diags, folder: Path) -> ManagerReadings:
    """Return the links of a subnet, the counters of its ports with their time, and the disabled ports."""
    names = folder / NAMES
    mapped = ["--node-name-map", str(names)] if names.is_file() else []
    links = diags.run("ibnetdiscover", "-p", *mapped)
    # The distribution's file of thresholds would hide small numbers.
    counters = diags.run(COUNTERS, "--threshold-file", "/dev/null", *mapped)
    read_at_s = time.time()
    states = diags.run("iblinkinfo", "-l", *mapped)
    disabled = "".join(f"{line}\n" for line in states.splitlines() if "Disabled" in line)
    return ManagerReadings(True, found=links, counters=counters, read_at_s=read_at_s, disabled=disabled)


def set_port(diags: Diags, guid: str, number: int, state: str, check: bool = False) -> Outcome:
    """Disable or enable a port of the switch with this GUID, or compare it. Raises InfinibandError."""
    outcome = Outcome()
    present = _state(diags, guid, number)
    if present == state:
        return outcome
    outcome.differ(f"{guid} port {number}", present, state)
    if not check:
        diags.run("ibportstate", "-G", guid, str(number), "disable" if state == DISABLED else "enable")
        if _state(diags, guid, number) != state:
            raise InfinibandError(
                f"it is not {state} after ibportstate", "give it the fabric's M_Key", subject=f"{guid} port {number}"
            )
    return outcome


def _state(diags: Diags, guid: str, number: int) -> str:
    text = diags.run("smpquery", "-G", "portinfo", guid, str(number))
    match = _STATE.search(text)
    if not match:
        raise InfinibandError("smpquery names no physical state", "run it by hand", subject=f"{guid} port {number}")
    return DISABLED if match[1] == "Disabled" else ENABLED
