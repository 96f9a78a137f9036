# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Settings in the firmware of NVIDIA/Mellanox NICs, through mstconfig. They take effect at the next boot.

The tool prints one line per setting, "name  default  current  next boot", with values like "True(1)", "per_mkey(0)" or
"16"; old firmware (ConnectX-3) reports no current value. Format: mstflint, mlxconfig/mlxcfg_ui.cpp.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import acs_ports, nic_families
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices.nvswitch_management import refuse_unknown
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import lockdown
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import selectors
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import PURPOSES
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

MELLANOX = 0x15B3
# Settings that firmware hides until the named setting is on.
REVEALED_BY = {"MAX_ACC_OUT_READ": "ADVANCED_PCI_SETTINGS"}
NAME = re.compile(r"[A-Z][A-Za-z0-9_]*(\[[0-9]+\])?")


def options() -> dict[str, Any]:
    """Return the options of the module as an argument_spec."""
    setting = {
        "devices": {"type": "list", "elements": "str", "required": True},
        "values": {"type": "dict", "required": True},
    }
    by_family = {
        "devices": {"type": "list", "elements": "str", "required": True},
        "purpose": {"type": "str", "choices": list(PURPOSES), "required": True},
    }
    return {
        "settings": {"type": "list", "elements": "dict", "required": True, "options": setting},
        "by_family": {"type": "dict", "options": by_family},
    }


@dataclass(frozen=True)
class Value:
    """A value as the tool prints it: a word, a number, or both ("per_mkey(0)")."""

    text: str

    def is_wanted(self, wanted: Any) -> bool:
        """Return True if the value equals the user's: True, 44, "44", "0x2c", "per_mkey" or "per_mkey(0)"."""
        number = _number(self.text)
        if isinstance(wanted, (bool, int)):
            return number == int(wanted)
        text = str(wanted).strip()
        word = self.text.split("(")[0]
        if text.lower() in (self.text.lower(), word.lower()):
            return True
        return number is not None and "(" not in text and _number(text) == number


@dataclass(frozen=True)
class FirmwareSetting:
    """One setting of a NIC; ``current`` is None if the firmware does not report it."""

    current: Value | None
    next_boot: Value

    def waits_for_boot(self, wanted: Any) -> bool:
        """Return True if a value other than the user's is known to be in effect."""
        return self.current is not None and not self.current.is_wanted(wanted)


def parse(output: str) -> dict[str, FirmwareSetting]:
    """Return the output of ``mstconfig -e query`` by name. Raises HostError if it has no table."""
    columns: list[str] = []
    settings = {}
    for line in output.splitlines():
        if line.strip().startswith("Configurations:"):
            columns = re.split(r"\s{2,}", line.strip().split(":", 1)[1].strip())
            if "Next Boot" not in columns:
                break
            continue
        cells = re.split(r"\s{2,}", line.strip().lstrip("*").strip())
        if columns and len(cells) == len(columns) + 1:
            row = dict(zip(columns, cells[1:]))
            current = Value(row["Current"]) if "Current" in row else None
            settings[cells[0]] = FirmwareSetting(current, Value(row["Next Boot"]))
    if not settings:
        raise HostError(
            f"mstconfig printed no table with a column 'Next Boot': {output.strip()[:200]!r}", "update mstflint"
        )
    return settings


def wanted(data: Any, host: Host) -> dict[str, dict[str, Any]]:
    """Return ``{"settings": [{"devices": ["15b3:*"], "values": {"ATS_ENABLED": true}}]}`` by address.

    With ``by_family`` the table of families comes first, and ``settings`` override it. Functions of one NIC share its
    firmware: the first one (.0), if it is not a VF, represents the NIC. Raises HostError.
    """
    request = Settings(RequestError, "nic_firmware", data)
    request.only("settings", "by_family")
    request.need("settings")
    result: dict[str, dict[str, Any]] = _by_family(request, host)
    for entry in request.parts("settings"):
        entry.only("devices", "values")
        entry.need("devices", "values")
        wanted_values = entry.value("values", values.by_name)
        for name, value in wanted_values.items():
            if (
                not NAME.fullmatch(name)
                or not isinstance(value, (bool, int, str))
                or not re.fullmatch(r"[A-Za-z0-9_.-]+", str(value))
            ):
                raise entry.refuse(f"{name}={value!r} is not a firmware setting", "mstconfig query lists those it has")
        for selector in entry.value("devices", values.texts):
            for function in selectors.select(host, [selector], entry.subject):
                if _is_nic(function):
                    result.setdefault(function.address, {}).update(wanted_values)
                elif selectors.is_address(selector):
                    raise entry.refuse(
                        f"{function.address} is not a physical function of an NVIDIA/Mellanox NIC",
                        "remove it from the list",
                    )
    refuse_unknown(host, result, request.subject)
    return result


def _by_family(request: Settings, host: Host) -> dict[str, dict[str, Any]]:
    """Return the settings of the table of families by address, for ``by_family`` (see ``acs_ports.wanted``)."""
    if "by_family" not in request.data:
        return {}
    plan = acs_ports.wanted(request.part("by_family"), host)
    nics = [host.function(address) for address in plan.nics] if plan else []
    settings_by_address = {nic.address: nic_families.values(nic, plan) for nic in nics if plan and _is_nic(nic)}
    return {address: settings for address, settings in settings_by_address.items() if settings}


@dataclass(frozen=True)
class FirmwarePlan:
    """The plan of one NIC: settings to change, settings that its firmware still hides, and settings it lacks."""

    changes: dict[str, Any]
    hidden: list[str]
    lacking: list[str]


def plan(seen: dict[str, FirmwareSetting], want: dict[str, Any]) -> FirmwarePlan:
    """Divide the requested settings of one NIC by what its firmware shows."""
    absent = [name for name in want if name not in seen]
    # If a setting is not shown although the setting that reveals it is in effect, the firmware does not have it.
    hidden = [name for name in absent if _may_appear(seen, want, name)]
    changes = {
        name: value for name, value in want.items() if name in seen and not seen[name].next_boot.is_wanted(value)
    }
    return FirmwarePlan(changes, hidden, [name for name in absent if name not in hidden])


def _may_appear(seen: dict[str, FirmwareSetting], want: dict[str, Any], name: str) -> bool:
    revealer = REVEALED_BY.get(name, "")
    if revealer not in want or revealer not in seen:
        return False
    # Old firmware does not report the current value; the value for the next boot is used instead.
    in_effect = seen[revealer].current or seen[revealer].next_boot
    return not in_effect.is_wanted(want[revealer])


def ensure(system: System, host: Host, data: Any, check: bool = False) -> Outcome:
    """Set what differs; ``reboot_required`` in the facts is True if a NIC still runs with other values.

    All NICs are read and planned before one is written. Settings that a NIC lacks or refuses are in the outcome's
    ``failed``, after all others were set. Raises RequestError for a mistake in ``data``.
    """
    outcome = Outcome(facts={"reboot_required": False, "devices": {}, "failures": [], "unknown": []})
    failures: list[str] = outcome.facts["failures"]
    want = wanted(data, host)
    by_hand = {**{address: {} for address in want}, **wanted({**data, "by_family": None}, host)}
    seen: dict[str, dict[str, FirmwareSetting]] = {}
    for address in sorted(want):
        try:
            seen[address] = query(system, address)
        except HostError as error:
            failures.append(f"nic_firmware: {address}: {error}{_because(system)}")
    for address, old_settings in list(seen.items()):
        planned = plan(old_settings, want[address])
        # Firmware may lack a setting of its family's table. It is an error if it lacks a setting from the inventory.
        lacking = [name for name in planned.lacking if name in by_hand[address]]
        unknown = [name for name in planned.lacking if name not in lacking]
        outcome.facts["unknown"] += [f"the firmware of {address} does not know {name}" for name in unknown]
        if lacking:
            failures.append(
                f"nic_firmware: the firmware of {address} does not know {', '.join(lacking)}: leave it out for this "
                "NIC, turn on what reveals it (ADVANCED_PCI_SETTINGS), or update the firmware"
            )
        # Settings revealed by a setting of this call; if that was set before, only the boot can reveal them.
        revealed = [name for name in planned.hidden if REVEALED_BY[name] in planned.changes]
        changes = {**planned.changes, **{name: want[address][name] for name in revealed}}
        if not check and planned.changes:
            try:
                seen[address] = _set(system, address, planned.changes, want[address])
            except HostError as error:
                failures.append(str(error))
                continue
            # Settings that the firmware shows only after a boot are not set yet.
            changes = {name: value for name, value in changes.items() if name in seen[address]}
        for name, value in changes.items():
            outcome.differ(
                f"{address} {name}",
                old_settings[name].next_boot.text if name in old_settings else "hidden",
                _text(value),
            )
        _report(outcome, address, seen[address], want[address], planned)
    outcome.failed = "\n".join(failures)
    return outcome


def _report(
    outcome: Outcome, address: str, seen: dict[str, FirmwareSetting], want: dict[str, Any], planned: FirmwarePlan
) -> None:
    """Record what one NIC has now and after the next boot, and what waits for the boot."""
    effective_at_boot = sorted(
        name
        for name, value in want.items()
        if name in planned.changes or name in planned.hidden or (name in seen and seen[name].waits_for_boot(value))
    )
    if effective_at_boot:
        outcome.facts["reboot_required"] = True
        outcome.pending.append(f"firmware of {address}: {', '.join(effective_at_boot)} at the next boot")
    outcome.facts["devices"][address] = {
        name: {"current": setting.current.text if setting.current else None, "next_boot": setting.next_boot.text}
        for name, setting in ((name, seen[name]) for name in want if name in seen)
    }


def query(system: System, address: str) -> dict[str, FirmwareSetting]:
    """Return the settings of a NIC by name. Raises HostError."""
    return parse(system.run(["mstconfig", "-d", address, "-e", "query"]))


def _because(system: System) -> str:
    """Return the kernel lockdown as a possible cause of a failure, because the tool works through config space."""
    level = lockdown.level(system)
    return (
        f"; {lockdown.cause(level)}: turn Secure Boot off in the BIOS" if lockdown.forbids_config_writes(level) else ""
    )


def _set(system: System, address: str, changes: dict[str, Any], want: dict[str, Any]) -> dict[str, FirmwareSetting]:
    """Set ``changes``, and the settings that these reveal immediately. Raises HostError.

    Some firmware shows a hidden setting as soon as the one that reveals it is set. Other firmware shows it only after a
    boot; then the next run sets it.
    """
    first = {name: value for name, value in changes.items() if name in REVEALED_BY.values()}
    if first:
        _write(system, address, first)
        changes = plan(query(system, address), want).changes
    if changes:
        _write(system, address, changes)
    seen = query(system, address)
    refused = plan(seen, want).changes
    if refused:
        raise HostError(
            f"nic_firmware: {address} accepted {', '.join(refused)}, "
            "but has other values for the next boot: its firmware refuses them",
            "leave them out, or update the firmware",
        )
    return seen


def _write(system: System, address: str, values: dict[str, Any]) -> None:
    arguments = [f"{name}={int(value) if isinstance(value, bool) else value}" for name, value in values.items()]
    try:
        system.run(["mstconfig", "-d", address, "-y", "set", *arguments])
    except HostError as error:
        raise HostError(f"nic_firmware: {address}: {error.cause}{_because(system)}", error.remedy) from error


def _is_nic(function: Function) -> bool:
    return (
        function.vendor_id == MELLANOX
        and function.kind == "nic"
        and function.physical_function is None
        and function.address.endswith(".0")
    )


def _number(text: str) -> int | None:
    match = re.search(r"\((-?\w+)\)$", text)
    try:
        return int(match[1] if match else text, 0)
    except ValueError:
        return {"true": 1, "false": 0}.get(text.lower())


def _text(value: Any) -> str:
    return f"{value}({int(value)})" if isinstance(value, bool) else str(value)
