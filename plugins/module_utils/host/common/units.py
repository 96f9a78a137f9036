# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The states of systemd's units, as ``systemctl show`` tells them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

PROPERTIES = "ActiveState,UnitFileState,NeedDaemonReload,MainPID"


class UnitState(NamedTuple):
    """The state of a unit, in systemd's words; "" for what it does not say, as of a unit that there is not."""

    name: str
    active_state: str  # "active", "activating", "inactive", "failed"
    file_state: str  # "enabled", "enabled-runtime", "static", "disabled", "masked"
    is_outdated: bool  # its file was changed since systemd read it
    pid: str  # "0" for none

    @property
    def is_enabled(self) -> bool:
        """True if it starts at each boot."""
        return self.file_state == "enabled"

    @property
    def runs(self) -> bool:
        """True also while it starts or reads its files again."""
        return self.active_state in ("active", "activating", "reloading")

    def __str__(self) -> str:
        return f"{'enabled' if self.is_enabled else 'disabled'}, {'running' if self.runs else 'stopped'}"


def unit_states(system: System, names: Sequence[str]) -> list[UnitState]:
    """Return the states of units, in order. Raises HostError."""
    output = system.run(["systemctl", "show", f"--property={PROPERTIES}", *names])
    blocks = [dict(line.split("=", 1) for line in block.splitlines()) for block in output.strip().split("\n\n")]
    return [
        UnitState(
            name,
            shown.get("ActiveState", ""),
            shown.get("UnitFileState", ""),
            shown.get("NeedDaemonReload") == "yes",
            shown.get("MainPID", "0"),
        )
        for name, shown in zip(names, blocks)
    ]


def unit_state(system: System, name: str) -> UnitState:
    """Return the state of one unit. Raises HostError."""
    return unit_states(system, [name])[0]
