# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Errors that ibsim counts are faults with their cause; a link is isolated by the real ibportstate, and restored."""

from __future__ import annotations

import contextlib

import ib_sites
import simulated_subnet
from simulated_subnet import DiedError, SimulatedDiags, Subnet

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.counters import read_counters
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.isolation import (
    changed_ports,
    isolated_in,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.table import fabric_cables, table
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.ports import read_ports, set_port

MASTER = "node-1 mlx5_0"
SITE = ib_sites.tree()
CABLES = simulated_subnet.cables(fabric_of(SITE, "compute"))
PLAN = plan(SITE, "compute", {"managers": [MASTER]}, simulated_subnet.guids_of(CABLES))
HOUR_S = 3600.0


def count(port, counter, value):
    name, number = port
    return f'PerformanceSet "{name}"[{number}] PortCounters.{counter}={value}'


# Both ends of a cable; a link whose one end hears errors; all four links of a spine.
DAMAGE = (
    count(("leaf-1-1", 4), "SymbolErrorCounter", 500),
    count(("spine-2", 1), "LinkDownedCounter", 7),
    count(("node-3 mlx5_0", 1), "SymbolErrorCounter", 900),
    *(count(("spine-1", number), "PortRcvErrors", 5000) for number in (1, 2, 3, 4)),
    # Few errors, and errors of other links: no fault.
    count(("leaf-2-2", 1), "SymbolErrorCounter", 9),
    count(("leaf-2-2", 2), "PortRcvRemotePhysicalErrors", 9999),
)


def test_counted_errors_are_faults_with_their_cause_and_a_bad_link_is_isolated(tmp_path):
    for attempt in range(3):
        with contextlib.suppress(DiedError):
            faults_are_found(tmp_path / f"subnet{attempt}")
            return
    raise AssertionError("the manager died three times")


def faults_are_found(folder):
    with (
        Subnet(folder, CABLES) as subnet,
        subnet.manager(MASTER, subnet.configure(MASTER, PLAN.files, "opensm-node-1.conf")) as home,
    ):
        diags = SimulatedDiags(subnet, MASTER)
        first = read_ports(diags, home)
        earlier = read_counters(first.counters, 0)
        assert table(PLAN, first.found, earlier, read_counters(first.counters, HOUR_S)).holds

        subnet.console(*DAMAGE)
        damaged = read_ports(diags, home)
        made = table(PLAN, damaged.found, earlier, read_counters(damaged.counters, HOUR_S), spare=1)
        causes = {tuple(fault["links"]): (fault["part"], fault["checks"]) for fault in made.faults}
        assert causes == {
            ("leaf-1-1 ib4 - spine-2 ib1",): ("cable", ["port_link_downs", "port_symbol_errors"]),
            ("leaf-2-1 ib1 - node-3 mlx5_0",): ("switch", ["port_symbol_errors"]),
            tuple(f"leaf-{rack}-{i} ib3 - spine-1 ib{2 * rack + i - 2}" for rack in (1, 2) for i in (1, 2)): (
                "switch",
                ["port_receive_errors"],
            ),
        }
        assert (made.faulty, made.unknown, made.healthy) == (6, 0, 10)

        # Declared: a leaf may lack one of its two up links.
        (port,) = changed_ports(PLAN, damaged.found, ["leaf-1-1 ib4"], [], 1)
        arguments = (diags, port["guid"], port["port"], port["state"])
        assert set_port(*arguments, check=True).changed
        assert set_port(*arguments).changed
        assert not set_port(*arguments).changed
        assert set_port(*arguments[:3], "enabled").changed


def test_a_disabled_port_is_seen_as_isolated():
    line = (
        '0x0000000000200001 "                      leaf-1-2"      3    4[  ] ==(                Down/Disabled)==>'
        '             [  ] "" ( )\n'
    )
    assert [str(end) for end in isolated_in(fabric_cables(PLAN), line)] == ["leaf-1-2 ib4"]
