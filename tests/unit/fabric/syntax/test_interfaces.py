# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Statements of subinterfaces, VLAN interfaces and port channels concern the ports whose packets pass them."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.overrides import CLASS, PATH, SIZE
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import eos, nxos

PARSE = {"eos": eos.parse, "nxos": nxos.parse}
LAG = {"eos": "Port-Channel7", "nxos": "port-channel7"}


def overrides(system, *lines, of_port=(), of_other=("no switchport",)):
    """Return the overrides of a switch whose ports 1 and 2 have an MTU of 9000."""
    text = [
        "hostname leaf1",
        "interface Ethernet1/1",
        "  mtu 9000",
        *(f"  {line}" for line in of_port),
        "interface Ethernet1/2",
        "  mtu 9000",
        *(f"  {line}" for line in of_other),
        *lines,
    ]
    switch = PARSE[system]("\n".join([*text, ""]), "leaf1")
    return [(override.statement, override.effect, override.ports) for override in switch.overrides]


BOTH = pytest.mark.parametrize("system", PARSE)
ADDRESS = "  ip address 10.0.0.1/24"


@BOTH
@pytest.mark.parametrize(
    ("lines", "carries"),
    [
        ((), {1}),
        (("switchport access vlan 10",), {10}),
        (("switchport mode access", "switchport access vlan 10", "switchport trunk allowed vlan 20"), {10}),
        (("no switchport",), set()),
        (("switchport mode trunk",), {1, 10, 20, 30}),
        (("switchport mode trunk", "switchport trunk allowed vlan all"), {1, 10, 20, 30}),
        (("switchport mode trunk", "switchport trunk allowed vlan none"), set()),
        (("switchport mode trunk", "switchport trunk allowed vlan 2,9-11"), {10}),
        (
            ("switchport mode trunk", "switchport trunk allowed vlan 20", "switchport trunk allowed vlan add 30"),
            {20, 30},
        ),
        (("switchport mode trunk", "switchport trunk allowed vlan except 1-19"), {20, 30}),
    ],
)
def test_a_small_vlan_interface_concerns_the_ports_that_carry_it(system, lines, carries):
    vlans = [line for vlan in (1, 10, 20, 30) for line in (f"interface Vlan{vlan}", ADDRESS)]
    assert overrides(system, *vlans, of_port=lines) == [
        (f"interface Vlan{vlan} mtu 1500", SIZE, ("Ethernet1/1",)) for vlan in sorted(carries)
    ]


@BOTH
@pytest.mark.parametrize(
    ("lines", "mtu"),
    [
        ((ADDRESS,), 1500),
        ((ADDRESS, "  mtu 8999"), 8999),
        (("  mtu 1400",), 1400),
        ((ADDRESS, "  mtu 9000"), None),
        (("  description no address",), None),
        ((ADDRESS, "  shutdown"), None),
        (("  ipv6 address fd00::1/64",), 1500),
    ],
)
def test_the_mtu_of_what_routes_counts(system, lines, mtu):
    for interface, below in (("Vlan10", ("switchport access vlan 10",)), ("Ethernet1/1.10", ("no switchport",))):
        wanted = [(f"interface {interface} mtu {mtu}", SIZE, ("Ethernet1/1",))] if mtu else []
        assert overrides(system, f"interface {interface}", *lines, of_port=below) == wanted


def test_eos_has_a_default_mtu_of_all_that_routes():
    lines = ("interface Vlan10", ADDRESS, "interface Ethernet1/2.5", ADDRESS, "interface defaults", "  mtu 9000")
    assert overrides("eos", *lines, of_port=("switchport access vlan 10",)) == []
    text = "hostname leaf1\ninterface defaults\n  mtu 9000\ninterface Ethernet1\n  no switchport\n"
    assert eos.parse(text, "leaf1").ports["Ethernet1"].ip_mtu_bytes == 9000


@BOTH
def test_a_port_channels_subinterface_and_vlans_concern_the_port_channel(system):
    lag = LAG[system]
    lines = (f"interface {lag}", "  mtu 9000", "  switchport access vlan 10", "interface Vlan10", ADDRESS)
    member = ("channel-group 7 mode active",)
    assert ("interface Vlan10 mtu 1500", SIZE, (lag,)) in overrides(system, *lines, of_port=member)
    lines = (f"interface {lag}", "  mtu 9000", f"interface {lag}.5", "  mtu 1500")
    assert (f"interface {lag}.5 mtu 1500", SIZE, (lag,)) in overrides(system, *lines, of_port=member)


POLICIES = {
    "nxos": [
        "policy-map type qos P",
        "  class class-default",
        "    set qos-group 0",
        "policy-map type qos Q",
        "  class class-default",
        "    set qos-group 1",
    ],
    "eos": [
        "policy-map type quality-of-service P",
        "  class class-default",
        "    set traffic-class 0",
        "policy-map type quality-of-service Q",
        "  class class-default",
        "    set traffic-class 1",
    ],
}


@BOTH
def test_a_subinterface_with_another_policy_is_named(system):
    policy = "service-policy type qos input {}"
    own = ("interface Ethernet1/1.10", f"  {policy.format('Q')}")
    lines = [*POLICIES[system], *own]
    named = (f"interface Ethernet1/1.10 {policy.format('Q')}", CLASS, ("Ethernet1/1",))
    assert overrides(system, *lines, of_port=("no switchport", policy.format("P"))) == [named]
    assert overrides(system, *lines, "  shutdown", of_port=("no switchport", policy.format("P"))) == []
    assert overrides(system, *lines, of_port=("no switchport", policy.format("Q"))) == []
    assert overrides(system, *lines, of_port=("no switchport",)) == [named]


@BOTH
def test_a_subinterfaces_statements_concern_its_port(system):
    lines = ("interface Ethernet1/1.10", "  storm-control broadcast level 1")
    named = ("interface Ethernet1/1.10 storm-control broadcast level 1", "rate", ("Ethernet1/1",))
    assert overrides(system, *lines) == [named]
    assert overrides(system, *lines, "  shutdown") == []


HASHES = {
    "eos": ("port-channel load-balance trident fields ip mac-header", "... trident fields ip ip-tcp-udp-header"),
    "nxos": ("port-channel load-balance dst ip", "... src-dst ip-l4port-vlan"),
}


@BOTH
def test_a_hash_of_port_channels_concerns_those_with_several_members(system):
    less, all_fields = HASHES[system]
    member = ("channel-group 7 mode active",)
    assert overrides(system, less) == overrides(system, less, of_port=member) == []
    assert overrides(system, less, of_port=member, of_other=member) == [(less, PATH, (LAG[system],))]
    all_fields = all_fields.replace("...", "port-channel load-balance")
    assert overrides(system, all_fields, of_port=member, of_other=member) == []
