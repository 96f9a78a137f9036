# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""All settings that a reboot loses, applied now and saved for every boot."""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host import concerns
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import persistence, unit
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

KERNEL_SETTINGS = {
    "governor": {"type": "str"},
    "idle_exit_latency_us_max": {"type": "int"},
    "numa_balancing": {"type": "bool"},
    "ksm": {"type": "bool"},
    "transparent_huge_pages": {"type": "str", "choices": ["always", "madvise", "never"]},
    "avic": {"type": "bool"},
}


def options() -> dict[str, Any]:
    """Return the options of gpu_host_boot as an argument_spec."""
    return {
        **{concern: {"type": "dict"} for concern in concerns.ORDER},
        "kernel_settings": {"type": "dict", "options": KERNEL_SETTINGS},
        "now": {"type": "bool", "default": True},
    }


def check_form(request: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of ``request`` by concern. Raises RequestError for those that no host could have."""
    settings = {concern: data for concern, data in request.items() if concern != "now"}
    if settings.get("kernel_settings") is not None:
        # Only settings with a value are saved; the others are left unchanged.
        kernel_settings = settings["kernel_settings"].items()
        settings["kernel_settings"] = {name: value for name, value in kernel_settings if value is not None}
    settings = concerns.checked(settings)
    concerns.check_form(settings)
    return settings


def ensure(system: System, request: dict[str, Any], check: bool = False) -> Outcome:
    """Apply ``request``, checked by ``options``, and save it. Raises HostError."""
    settings = check_form(request)
    outcomes = concerns.ensure(system, settings, check) if request["now"] else {}
    lasting = concerns.to_save(settings, outcomes, unit.saved(system, persistence.SERVICE))
    saved = unit.ensure(system, persistence.SERVICE, lasting, check, running=request["now"])
    return concerns.together(outcomes, saved, check)
