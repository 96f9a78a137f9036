# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The list of irqbalance: when it is written, and when the program is restarted."""

from __future__ import annotations

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import irqbalance

TEXT = (
    "# Written by sailloft.fleet.gpu_domain; changes here are lost.\n[Service]\n"
    'Environment="IRQBALANCE_BANNED_CPULIST=1-3"\n'
)
DROP_IN = "/etc/systemd/system/irqbalance.service.d/sailloft.conf"
RESTART = "systemctl try-restart irqbalance.service"
WRITE = [f"replace {DROP_IN}", "systemctl daemon-reload", RESTART]


@pytest.fixture
def with_irqbalance(server):
    """The server with irqbalance installed, whose restart takes the variable from the file."""
    server.put("/lib/systemd/system/irqbalance.service", "")
    server.put("/proc/7/comm", "bash\n")
    server.put("/proc/7/environ", "IRQBALANCE_BANNED_CPULIST=7\0")
    return server


def irqbalance_runs(server, *environment):
    server.put("/proc/815/comm", "irqbalance\n")
    server.put("/proc/815/environ", "\0".join(environment))


def test_irqbalance_that_is_not_installed_is_left_alone(server):
    outcome = irqbalance.ensure(server, "1-3")
    assert (outcome.changed, outcome.facts) == (False, {"not_applicable": Mentions("irqbalance")})
    assert server.effects == []


def test_the_list_is_written_for_an_irqbalance_that_does_not_run(with_irqbalance):
    predicted = irqbalance.ensure(with_irqbalance, "1-3", check=True)
    assert with_irqbalance.effects == []
    outcome = irqbalance.ensure(with_irqbalance, "1-3")
    assert predicted == outcome
    assert (outcome.before, outcome.after) == ({DROP_IN: None}, {DROP_IN: "1-3"})
    assert outcome.facts == {"seen": Mentions("irqbalance")}
    assert with_irqbalance.read_bytes(DROP_IN).decode() == TEXT
    assert with_irqbalance.effects == WRITE
    assert not irqbalance.ensure(with_irqbalance, "1-3").changed


@pytest.mark.parametrize("environment", [["LANG=C"], ["IRQBALANCE_BANNED_CPULIST=5"]])
def test_a_running_irqbalance_is_restarted_without_a_new_file(with_irqbalance, environment):
    with_irqbalance.put(DROP_IN, TEXT)
    irqbalance_runs(with_irqbalance, *environment)
    restart = with_irqbalance._systemctl

    def restarted(argv, stdin):
        irqbalance_runs(with_irqbalance, "LANG=C", "IRQBALANCE_BANNED_CPULIST=1-3")
        return restart(argv, stdin)

    with_irqbalance._systemctl = restarted
    before = irqbalance.ensure(with_irqbalance, "1-3", check=True)
    outcome = irqbalance.ensure(with_irqbalance, "1-3")
    assert (before.before, before.after) == (outcome.before, outcome.after)
    assert outcome.before == {DROP_IN: environment[0].partition("=")[2] if "CPULIST" in environment[0] else None}
    assert outcome.facts == {"seen": "1-3"}
    assert with_irqbalance.effects == [RESTART]


@pytest.mark.parametrize(("environment", "seen"), [(["LANG=C"], ""), (["IRQBALANCE_BANNED_CPULIST=5"], "5")])
def test_a_list_that_irqbalance_does_not_take_is_an_error(with_irqbalance, environment, seen):
    irqbalance_runs(with_irqbalance, *environment)
    with raises(HostError, f"IRQBALANCE_BANNED_CPULIST={seen}", DROP_IN):
        irqbalance.ensure(with_irqbalance, "1-3")


def test_a_process_that_ends_meanwhile_is_passed_over(with_irqbalance, monkeypatch):
    irqbalance_runs(with_irqbalance, "IRQBALANCE_BANNED_CPULIST=1-3")
    with_irqbalance.put("/proc/8/comm", "irqbalance\n")
    with_irqbalance.put("/proc/self/comm", "irqbalance\n")
    with_irqbalance.put("/proc/self/environ", "IRQBALANCE_BANNED_CPULIST=9\0")
    read = with_irqbalance.read

    def ended(path):
        if path == "/proc/7/comm":
            raise HostError("cannot read", "")
        return read(path)

    monkeypatch.setattr(with_irqbalance, "read", ended)
    assert irqbalance.ensure(with_irqbalance, "1-3", check=True).facts == {"seen": "1-3"}


def test_the_list_is_removed_after_a_restart_without_it(with_irqbalance):
    assert not irqbalance.ensure(with_irqbalance, "").changed
    irqbalance.ensure(with_irqbalance, "1-3")
    with_irqbalance.effects.clear()
    predicted = irqbalance.ensure(with_irqbalance, "", check=True)
    assert with_irqbalance.effects == []
    outcome = irqbalance.ensure(with_irqbalance, "")
    assert (predicted.before, predicted.after) == (outcome.before, outcome.after)
    assert with_irqbalance.effects == [*WRITE, f"remove {DROP_IN}", "systemctl daemon-reload"]
    assert not irqbalance.ensure(with_irqbalance, "").changed
