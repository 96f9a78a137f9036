# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Find hosts of the inventory that have one BMC: a command for one of them would reach the other."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt

VARIABLE = "node_boot_bmc"
USUAL_PORTS = {"redfish": "443", "ipmi": "623"}


def refuse_shared_bmcs(names: Iterable[str], task_vars: Mapping[str, Any], templar: Any) -> None:
    """Refuse a host of ``names`` whose BMC another host of the inventory has. Raises AnsibleActionFail.

    Passwords are not read. A BMC whose address cannot be read is left to the task that uses it: it fails that host.
    """
    hostvars, of_run = task_vars["hostvars"], set(names)
    systems_by_bmc: dict[str, dict[str, str]] = {}  # address -> host -> system
    for name in hostvars._inventory.get_groups_dict()["all"]:
        variables = hostvars.raw_get(name)
        if VARIABLE in variables:
            shared = {key: task_vars[key] for key in ("hostvars", "groups") if key in task_vars}
            bmc_settings = _named(
                variables[VARIABLE], templar.copy_with_new_env(available_variables={**variables, **shared})
            )
            if bmc_settings["address"]:
                systems_by_bmc.setdefault(_bmc(bmc_settings), {})[name] = bmc_settings["system"]
    for bmc, systems in systems_by_bmc.items():
        for name in sorted(of_run.intersection(systems)):
            sharers = [
                sharer
                for sharer, system in systems.items()
                if sharer != name and (system == systems[name] or not system or not systems[name])
            ]
            if sharers:
                raise AnsibleActionFail(
                    f"{name}: {VARIABLE} is the BMC {bmc}, which is also that of {excerpt(sorted(sharers))}: a command "
                    "for one host would reach another; correct the wrong address, or name the system of each host "
                    f"({VARIABLE}.system) if this BMC has several. Nothing was run"
                )


def _named(value: Any, templar: Any) -> dict[str, str]:
    """Return what names a BMC; empty texts for what cannot be read."""
    try:
        bmc = value if isinstance(value, Mapping) else templar.template(value)
        return {key: str(templar.template(bmc.get(key) or "")) for key in ("type", "address", "port", "system")}
    except Exception:  # whatever a template raises
        return {"address": ""}


def _bmc(settings: Mapping[str, str]) -> str:
    """Return the address of a BMC in one form, with its port unless it is the protocol's own."""
    kind = settings["type"] or "redfish"
    text, port = settings["address"].strip().lower(), settings["port"] if kind == "ipmi" else ""
    if match := re.fullmatch(r"\[(.+)\](?::(\d+))?|([^:]+):(\d+)", text):
        text, port = match[1] or match[3], match[2] or match[4] or port
    try:
        text = str(ipaddress.ip_address(text))
    except ValueError:
        text = text.rstrip(".")
    usual = port in ("", USUAL_PORTS.get(kind, ""))
    return text if usual else f"[{text}]:{port}" if ":" in text else f"{text}:{port}"
