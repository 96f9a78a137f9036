# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The settings that BMCs show beside their baselines, their form in results, and the proof of many nodes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, show
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof

SOURCE = "BMC"
HEADINGS = {"bios": "BIOS settings", "firmware": "Firmware versions", "unread": "Not known"}
NOT_APPLIED = "the BMC accepted it, and the firmware did not apply it"


@dataclass(frozen=True)
class ShownSetting:
    """A BIOS attribute or firmware version of the baseline, and what the BMC shows.

    ``kind`` is "bios" or "firmware"; ``seen`` is None if it was not read, ``upcoming`` the value that the BMC shows for
    the next boot, None if that is not another one; ``reason`` says why it was not read, is not set, or was not applied.
    """

    kind: str
    name: str
    wanted: Any
    seen: Any = None
    upcoming: Any = None
    reason: str = ""

    @property
    def holds(self) -> bool:
        """Return whether the BMC shows the wanted value, also for the next boot; 1 is not true."""
        is_wanted = self.seen is not None and type(self.seen) is type(self.wanted) and self.seen == self.wanted
        return is_wanted and self.upcoming is None

    @property
    def is_pending(self) -> bool:
        """Return whether only a restart is missing."""
        return self.upcoming is not None and self.upcoming == self.wanted


@dataclass(frozen=True)
class NodeFirmware:
    """All settings of a node's baseline. ``error`` says why nothing is known of it, or what could not be set.

    ``refused``: values that its firmware cannot have, and why. ``notes``: what was checked less than usually.
    """

    model: str = ""
    settings: tuple[ShownSetting, ...] = ()
    error: str = ""
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Return whether all is known and as wanted."""
        return not self.error and all(setting.holds for setting in self.settings)

    @property
    def differing(self) -> list[ShownSetting]:
        """Return the settings that are not as wanted."""
        return [setting for setting in self.settings if not setting.holds]

    def to_set(self, kinds: Collection[str]) -> list[ShownSetting]:
        """Return what a restart with these kinds set would bring."""
        return [setting for setting in self.differing if setting.kind in kinds and not setting.reason]

    def to_send(self, kinds: Collection[str]) -> list[ShownSetting]:
        """Return what is to be sent for it."""
        return [setting for setting in self.to_set(kinds) if not setting.is_pending]

    def why_not(self, kinds: Collection[str]) -> str:
        """Return why what was to be set is not as wanted after the restart; empty if it is."""
        texts = [_text(setting) for setting in self.differing if setting.kind in kinds]
        return self.error or "; ".join(texts)

    def to_dict(self) -> dict[str, Any]:
        """Return the form in results."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> NodeFirmware:
        """Return what ``to_dict`` returned."""
        settings = tuple(ShownSetting(**setting) for setting in data["settings"])
        return cls(**{**data, "settings": settings})


def lines(nodes: Mapping[str, NodeFirmware]) -> list[str]:
    """Return what does not hold, one line for each kind of difference with its nodes, and the sum."""
    by_text: dict[str, list[str]] = {}
    for name, node in nodes.items():
        texts = [node.error] if node.error else []
        for text in (*texts, *map(_text, node.differing), *(f"note: {note}" for note in node.notes)):
            by_text.setdefault(text, []).append(name)
    count = sum(node.holds for node in nodes.values())
    return [
        *(f"{fold(names)}: {text}" for text, names in sorted(by_text.items(), key=lambda item: (-len(item[1]), item))),
        f"{count} of {len(nodes)} hosts have the firmware and BIOS settings of their baselines",
    ]


def _reason(setting: ShownSetting) -> str:
    reason = setting.reason
    if not reason and setting.upcoming is not None:
        reason = "set, waits for a restart" if setting.is_pending else f"{show(setting.upcoming)} after a restart"
    return reason


def _text(setting: ShownSetting) -> str:
    reason = _reason(setting)
    values = f"wanted {show(setting.wanted)}, seen {show(setting.seen)}"
    return f"{setting.kind} {setting.name}: {values}{f' ({reason})' if reason else ''}"


def proof(nodes: Mapping[str, NodeFirmware]) -> Proof:
    """Return the proof of many nodes by name."""
    claims = [claim for name, node in sorted(nodes.items()) for claim in _claims(name, node)]
    return Proof("bmc-baseline", "Firmware and BIOS settings", "", claims)


def _claims(name: str, node: NodeFirmware) -> Iterator[Claim]:
    if node.error:
        yield Claim(HEADINGS["unread"], f"{name}: its baseline is read", "read", None, False, SOURCE, node.error)
    for setting in node.settings:
        claim = f"{name}: {setting.kind} {setting.name}"
        yield Claim(
            HEADINGS[setting.kind], claim, setting.wanted, setting.seen, setting.holds, SOURCE, _reason(setting)
        )
