# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""SONiC: rendered settings are read back, and any change is seen."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import given
from sonic_configs import PORTS, read
from switches import ECN, policies, switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    Ecn,
    Headroom,
    Queue,
    Switch,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import sonic


def rendered(wanted: Switch) -> dict:
    return json.loads(sonic.render(wanted))


def test_the_reference_is_rendered():
    tables = rendered(switch("sonic", ["Ethernet0"]))
    maps = tables["PORT_QOS_MAP"]["Ethernet0"]
    dscp = tables["DSCP_TO_TC_MAP"][maps["dscp_to_tc_map"]]
    assert (dscp["26"], dscp["48"], dscp["0"], len(dscp)) == ("3", "6", "0", 64)
    assert tables["TC_TO_QUEUE_MAP"][maps["tc_to_queue_map"]] == {"0": "0", "3": "3", "6": "6"}
    assert tables["TC_TO_PRIORITY_GROUP_MAP"][maps["tc_to_pg_map"]] == {"0": "0", "3": "3", "6": "6"}
    assert tables["MAP_PFC_PRIORITY_TO_QUEUE"][maps["pfc_to_queue_map"]] == {"0": "0", "3": "3", "6": "6"}
    assert (maps["pfc_enable"], maps["pfcwd_sw_enable"]) == ("3", "3")
    queues = {key: dict(entry) for key, entry in tables["QUEUE"].items()}
    assert tables["SCHEDULER"][queues["Ethernet0|6"].pop("scheduler")] == {"type": "STRICT"}
    assert tables["SCHEDULER"][queues["Ethernet0|3"].pop("scheduler")] == {"type": "DWRR", "weight": "50"}
    assert tables["SCHEDULER"][queues["Ethernet0|0"].pop("scheduler")] == {"type": "DWRR", "weight": "50"}
    wred = tables["WRED_PROFILE"][queues["Ethernet0|3"].pop("wred_profile")]
    assert wred["ecn"] == "ecn_all"
    assert {wred[f"wred_{colour}_enable"] for colour in ("green", "yellow", "red")} == {"true"}
    assert {wred[f"{colour}_min_threshold"] for colour in ("green", "yellow", "red")} == {"150000"}
    assert {wred[f"{colour}_max_threshold"] for colour in ("green", "yellow", "red")} == {"1500000"}
    assert {wred[f"{colour}_drop_probability"] for colour in ("green", "yellow", "red")} == {"100"}
    assert not any(queues.values())
    headroom = tables["BUFFER_PROFILE"][tables["BUFFER_PG"]["Ethernet0|3"]["profile"]]
    assert headroom == {
        "dynamic_th": "0",
        "pool": "ingress_lossless_pool",
        "size": "19456",
        "xoff": "38912",
        "xon": "0",  # there is no xon_offset, because it would mean the same
    }
    assert {key: entry["profile"] for key, entry in tables["BUFFER_QUEUE"].items()} == {
        "Ethernet0|0": "egress_lossy_profile",
        "Ethernet0|3": "egress_lossless_profile",
        "Ethernet0|6": "egress_lossy_profile",
    }
    assert tables["PFC_WD"] == {"Ethernet0": {"action": "drop", "detection_time": "200", "restoration_time": "200"}}
    assert tables["PORT"] == {"Ethernet0": {"mtu": "9100"}}
    assert tables["SWITCH_HASH"]["GLOBAL"]["ecmp_hash"] == [
        "DST_IP",
        "IP_PROTOCOL",
        "L4_DST_PORT",
        "L4_SRC_PORT",
        "SRC_IP",
    ]


@given(policies())
def test_any_rendered_policy_is_read_back(policy):
    wanted = switch("sonic", ["Ethernet0", "Ethernet4"], policy)
    assert sonic.parse(sonic.render(wanted), "leaf1") == wanted


def test_ports_that_differ_are_read_back():
    wanted = switch("sonic", list(PORTS))
    qos = wanted.ports["Ethernet0"]
    odd_wanted = replace(
        qos,
        queues=(*qos.queues[:3], Queue(False, 50, Ecn(1, 2, 3)), *qos.queues[4:]),
        headroom=(*qos.headroom[:3], Headroom(1248, 96928, 0, -3), *qos.headroom[4:]),
        watchdog=Watchdog(400, 1000, "forward"),
        ip_mtu_bytes=None,
    )
    lossy = replace(qos, pfc=(), headroom=(None,) * 8, watchdog=None)
    mixed = replace(wanted, ports={"Ethernet0": qos, "Ethernet4": odd_wanted, "Ethernet8": lossy}, ecmp_fields=None)
    assert sonic.parse(sonic.render(mixed), "leaf1") == mixed


def test_a_lossless_policy_without_a_watchdog_is_rendered_and_read_back():
    wanted = switch("sonic", ["Ethernet0"], {"pfc_watchdog": False})
    tables = rendered(wanted)
    assert tables["PORT_QOS_MAP"]["Ethernet0"]["pfc_enable"] == "3"
    assert tables["PORT_QOS_MAP"]["Ethernet0"]["pfcwd_sw_enable"] == ""
    assert "PFC_WD" not in tables
    assert read(tables) == wanted


def test_lossless_groups_without_headroom_are_left_to_the_switch():
    wanted = switch("sonic", ["Ethernet0"], headroom=(None,) * 8)
    assert sorted(rendered(wanted)["BUFFER_PG"]) == ["Ethernet0|0", "Ethernet0|6"]
    assert read(rendered(wanted)) == wanted


@pytest.mark.parametrize(("own_headroom", "size"), [(False, "19456"), (True, "58368")])
def test_a_group_holds_its_own_headroom_only_without_a_headroom_pool(own_headroom, size):
    tables = rendered(replace(switch("sonic", ["Ethernet0"]), own_headroom=own_headroom))
    assert tables["BUFFER_PROFILE"][tables["BUFFER_PG"]["Ethernet0|3"]["profile"]] == {
        "dynamic_th": "0",
        "pool": "ingress_lossless_pool",
        "size": size,
        "xoff": "38912",
        "xon": "0",
    }


def test_equal_ports_share_profiles_and_are_read_back_as_one_object():
    ports = [f"Ethernet{number * 8}" for number in range(64)]
    tables = rendered(switch("sonic", ports))
    first = rendered(switch("sonic", ["Ethernet0"]))
    for table in ("DSCP_TO_TC_MAP", "WRED_PROFILE", "SCHEDULER", "BUFFER_PROFILE"):
        assert tables[table] == first[table]
    assert len({id(qos) for qos in read(tables).ports.values()}) == 1
    assert list(read(tables).ports) == ports  # in numerical order, not in alphabetical order


def test_the_same_input_gives_the_same_bytes_with_sorted_keys():
    wanted = switch("sonic", list(PORTS))
    text = sonic.render(wanted)
    sonic.text_of_ports.cache_clear()
    assert sonic.render(copy.deepcopy(wanted)) == text
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"
    assert sonic.render(switch("sonic", list(reversed(PORTS)))) == text


def test_names_depend_on_the_content_and_have_at_most_32_characters():
    def names(**changes):
        tables = rendered(switch("sonic", ["Ethernet0"], **changes))
        return {table: set(entries) for table, entries in tables.items()}

    original = names()
    qos = switch("sonic", ["Ethernet0"]).ports["Ethernet0"]
    queues = list(qos.queues)
    queues[3] = replace(queues[3], ecn=replace(ECN, minimum_bytes=1 << 40, maximum_bytes=1 << 40))
    changed = names(queues=tuple(queues))
    assert {table for table in original if original[table] != changed[table]} == {"WRED_PROFILE"}
    assert all(len(name) <= 32 for table in changed for name in changed[table] if name.startswith("SAILLOFT"))


# Settings that ``Switch`` has no field for: ``patch`` enforces them (parts/test_sonic_patch), and parse ignores them.
NO_TERM = {
    ("BUFFER_QUEUE", "profile"),  # the egress buffer
    ("PFC_WD", "action"),  # "drop" where it is not set
    *(
        ("WRED_PROFILE", field.format(colour))
        for colour in ("yellow", "red")
        for field in ("wred_{}_enable", "{}_min_threshold", "{}_max_threshold", "{}_drop_probability")
    ),
    # The default is the wanted value here.
    ("WRED_PROFILE", "green_drop_probability"),
    ("SCHEDULER", "weighted"),  # the default is WRR, which is the same in Switch
    # A lossy group's buffer: no headroom is read with or without it.
    ("BUFFER_PG", "lossy"),
}


UNEVEN = {"classes": {"roce": {"bandwidth_percent": 60}}}  # with equal weights, a change may leave the shares equal


def settings_of(tables):
    for table, entries in tables.items():
        for key, entry in entries.items():
            for field, value in entry.items():
                special = {("BUFFER_PG", "ingress_lossy_profile"): "lossy", ("SCHEDULER", "DWRR"): "weighted"}
                yield table, key, field, (table, special.get((table, str(value)), field)) in NO_TERM


def outcome(tables):
    try:
        return read(tables)
    except FabricError as error:
        return str(error)


def test_each_removed_setting_is_detected():
    tables = rendered(switch("sonic", ["Ethernet0"], UNEVEN))
    original = read(tables)
    count = 0
    for table, key, field, no_term in settings_of(tables):
        broken = copy.deepcopy(tables)
        del broken[table][key][field]
        assert (outcome(broken) == original) is no_term, f"{table}|{key}|{field}"
        count += not no_term
    assert count > 90


OTHER = {
    "ecn": "ecn_none",
    "ecmp_hash": ["SRC_IP"],
    "action": "forward",
    "type": "FAIR",
    "pfc_enable": "4",
    "pfcwd_sw_enable": "",
    "wred_green_enable": "false",
    "pool": "egress_lossy_pool_of_nobody",
}


def test_each_changed_setting_is_detected():
    tables = rendered(switch("sonic", ["Ethernet0"], UNEVEN))
    tables["BUFFER_POOL"] = {"ingress_lossless_pool": {"mode": "dynamic", "type": "ingress"}}
    tables["BUFFER_PROFILE"]["ingress_lossy_profile"] = {"dynamic_th": "3", "pool": "x", "size": "0"}
    seen_whatever = {
        ("PFC_WD", "action"),
        ("WRED_PROFILE", "green_drop_probability"),
        ("BUFFER_PG", "profile"),
        ("SCHEDULER", "type"),
    }
    original = read(tables)
    for table, key, field, no_term in settings_of(tables):
        if table == "BUFFER_POOL" or key == "ingress_lossy_profile":
            continue
        broken = copy.deepcopy(tables)
        value = broken[table][key][field]
        number = isinstance(value, str) and value.lstrip("-").isdecimal()
        broken[table][key][field] = OTHER.get(field, str(int(value) ^ 3) if number else "nobody")
        expected = no_term and (table, field) not in seen_whatever
        assert (outcome(broken) == original) is expected, f"{table}|{key}|{field}"
