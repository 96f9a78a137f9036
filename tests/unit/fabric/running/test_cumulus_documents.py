# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The forms of NVUE's documents: ranges, lists, words, items that are merged, and what is no configuration."""

from __future__ import annotations

import json

import pytest
from cumulus_tree import read, refused
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.cumulus import document, names_of

ALL = "default-global"


SHOW = "compare it with the switch's `nv config show`"
OTHER_ITEMS = "a list of items other than header and set; give what `nv config show` prints, not a patch"


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("swp1", ["swp1"]),
        ("swp1-2,5,swp7s0-1", ["swp1", "swp2", "swp5", "swp7s0", "swp7s1"]),
        ("swp1,swp3", ["swp1", "swp3"]),
        ("3,5-6", ["3", "5", "6"]),
        ("swp9-9", ["swp9"]),
        ("bond-a", ["bond-a"]),
    ],
)
def test_a_key_names_one_or_a_range(key, names):
    assert names_of(key, "leaf1") == names


def test_a_range_has_4096_names_at_most():
    assert len(names_of("swp1-4096", "leaf1")) == 4096
    for key in ("swp1-4097", "swp2-1"):
        with raises(FabricError, "leaf1", repr(key), "4096"):
            names_of(key, "leaf1")


@pytest.mark.parametrize(("mtu", "valid"), [(1, True), (65535, True), (0, False), (65536, False)])
def test_the_mtu_has_16_bits(mtu, valid):
    tree = {"interface": {"swp1": {"link": {"mtu": mtu}}}}
    if valid:
        assert read(tree).ports["swp1"].ip_mtu_bytes == mtu
        return
    assert refused(tree) == Mentions("swp1", "mtu", mtu, "1", "65535")


def test_settings_of_a_port_and_of_ranges_are_merged():
    tree = {
        "interface": {
            "swp1-2": {"link": {"mtu": 1500}, "qos": {"pfc": {"profile": "a"}}},
            "swp2": {"link": {"mtu": 9100}},
            "swp1": {"qos": {"pfc-watchdog": {}}},
            "eth0": {"link": {"mtu": 1500}},
            "bond1": {"qos": {"pfc": {"profile": "a"}}},
        },
        "qos": {"pfc": {"a": {"switch-priority": {"3": {}}}}},
    }
    ports = read(tree).ports
    assert list(ports) == ["swp1", "swp2", "bond1"]
    assert (ports["swp1"].ip_mtu_bytes, ports["swp1"].pfc, ports["swp1"].watchdog is None) == (1500, (3,), False)
    assert (ports["swp2"].ip_mtu_bytes, ports["swp2"].pfc, ports["swp2"].watchdog) == (9100, (3,), None)


def test_words_and_lists_mean_keys_without_settings():
    tree = {"interface": ["swp1", "swp2"], "qos": {}}
    assert list(read(tree).ports) == ["swp1", "swp2"]
    assert list(read({"interface": "swp1", "qos": None}).ports) == ["swp1"]
    for priorities, pfc in ((4, (4,)), ([4, "5-6"], (4, 5, 6))):
        tree = {"interface": {"swp1": {}}, "qos": {"pfc": {"default-global": {"switch-priority": priorities}}}}
        assert read(tree).ports["swp1"].pfc == pfc


@pytest.mark.parametrize("node", [True, 1.5, [[1]], [True, {}]])
def test_another_value_in_place_of_settings_is_refused(node):
    assert refused({"interface": node, "qos": {}}) == Mentions("interface", repr(str(node)))


def test_a_refusal_has_the_first_60_characters_of_a_value():
    node = [["x" * 70]]
    assert f": {str(node)[:60]!r} where" in refused({"interface": node, "qos": {}})


@pytest.mark.parametrize(
    ("hash_settings", "fields"),
    [
        ({}, ("destination_ip", "destination_port", "protocol", "source_ip", "source_port")),
        ({"gtp-teid": "on", "source-port": "off"}, ("destination_ip", "destination_port", "protocol", "source_ip")),
        ({"source-ip": "on"}, ("destination_ip", "destination_port", "protocol", "source_ip", "source_port")),
        ({"source-ip": "off", "source-port": "off"}, ("destination_ip", "destination_port", "protocol")),
    ],
)
def test_fields_of_the_hash_are_on_unless_they_are_off(hash_settings, fields):
    tree = {"interface": {}, "system": {"forwarding": {"ecmp-hash": hash_settings}}}
    assert read(tree).ecmp_fields == fields


@pytest.mark.parametrize(
    ("breakout", "speeds", "missing"),
    [
        ({"4x": {"lanes-per-port": 2}}, {}, ["swp1", "swp1s4", "swp1s5", "swp1s6", "swp1s7"]),
        ({"2x200G": {}}, {"swp1s0": 200, "swp1s1": 200}, ["swp1", *(f"swp1s{part}" for part in range(2, 8))]),
        ({"8x": {}}, {}, ["swp1"]),
        ("1x", {}, [f"swp1s{part}" for part in range(8)]),
        ("1x400G", {"swp1": 400}, [f"swp1s{part}" for part in range(8)]),
        ("disabled", {}, ["swp1", *(f"swp1s{part}" for part in range(8))]),
        ("loopback", {}, ["swp1", *(f"swp1s{part}" for part in range(8))]),
    ],
)
def test_a_port_is_split_into_parts(breakout, speeds, missing):
    seen = read({"interface": {"swp1": {"link": {"breakout": breakout}}}})
    assert seen.speeds_gbit_s == speeds
    assert [override.ports for override in seen.overrides] == [tuple(missing)]


@pytest.mark.parametrize(
    ("bridging", "ports"),
    [
        ({}, ("swp1", "swp2")),
        ({"access": 10}, ("swp1", "swp2")),
        ({"vlan": {"5-10": {}}}, ("swp1", "swp2")),
        ({"vlan": {"11,12": {}}}, ()),
        ({"vlan": {"11": {}}, "untagged": 10}, ("swp1", "swp2")),
        ({"access": 11}, ()),
    ],
)
def test_the_mtu_of_a_vlan_concerns_the_ports_that_carry_it(bridging, ports):
    port = {"bridge": {"domain": {"br_default": bridging}}}
    for vlan in ({"vlan10": {}}, {"vlan10": {"base-interface": "br_default"}}, {"svi10": {"type": "svi", "vlan": 10}}):
        ((name, settings),) = vlan.items()
        seen = read({"interface": {"swp1-2": port, "swp3": {}, name: {**settings, "link": {"mtu": 1500}}}})
        assert [(override.ports, override.ip_mtu_bytes) for override in seen.overrides] == [(ports, 1500)] * bool(ports)


def test_the_items_of_a_list_are_merged():
    text = json.dumps(
        [
            {"header": {"version": "5.9"}, "set": {}},
            {"set": {"interface": {"swp1": {"link": {"mtu": 1500}}}}},
            {"set": {"interface": {"swp1": {"link": {"state": "up"}}, "swp2": {}}, "qos": {}}},
        ]
    )
    assert document(text, "leaf1") == {
        "interface": {"swp1": {"link": {"mtu": 1500, "state": "up"}}, "swp2": {}},
        "qos": {},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", OTHER_ITEMS),
        (
            '[{"unset": {}}]',
            OTHER_ITEMS,
        ),
        (
            '[{"set": {"qos": {}}}, 5]',
            OTHER_ITEMS,
        ),
        ('{"system": {}}', "it contains no settings; give what `nv config show -o json` prints"),
        ('[{"header": {}}]', "it contains no settings; give what `nv config show -o json` prints"),
    ],
)
def test_what_is_no_configuration_is_refused(text, message):
    with raises(FabricError, "leaf1", message):
        document(text, "leaf1")


@pytest.mark.parametrize(
    ("key", "number", "limits"),
    [
        ("polling-interval", 99, "100 to 5000"),
        ("polling-interval", 5001, "100 to 5000"),
        ("robustness", 0, "1 to 1000"),
        ("robustness", 1001, "1 to 1000"),
    ],
)
def test_the_watchdog_has_limits(key, number, limits):
    tree = {"interface": {}, "qos": {"pfc-watchdog": {key: number}}}
    assert refused(tree) == Mentions("pfc-watchdog", key, number, limits)


@pytest.mark.parametrize("roce", [{"enable": "off"}, {"state": "disabled", "mode": "lossless"}])
def test_the_mode_roce_may_be_off(roce):
    assert read({"interface": {"swp1": {}}, "qos": {"roce": roce}}).ports["swp1"].pfc == ()
