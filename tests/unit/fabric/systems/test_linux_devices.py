# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bonds, bridges, VLANs, a team and a tunnel of a real kernel.

linux_devices.json is the output of READING in a network namespace of Debian's user-mode-linux 6.1.176 with iproute2
6.1.0. On that kernel, packets with a VLAN's tag did not reach the class of a flower filter of protocol ip.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import ECMP_FIELDS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import linux

READ = Path(__file__).with_name("linux_devices.json").read_text()


@pytest.fixture(name="switch")
def switch_():
    return linux.parse(READ, "leaf1")


def test_members_and_hash_of_each_bond_are_read(switch):
    bonds = {"bond0": ("p1", "p2"), "bond1": ("p3", "p4"), "bond2": ("p5", "p6")}
    assert switch.lags == {**bonds, "team0": ("p9",)}
    fields = {lag: sorted(hashed) for lag, hashed in switch.lag_fields.items()}
    assert fields == {"bond0": sorted(ECMP_FIELDS), "bond1": ["destination_ip", "source_ip"], "bond2": []}


def test_what_concerns_a_port_is_found_on_the_devices_above_it(switch):
    found = {(override.effect, frozenset(override.ports), override.ip_mtu_bytes) for override in switch.overrides}
    assert found == {
        ("path", frozenset({"p9"}), None),
        *(("size", frozenset(ports), 9100) for ports in (("p1", "p2"), ("p3", "p4"), ("p5", "p6"))),
        ("size", frozenset({"p9"}), 1500),  # team0
        ("class", frozenset({"p1", "p2"}), None),  # bond0.30
        ("class", frozenset({"p3", "p4"}), None),  # bond1 sends VLANs 10 to 12 with tags
        ("size", frozenset({"p3", "p4", "p7", "p8"}), 9100),  # br0
        ("size", frozenset({"p3", "p4", "p7"}), 1500),  # vlan10
        ("size", frozenset({"p8"}), 9100),  # vlan20
        ("size", frozenset({"p1", "p2"}), 1500),  # bond0.30
    }


def test_without_the_vlans_of_a_bridge_each_of_its_ports_may_send_tags():
    reading = {**json.loads(READ), "vlans": None}
    tagged = [each.ports for each in linux.parse(json.dumps(reading), "leaf1").overrides if each.effect == "class"]
    assert set(tagged) == {("p1", "p2"), ("p3", "p4"), ("p7",), ("p8",)}
