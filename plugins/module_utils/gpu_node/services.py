# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Enable and start the services of a GPU node's software."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.units import unit_states

# The states for which "systemctl is-enabled" ends with status 0: systemctl(1).
ENABLED = ("enabled", "enabled-runtime", "static", "alias", "indirect", "generated")


def ensure(system: System, names: list[str], start: bool, in_image: bool, check: bool = False) -> Outcome:
    """Enable the units ``names`` and, with ``start``, start them, in order. Raises HostError."""
    outcome = Outcome()
    root = ["--root=/"] if in_image else []  # systemctl then uses no running systemd
    if in_image:
        states = _of_image(system, names)
    else:
        states = {unit.name: (unit.active_state, unit.file_state) for unit in unit_states(system, names)}
    for name in names:
        active, enabled = states.get(name, ("", ""))
        if enabled not in ENABLED:
            outcome.differ(f"{name} enabled", False, True)
            if not check:
                system.run(["systemctl", *root, "enable", name])
        if start and active not in ("active", "activating"):
            outcome.differ(name, active, "active")
            if not check:
                system.run(["systemctl", "start", name])
    return outcome


def _of_image(system: System, names: list[str]) -> dict[str, tuple[str, str]]:
    output = system.run(["systemctl", "--root=/", "list-unit-files", "--no-legend", "--no-pager", *names])
    rows = [line.split() for line in output.splitlines() if line.strip()]
    return {row[0]: ("", row[1]) for row in rows}
