# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The mode of a NIC's embedded switch, by devlink: legacy, or switchdev with a representor for each VF.

Sources: Linux Documentation/networking/devlink/ and devlink-dev(8); iproute2's devlink/devlink.c for the JSON
(pr_out_eswitch).
"""

from __future__ import annotations

import json

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

LEGACY, SWITCHDEV = "legacy", "switchdev"
MODES = (LEGACY, SWITCHDEV)
SET = ["devlink", "dev", "eswitch", "set"]
HANDLE = "pci/"


def handle(address: str) -> str:
    """Return devlink's name of a PCI function; ``address_of`` is its inverse."""
    return HANDLE + address


def address_of(name: str) -> str:
    """Return the address of the PCI function that devlink names so."""
    return name[len(HANDLE) :]


def mode(system: System, address: str) -> str:
    """Return the mode. Raises HostError if the driver has none to read."""
    try:
        answer = system.run(["devlink", "-j", "dev", "eswitch", "show", handle(address)])
    except HostError as error:
        raise HostError(
            f"sriov: the mode of {address}'s embedded switch cannot be read: {error.cause}",
            "leave eswitch_mode out if its driver has no such switch; otherwise correct what devlink reports",
        ) from error
    try:
        return str(json.loads(answer)["dev"][handle(address)]["mode"])
    except (ValueError, LookupError, TypeError) as error:
        raise HostError(
            f"sriov: 'devlink -j dev eswitch show {handle(address)}' gave {answer[:200]!r}, without a mode",
            "leave eswitch_mode out, or update iproute2",
        ) from error


def set_mode(system: System, address: str, wanted: str) -> None:
    """Set the mode. Raises HostError."""
    system.run([*SET, handle(address), "mode", wanted])
