# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Restart a node through its BMC with the modules of community.general, in one task."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.sailloft.fleet.plugins.module_utils.given.error import SailloftError

REMEDIES = (
    ("Error 401|Unauthorized name", "Check node_boot_bmc.username and password."),
    ("Incorrect password", "Check node_boot_bmc.password; some BMCs keep only 16 characters of it for IPMI."),
    ("certificate", "Name its certificate authority in node_boot_bmc.ca, or set verify_tls to false."),
    ("it has the systems", "Check node_boot_bmc.system."),
    ("pyghmi", "Install pyghmi on {host}, for the Python that Ansible runs there."),
)
OTHER = "Check whether {host} can reach this address, and whether the BMC needs a restart."
POWER_TIMEOUT_S = 60
POWER_DELAY_S = 2

Ask = Callable[..., "dict[str, Any]"]


class BmcError(SailloftError):
    """The reason why the BMC did not restart the node."""


class ActionModule(ActionBase):
    """Set the next boot to the network, restart the node, and read back that its power is on."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        variables = task_vars or {}
        result: dict[str, Any] = super().run(tmp, variables)
        if self._task.check_mode:
            return {**result, "skipped": True}
        _given, params = self.validate_argument_spec(
            {
                "node": {"type": "str", "required": True},
                "bmc": {"type": "dict", "required": True},
                "host": {"type": "str", "default": "localhost"},
            }
        )
        bmc = params["bmc"]
        since = time.time()

        def ask(module: str, only_read: bool = False, **arguments: Any) -> dict[str, Any]:
            self._task.check_mode = only_read
            try:
                answer = self._execute_module(f"community.general.{module}", arguments, task_vars=variables)
            except AnsibleConnectionFailure as error:
                raise BmcError(f"{params['host']}, from which it is accessed, does not answer: {error}") from error
            except AnsibleError as error:
                raise BmcError(str(error)) from error
            finally:
                self._task.check_mode = False
            if "ansible_facts" in answer:  # the interpreter that Ansible found; without it, Ansible searches again
                result["ansible_facts"] = answer["ansible_facts"]
            if answer.get("failed"):
                # pyghmi reports a BMC that does not answer as None.
                reason = answer.get("msg", answer)
                raise BmcError("it did not answer" if str(reason) == "None" else str(reason))
            return dict(answer)

        try:
            PROTOCOLS[bmc.get("type") or "redfish"](bmc, ask)
        except BmcError as error:
            return {**result, "failed": True, "msg": sentence(str(error), params["node"], bmc, params["host"])}
        return {**result, "changed": True, "since": since}


def sentence(why: str, node: str, bmc: Mapping[str, Any], host: str) -> str:
    """Return the failure as two sentences: the node, its BMC and the cause, and then the remedy."""
    remedy = next((text for pattern, text in REMEDIES if re.search(pattern, why)), OTHER).format(host=host)
    return f"{node}: its BMC {bmc.get('address') or '(none)'} did not restart it: {why}. {remedy}"


def redfish(bmc: Mapping[str, Any], ask: Ask) -> None:
    """Restart over Redfish. Raises BmcError."""
    given = {
        "category": "Systems",
        "baseuri": bmc.get("address"),
        "username": bmc.get("username"),
        "password": bmc.get("password"),
        "validate_certs": bmc.get("verify_tls", True),
        "timeout": bmc.get("timeout_s") or 30,
        **({"ca_path": bmc["ca"]} if bmc.get("ca") else {}),
    }

    def system() -> dict[str, Any]:
        answer = ask("redfish_info", command="GetSystemInventory", **given)
        return own_system(answer, bmc.get("system"))

    before = system()
    boot = {"bootdevice": "Pxe", "boot_override_mode": bmc.get("boot_mode") or "UEFI"}
    ask("redfish_command", command="SetOneTimeBoot", resource_id=before["Id"], **boot, **given)
    command = "PowerOn" if before["PowerState"] == "Off" else "PowerForceRestart"
    ask("redfish_command", command=command, resource_id=before["Id"], **given)
    wait_for_power(lambda: system()["PowerState"], "On", bmc)


def own_system(answer: Mapping[str, Any], wanted: str | None) -> dict[str, Any]:
    """Return the node's system from a BMC's systems: the wanted one, or else the only one. Raises BmcError."""
    systems = [entry[-1] for entry in answer["redfish_facts"]["system"]["entries"]]
    own = [one for one in systems if one["Id"] == wanted or not wanted]
    if len(own) != 1:
        names = ", ".join(sorted(str(one["Id"]) for one in systems))
        raise BmcError(f"it has the systems {names}; node_boot_bmc.system names {wanted or 'none'}")
    return dict(own[0])


def ipmi(bmc: Mapping[str, Any], ask: Ask) -> None:
    """Restart over IPMI. Raises BmcError."""
    given = {
        "name": bmc.get("address"),
        "port": bmc.get("port") or 623,
        "user": bmc.get("username"),
        "password": bmc.get("password"),
    }
    ask("ipmi_boot", bootdev="network", uefiboot=(bmc.get("boot_mode") or "UEFI") == "UEFI", **given)
    # "boot" resets a node that is on and starts one that is off.
    ask("ipmi_power", state="boot", timeout=power_timeout_s(bmc), **given)

    def power() -> str:
        # In check mode the module only reads the power, and reports a change if it is off.
        return "off" if ask("ipmi_power", only_read=True, state="on", **given)["changed"] else "on"

    wait_for_power(power, "on", bmc)


def power_timeout_s(bmc: Mapping[str, Any]) -> int:
    """Return the time limit for the power to be on after the command, in seconds."""
    return int(bmc.get("power_timeout_s") or POWER_TIMEOUT_S)


def wait_for_power(read: Callable[[], str], on: str, bmc: Mapping[str, Any]) -> None:
    """Read the power until it is on. Raises BmcError if it is not on at the end of the time limit."""
    limit_s = power_timeout_s(bmc)
    why = ""
    for _attempt in range(max(1, limit_s // POWER_DELAY_S)):
        try:
            power = read()
        except BmcError as error:
            why = f"it accepted the command, but does not answer {limit_s} s later: {error}"
        else:
            if power == on:
                return
            why = f"it accepted the command, but the power is {power} {limit_s} s later"
        time.sleep(POWER_DELAY_S)
    raise BmcError(why)


PROTOCOLS: dict[str, Callable[[Mapping[str, Any], Ask], None]] = {"redfish": redfish, "ipmi": ipmi}
