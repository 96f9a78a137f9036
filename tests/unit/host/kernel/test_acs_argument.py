# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import gpudirect_servers as servers
import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import acs_argument, kernel_command_line
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_plan import AcsPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import (
    BARE_METAL,
    VIRTUAL_MACHINES,
)

UNKNOWN = Mentions("release")


def plan_of(host, purpose=VIRTUAL_MACHINES):
    return AcsPlan(host, servers.passed(host), purpose)


def test_only_ports_that_differ_from_the_kernels_default_are_named():
    host = servers.hgx()
    decision = acs_argument.decide(plan_of(host), "ro quiet")
    ports = sorted(item.parent for item in host.functions if item.kind == "nic")
    assert decision.argument == "pci=config_acs=" + ";".join(f"1x11101@{port}" for port in ports)
    assert (decision.reason, decision.not_taken) == (None, [])
    assert kernel_command_line.checked([decision.argument], [])


@pytest.mark.parametrize(
    ("release", "one", "several"),
    [
        ("5.14.0-570.el9.x86_64", "does not say", "does not say"),
        ("6.12.0-55.9.1.el10_0.x86_64", None, "first port"),
        ("6.4.0-150600.23-default", "does not say", "does not say"),
        ("6.8.0-60-generic", "has no pci=config_acs=", "has no pci=config_acs="),
        ("6.10.14", "has no", "has no"),
        ("6.11.0-29-generic", None, "first port"),
        ("6.12.22+bpo-amd64", None, "first port"),
        ("6.12.23", None, None),
        ("6.12.107+deb13-amd64", None, None),
        ("6.14.0-27-generic", None, "first port"),
        ("6.15", None, None),
        ("7.2.3", None, None),
        (None, "not known", "not known"),
        ("custom", "not known", "not known"),
    ],
)
def test_support_for_the_argument_depends_on_the_kernel_release(release, one, several):
    for entries, words in ((1, one), (2, several)):
        reason = acs_argument.cannot(release, entries)
        assert (reason is None) if words is None else words in reason


def test_there_is_no_argument_if_the_kernel_does_not_support_it():
    host = servers.hgx()
    host.kernel_release = "6.8.0-1-generic"
    assert acs_argument.decide(plan_of(host), "").argument is None


def test_there_is_no_argument_if_no_port_needs_a_change():
    host = servers.numa(servers.INTEL_ROOT)
    assert acs_argument.decide(plan_of(host), "") == acs_argument.NOT_NEEDED
    assert acs_argument.decide(plan_of(servers.numa(servers.VERA_ROOT)), "") == acs_argument.NOT_NEEDED


def test_a_port_without_the_bit_is_left_out():
    host = servers.hgx()
    for item in host.functions:
        if item.acs:
            item.acs.capability &= ~0x40
    assert acs_argument.decide(plan_of(host), "") == acs_argument.NOT_NEEDED


def test_ports_on_which_the_kernel_did_not_apply_the_argument_are_named():
    host = servers.inline()
    argument = acs_argument.decide(plan_of(host), "").argument
    decision = acs_argument.decide(plan_of(host), f'ro "{argument}" quiet')
    assert len(decision.not_taken) == 2
    assert decision.not_taken[0].endswith("has ACS 0011101, although the kernel argument requests 1x11101")
    servers.apply_plan(host, VIRTUAL_MACHINES)
    assert acs_argument.decide(plan_of(host), f'ro "{argument}" quiet').not_taken == []


def test_bare_metal_names_every_port_of_the_switches():
    host = servers.inline(False)
    argument = acs_argument.decide(plan_of(host, BARE_METAL), "").argument
    assert argument.count("xx000x0@") == argument.count("@") == len(plan_of(host, BARE_METAL).ports)


def test_another_pci_argument_is_kept():
    ours = ["pci=config_acs=1x11101@0000:12:01.0;1x11101@0000:82:01.0"]
    line = kernel_command_line.merged('ro pci=realloc "pci=config_acs=0@0000:01:00.0;0@0000:02:00.0" quiet', ours, [])
    assert line == f'ro pci=realloc quiet "{ours[0]}"'
    assert kernel_command_line.merged(line, ours, []) == line
    assert kernel_command_line.in_effect(line, ours, [])
    assert not kernel_command_line.in_effect("ro pci=realloc", ours, [])


@pytest.mark.parametrize(
    ("release", "entries", "why"),
    [
        ("6.10.99", 1, Mentions("6.10.99", "pci=config_acs=", "6.11")),
        ("5.99", 1, Mentions("5.99", "pci=config_acs=", "6.11")),
        ("6.11", 1, None),
        ("6.11.99", 2, Mentions("6.11.99", "pci=config_acs=", "6.12.23", "6.15")),
        ("6.12", 2, Mentions("6.12", "pci=config_acs=", "6.12.23", "6.15")),
        ("6.12.22", 2, Mentions("6.12.22", "pci=config_acs=", "6.12.23", "6.15")),
        ("6.12.23", 2, None),
        ("6.13.23", 2, Mentions("6.13.23", "pci=config_acs=", "6.12.23", "6.15")),
        ("6.14.99", 2, Mentions("6.14.99", "pci=config_acs=", "6.12.23", "6.15")),
        ("6.15.0", 2, None),
        ("7.0", 2, None),
        ("v6.15", 1, UNKNOWN),
        ("", 1, UNKNOWN),
        (None, 1, UNKNOWN),
    ],
)
def test_a_kernel_without_the_acs_argument_is_named_with_those_that_have_it(release, entries, why):
    assert acs_argument.cannot(release, entries) == why


def test_a_decision_has_a_form_for_facts():
    assert acs_argument.NOT_NEEDED.to_dict() == {"argument": None, "reason": None, "not_taken": []}
    decision = acs_argument.AcsDecision("a", "b", ["c"])
    assert decision.to_dict() == {"argument": "a", "reason": "b", "not_taken": ["c"]}


def test_the_reason_against_the_argument_is_part_of_the_decision():
    host = servers.hgx()
    host.kernel_release = None
    plan = AcsPlan(host, servers.passed(host), VIRTUAL_MACHINES)
    assert acs_argument.decide(plan, "") == acs_argument.AcsDecision(None, UNKNOWN, [])


@pytest.mark.parametrize(("command_line", "named"), [("ro {}", 2), ("{}", 2), ("ro {};more", 0), ("ro x{}", 0)])
def test_ports_are_compared_only_if_the_kernel_was_started_with_the_argument(command_line, named):
    host = servers.inline()
    plan = AcsPlan(host, servers.passed(host), VIRTUAL_MACHINES)
    argument = acs_argument.decide(plan, "").argument
    not_taken = acs_argument.decide(plan, command_line.format(argument)).not_taken
    assert len(not_taken) == named
    for line, entry in zip(not_taken, argument[len("pci=config_acs=") :].split(";")):
        mask, _at, port = entry.partition("@")
        assert line == Mentions(port, "ACS", "0011101", mask)
