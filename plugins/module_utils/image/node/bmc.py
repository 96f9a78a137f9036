# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node's BMC: the next boot from the network, read back, then a restart, then the power, read after each command."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

# How long a BMC may take to show the boot override that it accepted, in seconds. An estimate: no maker states it.
READ_BACK_S = 10
POLL_S = 2

# The next step by what the cause contains; the first that matches counts. {host} is the host that accesses the BMC.
REMEDIES = (
    (r"\bcode 40[13]\b|Unauthorized name", "check node_boot_bmc.username and password, and the rights of this user"),
    ("Incorrect password", "check node_boot_bmc.password; some BMCs keep only 16 characters of it for IPMI"),
    ("certificate verify failed", "name its certificate authority in node_boot_bmc.ca, or set verify_tls to false"),
    ("it has the systems", "check node_boot_bmc.system"),
    ("SecureBoot", "enrol the certificate in the firmware's setup (docs/how-to/secure-boot.md)"),
    ("not in PEM", "give the certificate's text, from BEGIN CERTIFICATE on"),
    ("No module named", "install this package on {host}, for the Python that Ansible runs there"),
    (
        "answer no HTTP boot",
        "set boot_server_dhcp to full; or node_boot_bmc.boot_target to UefiHttp, if the other DHCP server answers it",
    ),
    ("does not offer", "set node_boot_bmc.boot_target to one that it offers"),
    (
        "cannot be reached|did not answer",
        "check whether {host} can reach this address, and whether the BMC needs a restart",
    ),
)
# A BMC that answers is reached: it refused, or did something else.
ANSWERED = "read the BMC's own log, try node_boot_bmc.boot_mode and boot_target, update its firmware or restart it"

# The suboptions of modules' option bmc.
OPTIONS: dict[str, dict[str, Any]] = {
    "type": {"type": "str", "choices": ["redfish", "ipmi"], "default": "redfish"},
    "address": {"type": "str", "required": True},
    "port": {"type": "int", "default": 623},
    "username": {"type": "str", "required": True},
    "password": {"type": "str", "required": True, "no_log": True},
    "verify_tls": {"type": "bool", "default": True},
    "ca": {"type": "path"},
    "system": {"type": "str"},
    "boot_mode": {"type": "str", "choices": ["UEFI", "Legacy"], "default": "UEFI"},
    "boot_target": {"type": "str", "choices": ["Pxe", "UefiHttp"]},
    "timeout_s": {"type": "int", "default": 30},
    "power_timeout_s": {"type": "int", "default": 60},
}


class BmcError(SailloftError):
    """The reason why the BMC did not restart the node."""


class RequestedError(BmcError):
    """The reason why the BMC may not have restarted the node, after it was asked to: only the node's boot decides."""


@dataclass
class BootBmc:
    """The variable ``node_boot_bmc``: its protocol, address, account and what it is asked for."""

    address: str
    username: str
    password: str = field(repr=False)
    type: str = "redfish"
    port: int = 623
    verify_tls: bool = True
    ca: str | None = None
    system: str | None = None
    boot_mode: str = "UEFI"
    boot_target: str | None = None
    timeout_s: int = 30
    power_timeout_s: int = 60
    http_boot: bool = True

    @classmethod
    def of(cls, params: dict[str, Any], http_boot: bool = True) -> BootBmc:
        """Return the BMC of a module's option ``bmc``; ``http_boot``: whether the boot servers answer UEFI's."""
        return cls(**{item.name: params[item.name] for item in fields(cls) if item.name in params}, http_boot=http_boot)

    @property
    def limit_s(self) -> float:
        """Return the time limit for a whole restart in seconds: about twelve requests, and two changes of the power."""
        return 12.0 * self.timeout_s + 2.0 * self.power_timeout_s + READ_BACK_S

    def failure(self, node: str, host: str, cause: str, refused: str = "did not restart it") -> ImageError:
        """Return the error of what was requested for ``node`` from ``host``, by default a restart."""
        remedy = next((text for pattern, text in REMEDIES if re.search(pattern, cause)), ANSWERED)
        return ImageError(f"its BMC {self.address} {refused}: {cause}", remedy.format(host=host), subject=node)


def wait_for_override(read: Callable[[], str], wanted: str) -> None:
    """Read the next boot until it is the wanted one. Raises BmcError if the BMC shows another one."""
    attempts = READ_BACK_S // POLL_S
    for attempt in range(attempts):
        shown = read()
        if shown == wanted:
            return
        if attempt + 1 < attempts:
            time.sleep(POLL_S)
    raise BmcError(
        f"it accepted {wanted} as the next boot, but shows {shown} {READ_BACK_S} s later; it was not restarted"
    )


def wait_for_power(read: Callable[[], str], wanted: str, limit_s: int) -> None:
    """Read the power ("on", "off") until it is the wanted one. Raises BmcError at the end of the time limit.

    It is a RequestedError where the BMC no longer answers.
    """
    attempts = max(1, limit_s // POLL_S)
    for attempt in range(attempts):
        try:
            power = read()
            if power == wanted:
                return
            failure = BmcError(f"it accepted the command, but the power is {power}, not {wanted}, {limit_s} s later")
        except BmcError as error:
            failure = RequestedError(f"it accepted the command, but does not answer {limit_s} s later: {error}")
        if attempt + 1 < attempts:
            time.sleep(POLL_S)
    raise failure
