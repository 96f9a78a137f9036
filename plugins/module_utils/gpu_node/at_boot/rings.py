# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ring sizes of a node's NICs, by ethtool."""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

INTERFACES = "/sys/class/net"
# The vendor id of NVIDIA's (Mellanox's) NICs; the setting applies to their rings only.
MELLANOX = "0x15b3"
RINGS = ("RX", "TX")
TIMEOUT_S = 30


def ensure(system: System, entries: int, check: bool = False) -> Outcome:
    """Set the rings of each ConnectX and BlueField interface to ``entries`` entries, or to their maximum if it is less.

    0 leaves them unchanged. Raises HostError.
    """
    outcome = Outcome()
    if not entries:
        return outcome
    sizes = {}
    for name in system.names(INTERFACES):
        if system.read(f"{INTERFACES}/{name}/device/vendor") != MELLANOX or _is_representor(system, name):
            continue
        largest, now = read(system.run(["ethtool", "-g", name], timeout_s=TIMEOUT_S), name)
        wanted = {ring: min(entries, largest[ring]) for ring in RINGS if ring in largest}
        differing = {ring: size for ring, size in wanted.items() if now.get(ring) != size}
        for ring, size in differing.items():
            outcome.differ(f"{name} {ring} ring", now.get(ring), size)
        if differing and not check:
            arguments = [word for ring, size in differing.items() for word in (ring.lower(), str(size))]
            system.run(["ethtool", "-G", name, *arguments], timeout_s=TIMEOUT_S)
        sizes[name] = wanted
    outcome.facts["rings"] = sizes
    return outcome


def _is_representor(system: System, interface: str) -> bool:
    """Return True for switchdev's representors, "pf0vf1"; "p0" is an uplink (Linux networking/switchdev.rst)."""
    try:
        return (system.read(f"{INTERFACES}/{interface}/phys_port_name") or "").startswith("pf")
    except HostError:
        # Drivers without such names answer with an error.
        return False


def read(text: str, interface: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return the largest and the current sizes by ring from ``ethtool -g``. Raises HostError."""
    parts = re.split(r"^Current hardware settings:\s*$", text, maxsplit=1, flags=re.MULTILINE)
    if len(parts) != 2:
        raise HostError(f"ethtool -g {interface}: no ring sizes in its answer")
    largest, now = (
        {ring: int(size) for ring, size in re.findall(r"^(RX|TX):\s+(\d+)\s*$", part, re.M)} for part in parts
    )
    return largest, now
