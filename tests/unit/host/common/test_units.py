# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""systemctl's answer becomes the state of each unit, in the order in which they were named."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.units import unit_state, unit_states

# A service that runs, whose file was changed since, and a unit that there is not.
SHOWN = """MainPID=712
ActiveState=active
UnitFileState=enabled
NeedDaemonReload=yes

MainPID=0
ActiveState=inactive
UnitFileState=
NeedDaemonReload=no
"""


class Host:
    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def run(self, argv):
        self.asked.append(argv)
        return self.answer


def test_each_unit_has_its_state():
    host = Host(SHOWN)
    cron, none = unit_states(host, ["cron.service", "none.service"])
    assert (cron.name, cron.runs, cron.is_enabled, cron.is_outdated, cron.pid) == (
        "cron.service",
        True,
        True,
        True,
        "712",
    )
    assert (none.name, none.runs, none.is_enabled, none.is_outdated, none.pid) == (
        "none.service",
        False,
        False,
        False,
        "0",
    )
    assert [argv[-2:] for argv in host.asked] == [["cron.service", "none.service"]]


@pytest.mark.parametrize(
    ("active", "file", "runs", "is_enabled"),
    [
        ("activating", "static", True, False),
        ("reloading", "enabled-runtime", True, False),
        ("failed", "enabled", False, True),
        ("deactivating", "masked", False, False),
    ],
)
def test_a_unit_runs_also_while_it_starts_and_is_enabled_for_each_boot(active, file, runs, is_enabled):
    state = unit_state(Host(f"ActiveState={active}\nUnitFileState={file}\n"), "a.service")
    assert (state.runs, state.is_enabled) == (runs, is_enabled)
