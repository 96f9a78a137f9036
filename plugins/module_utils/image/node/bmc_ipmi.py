# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Restarts and fencing over IPMI with pyghmi, which community.general's ipmi_power and ipmi_boot use, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import (
    BmcError,
    BootBmc,
    wait_for_override,
    wait_for_power,
)

try:
    from pyghmi.exceptions import IpmiException
    from pyghmi.ipmi import command
except ImportError:
    command = None

# IPMI 2.0, table 28-14 "Boot Option Parameters": the parameter of the boot flags, and its device selector for PXE.
BOOT_FLAGS = 5
FORCE_PXE = 1


def restart(bmc: BootBmc) -> None:
    """Restart the node from the network, or start it if it is off. Raises BmcError."""
    session = connect(bmc)
    with errors_of_bmc():
        accepted(session.set_bootdev("network", uefiboot=bmc.boot_mode == "UEFI"))
        wait_for_override(lambda: next_boot(session), "network")
        # "boot" resets a node that is on and starts one that is off.
        accepted(session.set_power("boot", wait=bmc.power_timeout_s))
    wait_for_power(lambda: power(session), "on", bmc.power_timeout_s)


def fence(bmc: BootBmc, check: bool) -> str:
    """Power the node off, read back that it is, and return the power before. Raises BmcError.

    With ``check`` the power is only read.
    """
    session = connect(bmc)
    old_power = power(session)
    if old_power == "off" or check:
        return old_power
    with errors_of_bmc():
        accepted(session.set_power("off", wait=bmc.power_timeout_s))
    wait_for_power(lambda: power(session), "off", bmc.power_timeout_s)
    return old_power


def connect(bmc: BootBmc) -> Any:
    """Return pyghmi's session with the BMC. Raises BmcError."""
    if command is None:
        raise BmcError("No module named pyghmi")
    with errors_of_bmc():
        return command.Command(bmc=bmc.address, userid=bmc.username, password=bmc.password, port=bmc.port)


def power(session: Any) -> str:
    """Return the power, "on" or "off". Raises BmcError."""
    with errors_of_bmc():
        return str(session.get_power()["powerstate"])


def next_boot(session: Any) -> str:
    """Return "network" or what else the BMC shows as the next boot.

    pyghmi's get_bootdev shows a device only with the bit "valid", which some BMCs (OpenIPMI's simulator) leave out. A
    BMC that cannot show the boot flags is judged by the node's boot alone.
    """
    answer = session.raw_command(netfn=0, command=9, data=(BOOT_FLAGS, 0, 0))
    if "error" in answer or len(answer["data"]) < 4:
        return "network"
    device = answer["data"][3] >> 2 & 0b1111
    return {0: "no override", FORCE_PXE: "network"}.get(device, f"the boot device {device}")


def accepted(answer: Any) -> None:
    """Raise BmcError if pyghmi's answer is an error: some are returned, others raised."""
    if isinstance(answer, dict) and "error" in answer:
        raise BmcError(str(answer["error"]))


@contextmanager
def errors_of_bmc() -> Iterator[None]:
    """Raise pyghmi's errors as BmcError. It reports a BMC that does not answer without a text."""
    try:
        yield
    except IpmiException as error:
        raise BmcError("it did not answer" if str(error) in ("", "None", "timeout") else str(error)) from error
