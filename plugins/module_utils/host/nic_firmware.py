# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Settings in the firmware of NVIDIA/Mellanox NICs, through mstconfig. They take effect at the next boot.

The tool prints a line a setting, "name  default  current  next boot", values as "True(1)", "per_mkey(0)" or "16";
old firmware (ConnectX-3) knows no current value. Format: mstflint, mlxconfig/mlxcfg_ui.cpp.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host import selectors, wishes
from ansible_collections.sailloft.fleet.plugins.module_utils.host.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import Function, Host

MELLANOX = 0x15B3
# What the paper names, and what it needs: key, value, why. Values: https://github.com/apoorvemohan/HCIR,
# vela_asplos2025/vmsetup (the published settings of the Vela cluster, ConnectX-6 and A100).
PAPER = (
    ("ADVANCED_PCI_SETTINGS", True, "makes MAX_ACC_OUT_READ visible"),
    ("MAX_ACC_OUT_READ", 44, "more outstanding read bytes"),
    ("PCI_WR_ORDERING", "per_mkey", "relaxed ordering is not forced on every write"),
    ("RDMA_SELECTIVE_REPEAT_EN", True, "selective repeat in place of go-back-N"),
    ("ATS_ENABLED", True, "translations are asked of the IOMMU, so that P2P goes straight"),
    ("SRIOV_EN", True, "virtual functions"),
)
# Settings that firmware hides until another one is on.
REVEALED_BY = {"MAX_ACC_OUT_READ": "ADVANCED_PCI_SETTINGS"}
NAME = re.compile(r"^[A-Z][A-Za-z0-9_]*(\[\d+\])?$")


@dataclass(frozen=True)
class Value:
    """A value as the tool prints it: a word, a number, or both ("per_mkey(0)")."""

    text: str

    def is_wanted(self, wanted: Any) -> bool:
        """Whether it is what a person wrote: True, 44, "44", "0x2c", "per_mkey" or "per_mkey(0)"."""
        number = _number(self.text)
        if isinstance(wanted, (bool, int)):
            return number == int(wanted)
        asked = str(wanted).strip()
        word = self.text.split("(")[0]
        if asked.lower() in (self.text.lower(), word.lower()):
            return True
        return number is not None and "(" not in asked and _number(asked) == number


@dataclass(frozen=True)
class Setting:
    """One setting of a NIC; ``current`` is None where the firmware does not say it."""

    current: Value | None
    next_boot: Value


def parse(output: str) -> dict[str, Setting]:
    """What ``mstconfig -e query`` printed, by name. Raises HostError where there is no table in it."""
    columns: list[str] = []
    settings = {}
    for line in output.splitlines():
        if line.strip().startswith("Configurations:"):
            columns = re.split(r"\s{2,}", line.strip().split(":", 1)[1].strip())
            if "Next Boot" not in columns:
                break
            continue
        words = re.split(r"\s{2,}", line.strip().lstrip("*").strip())
        if columns and len(words) == len(columns) + 1:
            row = dict(zip(columns, words[1:]))
            current = Value(row["Current"]) if "Current" in row else None
            settings[words[0]] = Setting(current, Value(row["Next Boot"]))
    if not settings:
        raise HostError(f"mstconfig printed no table with a column 'Next Boot': {output.strip()[:200]!r}")
    return settings


def wanted(data: Any, host: Host) -> dict[str, dict[str, Any]]:
    """``{"settings": [{"devices": ["15b3:*"], "values": {"ATS_ENABLED": true}}]}`` by address. Raises HostError.

    Functions of one NIC share its firmware: the first one (.0) that is not a VF stands for it.
    """
    given = wishes.record(data, "nic_firmware", {"settings": list}, {})
    result: dict[str, dict[str, Any]] = {}
    for number, item in enumerate(given["settings"]):
        where = f"nic_firmware.settings[{number}]"
        entry = wishes.record(item, where, {"devices": list, "values": dict}, {})
        for name, value in entry["values"].items():
            if (
                not NAME.match(str(name))
                or not isinstance(value, (bool, int, str))
                or not re.match(r"^[\w.-]+$", str(value))
            ):
                raise HostError(f"{where}: {name}={value!r} is no setting of firmware")
        for selector in wishes.strings(entry["devices"], f"{where}.devices"):
            for function in selectors.select(host, [selector], where):
                if _is_nic(function):
                    result.setdefault(function.address, {}).update(entry["values"])
                elif selectors.is_address(selector):
                    raise HostError(f"{where}: {function.address} is no physical function of an NVIDIA/Mellanox NIC")
    return result


def plan(address: str, seen: dict[str, Setting], want: dict[str, Any]) -> dict[str, Any]:
    """The settings of one NIC that differ at the next boot. Raises HostError for those that its firmware lacks."""
    lacking = [
        name for name in want if name not in seen and not (REVEALED_BY.get(name) in want and REVEALED_BY[name] in seen)
    ]
    if lacking:
        raise HostError(
            f"nic_firmware: the firmware of {address} knows no {', '.join(lacking)}: leave it out for this NIC, "
            "turn on what reveals it (ADVANCED_PCI_SETTINGS), or update the firmware"
        )
    return {
        name: value for name, value in want.items() if name not in seen or not seen[name].next_boot.is_wanted(value)
    }


def ensure(system: System, host: Host, data: Any, check: bool = False) -> Outcome:
    """Set what differs; ``reboot_required`` in the facts says whether a NIC still runs with other values.

    All NICs are read and planned before one is written. Raises HostError.
    """
    outcome = Outcome(facts={"reboot_required": False, "devices": {}})
    want = wanted(data, host)
    seen = {address: parse(system.run(["mstconfig", "-d", address, "-e", "query"])) for address in sorted(want)}
    plans = {address: plan(address, seen[address], want[address]) for address in seen}
    for address, changes in plans.items():
        for name, value in changes.items():
            setting = seen[address].get(name)
            outcome.differ(f"{address} {name}", setting.next_boot.text if setting else "hidden", _text(value))
        if not check and changes:
            seen[address] = _set(system, address, changes, want[address])
        waiting = sorted(
            name
            for name, value in want[address].items()
            if name in changes
            or (seen[address][name].current is not None and not seen[address][name].current.is_wanted(value))
        )
        if waiting:
            outcome.facts["reboot_required"] = True
            outcome.pending.append(f"firmware of {address}: {', '.join(waiting)} at the next boot")
        outcome.facts["devices"][address] = {
            name: {"current": setting.current.text if setting.current else None, "next_boot": setting.next_boot.text}
            for name, setting in ((name, seen[address][name]) for name in want[address] if name in seen[address])
        }
    return outcome


def _set(system: System, address: str, changes: dict[str, Any], want: dict[str, Any]) -> dict[str, Setting]:
    # What reveals others has to be there before they can be named; one boot then serves all.
    first = {name: value for name, value in changes.items() if name in REVEALED_BY.values()}
    rest = {name: value for name, value in changes.items() if name not in first}
    for part in (first, rest):
        if part:
            arguments = [f"{name}={int(value) if isinstance(value, bool) else value}" for name, value in part.items()]
            system.run(["mstconfig", "-d", address, "-y", "set", *arguments])
    seen = parse(system.run(["mstconfig", "-d", address, "-e", "query"]))
    left = plan(address, seen, want)
    if left:
        raise HostError(
            f"nic_firmware: {address} took {', '.join(left)}, "
            "but its next boot has other values: its firmware refuses them"
        )
    return seen


def _is_nic(function: Function) -> bool:
    return (
        function.vendor_id == MELLANOX
        and function.kind == "nic"
        and function.physical_function is None
        and function.address.endswith(".0")
    )


def _number(text: str) -> int | None:
    inside = re.search(r"\((-?\w+)\)$", text)
    try:
        return int(inside[1] if inside else text, 0)
    except ValueError:
        return {"true": 1, "false": 0}.get(text.lower())


def _text(value: Any) -> str:
    return f"{value}({int(value)})" if isinstance(value, bool) else str(value)
