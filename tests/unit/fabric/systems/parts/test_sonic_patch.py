from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sonic_configs import PORTS, default_config, with_brackets
from switches import policies, switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Pools, Queue, Switch, Watchdog
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asic_table import ASICS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.sonic_tables import references
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import sonic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.sonic_wanted import (
    MAPS,
    PFC_TO_PG,
    PFC_TO_PG_TABLE,
    wanted_port,
)

jsonpatch = pytest.importorskip("jsonpatch")

LOSSY = {"classes": {"roce": {"mode": "lossy"}}}
TABLES = {*MAPS.values(), PFC_TO_PG_TABLE, "SCHEDULER", "WRED_PROFILE", "BUFFER_PROFILE", "BUFFER_POOL"}
REFERENCES = {*MAPS, PFC_TO_PG, "scheduler", "wred_profile", "profile", "pool"}


def patch(config: dict, wanted: Switch) -> list[dict[str, Any]]:
    """All operations of the patches, in the order in which they are applied."""
    return [each for one in patches(config, wanted) for each in one]


def patches(config: dict, wanted: Switch) -> list[list[dict[str, Any]]]:
    text = sonic.remediation(json.dumps(config), wanted)
    return [json.loads(each) for each in text.split("\n\n")] if text else []


def check_steps(config: dict, operations: list[dict[str, Any]]) -> dict:
    """Applies one operation after the other: nothing may refer to what is missing, at any time."""
    config = copy.deepcopy(config)
    for operation in operations:
        config = jsonpatch.apply_patch(config, [copy.deepcopy(operation)], in_place=True)
        names = {"NULL"}.union(*(config.get(table, {}) for table in TABLES))
        for table in ("PORT_QOS_MAP", "QUEUE", "BUFFER_PG", "BUFFER_QUEUE", "BUFFER_PROFILE"):
            for entry in config.get(table, {}).values():
                for field in REFERENCES & entry.keys():
                    assert names.intersection(references({field: entry[field]})), operation
    return config


def apply(config: dict, wanted: Switch) -> dict:
    """The configuration after the patch, which must be what is wanted and need no other."""
    before = copy.deepcopy(config)
    operations = patch(config, wanted)
    after = jsonpatch.apply_patch(config, json.loads(json.dumps(operations)))
    assert config == before
    assert check_steps(config, operations) == after
    read = sonic.parse(json.dumps(after), wanted.name)
    assert {port: read.ports[port] for port in wanted.ports} == wanted.ports
    assert read.ecmp_fields == wanted.ecmp_fields
    assert all(after.values()), "the updater takes no empty table"
    assert patch(after, wanted) == []
    return after


def test_from_sonics_default_to_the_reference():
    config = default_config()
    after = apply(config, switch("sonic", list(PORTS)))
    for table in ("DEVICE_METADATA", "VERSIONS", "LOOPBACK_INTERFACE", "CABLE_LENGTH", "BUFFER_POOL", "PORT"):
        assert after[table] == config[table]
    # What the image brought is there yet, and no longer used.
    for table in ("DSCP_TO_TC_MAP", "SCHEDULER", "WRED_PROFILE", "BUFFER_PROFILE"):
        assert after[table].items() >= config[table].items()
    assert after["PORT_QOS_MAP"]["global"] == {"dscp_to_tc_map": "AZURE"}
    assert {key for key in after["QUEUE"] if key.startswith("Ethernet0|")} == {f"Ethernet0|{at}" for at in (0, 3, 6)}
    lossless = {key: entry["profile"] for key, entry in after["BUFFER_QUEUE"].items() if key.startswith("Ethernet0|")}
    assert lossless == {
        "Ethernet0|0-2": "egress_lossy_profile",
        "Ethernet0|3-4": "egress_lossless_profile",
        "Ethernet0|5-6": "egress_lossy_profile",
    }
    assert after["BUFFER_PG"].keys() >= {"Ethernet0|0", "Ethernet0|3", "Ethernet0|6"}
    assert "Ethernet0|4" not in after["BUFFER_PG"]  # its headroom is free for others


def test_what_is_rendered_and_merged_onto_an_image_without_qos_needs_no_patch():
    """But for the keys: `config load` merges entries."""
    wanted = switch("sonic", list(PORTS))
    config = default_config()
    for table in ("PORT_QOS_MAP", "QUEUE", "BUFFER_PG", "BUFFER_QUEUE", "PFC_WD"):
        del config[table]
    for table, entries in json.loads(sonic.render(wanted)).items():
        for key, entry in entries.items():
            config.setdefault(table, {}).setdefault(key, {}).update(entry)
    assert patch(config, wanted) == []


@pytest.mark.parametrize("policy", [None, LOSSY], ids=["lossless", "lossy"])
def test_an_old_image_keeps_its_form(policy):
    config = with_brackets(default_config())
    wanted = replace(switch("sonic", list(PORTS), policy), ecmp_fields=None)
    after = apply(config, wanted)
    entry = after["PORT_QOS_MAP"]["Ethernet4"]
    assert entry["dscp_to_tc_map"].startswith("[DSCP_TO_TC_MAP|SAILLOFT_")
    assert after["QUEUE"]["Ethernet4|3"]["scheduler"].startswith("[SCHEDULER|SAILLOFT_")
    assert "SWITCH_HASH" not in after
    with_hash = switch("sonic", list(PORTS), policy)
    assert not any("SWITCH_HASH" in each["path"] for each in patch(config, with_hash))


@given(policies(), policies(), st.booleans())
@settings(deadline=None, max_examples=20)
def test_from_any_policy_to_any(before, after, old):
    config = default_config()
    if old:
        config = with_brackets(config)
        config["VERSIONS"] = default_config()["VERSIONS"]
    between = apply(config, switch("sonic", list(PORTS), before))
    there = apply(between, switch("sonic", list(PORTS), after))
    straight = apply(config, switch("sonic", list(PORTS), after))
    assert there["QUEUE"] == straight["QUEUE"]
    for table in TABLES:
        own = {name for name in there.get(table, {}) if name.startswith("SAILLOFT_")}
        assert own == {name for name in straight.get(table, {}) if name.startswith("SAILLOFT_")}


def test_what_a_former_policy_left_goes_and_what_others_added_stays():
    config = apply(default_config(), switch("sonic", list(PORTS)))
    config["WRED_PROFILE"]["theirs"] = dict(config["WRED_PROFILE"]["AZURE_LOSSLESS"])
    config["PORT_QOS_MAP"]["Ethernet0"]["scheduler"] = "scheduler.0"  # a port's shaper
    config["QUEUE"]["Ethernet0|7-9"] = {"scheduler": "scheduler.0"}
    config["PFC_WD"]["Ethernet0"]["pfc_stat_history"] = "enable"
    after = apply(config, switch("sonic", list(PORTS), {"classes": {"roce": {"bandwidth_percent": 30}}}))
    assert "theirs" in after["WRED_PROFILE"]
    assert after["PORT_QOS_MAP"]["Ethernet0"]["scheduler"] == "scheduler.0"
    assert after["QUEUE"]["Ethernet0|8-9"] == {"scheduler": "scheduler.0"}
    assert after["PFC_WD"]["Ethernet0"]["pfc_stat_history"] == "enable"
    assert set(after["SCHEDULER"]) == {
        "scheduler.0",
        "scheduler.1",
        "SAILLOFT_DWRR_30",
        "SAILLOFT_DWRR_70",
        "SAILLOFT_STRICT",
    }


def test_a_port_that_is_no_longer_wanted_loses_what_was_ours_and_others_are_left():
    config = apply(default_config(), switch("sonic", ["Ethernet0", "Ethernet4"]))
    after = apply(config, switch("sonic", ["Ethernet0"]))
    assert "Ethernet4" not in after["PORT_QOS_MAP"]
    assert not [key for key in after["QUEUE"] if key.startswith("Ethernet4|")]
    assert "Ethernet4" not in after["PFC_WD"]
    assert not [key for key in after["BUFFER_PG"] if key == "Ethernet4|3"]
    for table in ("PORT_QOS_MAP", "QUEUE", "BUFFER_PG", "BUFFER_QUEUE", "PFC_WD", "PORT"):
        of_port = {key for key in config[table] if key.split("|")[0] == "Ethernet8"}
        assert of_port == {key for key in after[table] if key.split("|")[0] == "Ethernet8"}
        assert all(config[table][key] == after[table][key] for key in of_port)


def test_one_port_of_a_key_of_several_is_taken_out():
    config = with_brackets(default_config())
    wanted = replace(switch("sonic", ["Ethernet0"]), ecmp_fields=None)
    after = apply(config, wanted)
    before = sonic.parse(json.dumps(config), "leaf1")
    assert sonic.parse(json.dumps(after), "leaf1").ports["Ethernet8"] == before.ports["Ethernet8"]


def test_a_port_that_rewrites_dscps_is_seen_and_stops():
    config = default_config()
    config["TC_TO_DSCP_MAP"] = {"AZURE": {"3": "10"}}
    config["PORT_QOS_MAP"]["Ethernet4"]["tc_to_dscp_map"] = "AZURE"
    before = sonic.parse(json.dumps(config), "leaf1").ports
    assert [port for port, qos in before.items() if qos.rewrites_dscp] == ["Ethernet4"]
    apply(config, switch("sonic", list(PORTS)))


def test_from_lossless_to_lossy_headroom_and_watchdog_go():
    config = apply(default_config(), switch("sonic", list(PORTS)))
    after = apply(config, switch("sonic", list(PORTS), LOSSY))
    assert after["PORT_QOS_MAP"]["Ethernet0"]["pfc_enable"] == ""
    assert after["PORT_QOS_MAP"]["Ethernet0"]["pfcwd_sw_enable"] == ""
    assert after["BUFFER_PG"]["Ethernet0|3"] == {"profile": "ingress_lossy_profile"}
    assert after["BUFFER_QUEUE"]["Ethernet0|3"] == {"profile": "egress_lossy_profile"}
    assert after["PFC_WD"] == {"GLOBAL": {"POLL_INTERVAL": "200"}}  # never removed
    assert not [name for name in after["BUFFER_PROFILE"] if name.startswith("SAILLOFT_")]


@pytest.mark.parametrize("watchdogs", [{}, {"Ethernet0": {"detection_time": "200", "restoration_time": "200"}}])
def test_no_table_is_left_empty(watchdogs):
    config = default_config()
    config["PFC_WD"] = watchdogs
    if not watchdogs:
        del config["PFC_WD"]
    after = apply(config, switch("sonic", list(PORTS), LOSSY))
    assert "PFC_WD" not in after


def test_a_platforms_profile_of_lossy_queues_is_kept_and_used():
    config = default_config()
    config["BUFFER_PROFILE"]["q_lossy_profile"] = {"dynamic_th": "3", "pool": "egress_lossy_pool", "size": "0"}
    for key, entry in config["BUFFER_QUEUE"].items():
        if not key.endswith("3-4"):
            entry["profile"] = "q_lossy_profile"
    after = apply(config, switch("sonic", list(PORTS), LOSSY))
    used = {key: entry["profile"] for key, entry in after["BUFFER_QUEUE"].items() if key.startswith("Ethernet0|")}
    assert used == {
        "Ethernet0|0-2": "q_lossy_profile",
        "Ethernet0|3": "q_lossy_profile",
        "Ethernet0|4": "egress_lossless_profile",  # no class has it
        "Ethernet0|5-6": "q_lossy_profile",
    }


def test_a_platform_that_maps_priorities_to_groups_gets_them_all():
    config = default_config()
    config["PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"] = {"AZURE": {"3": "3", "4": "4"}}
    for port in PORTS:
        config["PORT_QOS_MAP"][port]["pfc_to_pg_map"] = "AZURE"
    after = apply(config, switch("sonic", list(PORTS), {"classes": {"roce": {"traffic_class": 5}}}))
    own = after["PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"][after["PORT_QOS_MAP"]["Ethernet0"]["pfc_to_pg_map"]]
    assert own == {str(at): str(at) for at in range(8)}
    assert "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP" not in apply(default_config(), switch("sonic", list(PORTS)))


def test_headroom_is_each_groups_own_where_the_pool_holds_none():
    config = default_config()
    del config["BUFFER_POOL"]["ingress_lossless_pool"]["xoff"]
    after = apply(config, switch("sonic", list(PORTS)))
    profile = after["BUFFER_PROFILE"][after["BUFFER_PG"]["Ethernet0|3"]["profile"]]
    assert (profile["size"], profile["xon"], profile["xoff"]) == (str(19456 + 38912), "0", "38912")


@pytest.mark.parametrize(
    ("asic", "line", "pools", "written"),
    [
        # pg_profile_lookup.ini: size, xon, xoff, xon_offset. NVIDIA's size holds xoff, and its pools hold none.
        ("spectrum3", (200, 5), False, ("55296", "19456", "35840", None)),
        ("spectrum3", (400, 5), False, ("86016", "37888", "38912", None)),
        ("spectrum4", (800, 5), False, ("304128", "38912", "257024", None)),
        ("tomahawk3", (400, 5), True, ("2540", "2540", "178562", "2540")),
        ("tomahawk4", (400, 5), True, ("9144", "9144", "371348", "9144")),
        ("tomahawk5", (400, 5), True, ("8636", "0", "425958", "3556")),
    ],
)
def test_a_profile_is_written_as_its_vendor_has_it(asic, line, pools, written):
    config = default_config()
    if not pools:
        del config["BUFFER_POOL"]["ingress_lossless_pool"]["xoff"]
    room = ASICS[asic].headroom[line]
    wanted = switch("sonic", list(PORTS), headroom=(None,) * 3 + (room,) + (None,) * 4)
    after = apply(config, wanted)
    profile = after["BUFFER_PROFILE"][after["BUFFER_PG"]["Ethernet0|3"]["profile"]]
    assert tuple(profile.get(field) for field in ("size", "xon", "xoff", "xon_offset")) == written


def pooled(pools, **changes):
    """The default configuration with other pools, brought to a switch that was planned with ``pools``."""
    config = default_config()
    for field, value in changes.items():
        if value is None:
            del config["BUFFER_POOL"]["ingress_lossless_pool"][field]
        else:
            config["BUFFER_POOL"]["ingress_lossless_pool"][field] = value
    return apply(config, replace(switch("sonic", list(PORTS)), pools=pools))


OWN = {"xoff": None}


def test_pools_as_planned():
    shared = Pools(32_689_152, 2_058_240)
    assert pooled(shared)["BUFFER_PG"]["Ethernet0|3"]
    assert pooled(shared, xoff="2058241", size="32689153")
    assert pooled(shared, size=None)  # the image sizes it
    assert pooled(Pools(32_689_152, 0, 32_689_152), **OWN)
    assert pooled(None, size="1")  # nothing was planned with any


@pytest.mark.parametrize(
    ("pools", "changes", "why"),
    [
        (Pools(32_689_153, 2_058_240), {}, "its size is 32689152 bytes, and the plan assumes 32689153"),
        (Pools(32_689_152, 2_058_241), {}, "its xoff is 2058240 bytes, and the plan assumes 2058241"),
        (Pools(32_689_152, 2_058_240), OWN, "its xoff is 0 bytes, and the plan assumes 2058240"),
        (Pools(32_689_152, 0, 40_000_000), {}, "its xoff is 2058240 bytes, and the plan assumes 0"),
        (
            Pools(32_689_152, 0, 32_689_151),
            OWN,
            "the ingress pools have 32689152 bytes, and the headroom of all ports leaves 32689151 of the buffer",
        ),
    ],
)
def test_other_pools_than_those_that_were_planned_with(pools, changes, why):
    with pytest.raises(FabricError) as refused:
        pooled(pools, **changes)
    assert str(refused.value) == (
        f"leaf1: BUFFER_POOL|ingress_lossless_pool: {why}; describe the switch's pools in roce_asics (like, source, "
        "pool_bytes, headroom_pool_bytes, lossy_pool_bytes), or change them"
    )


@pytest.mark.parametrize("pools", [True, False])
def test_every_profile_is_read_back_as_it_was_written(pools):
    qos = switch("sonic", ["Ethernet0"]).ports["Ethernet0"]
    for asic in ASICS.values():
        for room in asic.headroom.values():
            entry = wanted_port(replace(qos, headroom=(None,) * 3 + (room,) + (None,) * 4), False, pools)
            tables = {
                "BUFFER_PG": {"Ethernet0|3": {"profile": entry.groups[3]}},
                "BUFFER_PROFILE": {},
                "BUFFER_POOL": {},
            }
            tables["BUFFER_POOL"]["ingress_lossless_pool"] = {"xoff": "4194304"} if pools else {}
            tables["BUFFER_PROFILE"][entry.groups[3]] = entry.shared["BUFFER_PROFILE", entry.groups[3]]
            assert sonic.parse(json.dumps(tables), "leaf1").ports["Ethernet0"].headroom[3] == room


def test_the_watchdog_polls_often_enough():
    config = default_config()
    config["PFC_WD"]["GLOBAL"]["POLL_INTERVAL"] = "400"
    after = apply(config, switch("sonic", list(PORTS), watchdog=Watchdog(300, 200, "drop")))
    assert after["PFC_WD"]["GLOBAL"] == {"POLL_INTERVAL": "200"}


def test_the_hash_keeps_foreign_fields_and_loses_what_would_override_it():
    config = default_config()
    config["SWITCH_HASH"] = {
        "GLOBAL": {
            "ecmp_hash": ["INNER_SRC_IP", "SRC_IP"],
            "ecmp_hash_ipv4_rdma": ["DST_IP"],
            "ecmp_hash_algorithm": "CRC",
            "lag_hash": ["SRC_IP"],
        }
    }
    after = apply(config, switch("sonic", list(PORTS)))
    assert after["SWITCH_HASH"]["GLOBAL"] == {
        "ecmp_hash": ["DST_IP", "IP_PROTOCOL", "L4_DST_PORT", "L4_SRC_PORT", "SRC_IP", "INNER_SRC_IP"],
        "ecmp_hash_algorithm": "CRC",
        "lag_hash": ["SRC_IP"],
    }
    untouched = replace(switch("sonic", list(PORTS)), ecmp_fields=None)
    assert not any("SWITCH_HASH" in each["path"] for each in patch(config, untouched))


def drifts(config):
    """Each setting of ours once taken away and, where it is a number or a profile, once changed."""
    ours = {"PORT": ("mtu",), "BUFFER_QUEUE": ("profile",)}
    for table in (*TABLES, "PORT", "PORT_QOS_MAP", "BUFFER_PG", "BUFFER_QUEUE", "QUEUE", "PFC_WD", "SWITCH_HASH"):
        for key, entry in config.get(table, {}).items():
            if not key.startswith("SAILLOFT_") and key.split("|")[0] not in ("Ethernet0", "GLOBAL"):
                continue
            for field in ours.get(table, tuple(entry)):
                if (key, field) == ("GLOBAL", "POLL_INTERVAL"):
                    continue
                removed = copy.deepcopy(config)
                del removed[table][key][field]
                yield f"{table}|{key}|{field} removed", removed
                changed = copy.deepcopy(config)
                other = {"egress_lossless_profile": "egress_lossy_profile", "egress_lossy_profile": None}
                value = entry[field]
                changed[table][key][field] = other.get(str(value)) or (
                    str(int(value) ^ 1) if str(value).lstrip("-").isdigit() else value
                )
                if changed != config:
                    yield f"{table}|{key}|{field} changed", changed


def test_each_setting_of_ours_that_drifts_is_mended():
    wanted = switch("sonic", ["Ethernet0"])
    config = apply(default_config(), wanted)
    count = 0
    for what, broken in drifts(config):
        try:
            operations = patch(broken, wanted)
        except FabricError:
            continue
        assert operations, what
        after = jsonpatch.apply_patch(broken, operations)
        assert patch(after, wanted) == [], what
        if "BUFFER_QUEUE" not in what:  # where a range may come apart
            assert after == config, what
        count += 1
    assert count > 150


def test_a_range_goes_by_a_patch_of_its_own_before_its_parts_come():
    first, second = patches(default_config(), switch("sonic", list(PORTS)))
    assert {"op": "remove", "path": "/BUFFER_PG/Ethernet0|3-4"} in first
    assert {each["op"] for each in first} == {"remove"}
    assert "/BUFFER_PG/Ethernet0|3" in [each["path"] for each in second]


LACKING = [
    (("PORT", "Ethernet8"), "leaf1: PORT|Ethernet8: the switch has no such port"),
    (("BUFFER_POOL", "ingress_lossless_pool"), "leaf1: BUFFER_POOL|ingress_lossless_pool: headroom needs this pool"),
    (("BUFFER_PROFILE", "ingress_lossy_profile"), "leaf1: BUFFER_PROFILE|ingress_lossy_profile: the policy needs"),
    (("BUFFER_PROFILE", "egress_lossless_profile"), "leaf1: BUFFER_PROFILE|egress_lossless_profile: the policy needs"),
    (("BUFFER_PROFILE", "egress_lossy_profile"), "leaf1: BUFFER_PROFILE|egress_lossy_profile: neither q_lossy_profile"),
]


@pytest.mark.parametrize(("path", "said"), LACKING)
def test_what_the_image_lacks_is_said_with_the_next_step(path, said):
    config = default_config()
    del config[path[0]][path[1]]
    del config["BUFFER_QUEUE"]
    with pytest.raises(FabricError) as refused:
        patch(config, switch("sonic", list(PORTS)))
    assert said in str(refused.value)
    assert refused.value.remedy


def test_what_sonic_cannot_hold_is_refused_before_it_is_handed_out():
    qos = switch("sonic", list(PORTS)).ports["Ethernet0"]
    queues = (Queue(False, 10), Queue(False, 20), *qos.queues[2:])  # 80% with the 50 of queue 3
    with pytest.raises(FabricError, match="leaf1: Ethernet0: SONiC would not hold queues as wanted"):
        patch(default_config(), switch("sonic", list(PORTS), queues=queues))


def test_what_could_not_be_read_afterwards_is_refused():
    config = default_config()
    del config["BUFFER_PROFILE"]["pg_lossless_100000_5m_profile"]  # group 4, which no class has, refers to it
    with pytest.raises(FabricError, match=r"leaf1: BUFFER_PG\|Ethernet0\|4: profile refers to"):
        patch(config, switch("sonic", list(PORTS)))


def test_a_cable_is_not_sonics_to_hold():
    without, told = (patch(default_config(), switch("sonic", list(PORTS), cable_m=metres)) for metres in (None, 30))
    assert told == without != []


def test_a_pause_without_headroom_is_refused():
    with pytest.raises(FabricError, match="leaf1: Ethernet0: priority 3 pauses and has no headroom"):
        patch(default_config(), switch("sonic", list(PORTS), headroom=(None,) * 8))


def test_a_static_pool_is_refused():
    config = default_config()
    config["BUFFER_POOL"]["ingress_lossless_pool"]["mode"] = "static"
    with pytest.raises(FabricError, match="an alpha needs a dynamic pool"):
        patch(config, switch("sonic", list(PORTS)))


@pytest.mark.parametrize("text", ["", "[]", '{"QUEUE": []}', '{"QUEUE": {"Ethernet0|3": "x"}}'])
def test_what_is_no_configuration_is_refused(text):
    with pytest.raises(FabricError, match="leaf1: "):
        sonic.remediation(text, switch("sonic", list(PORTS)))


def test_the_same_input_the_same_patch():
    wanted = switch("sonic", list(PORTS))
    one, other = (json.dumps(patch(default_config(), wanted)) for _time in range(2))
    assert one == other
    turned = {table: dict(reversed(entries.items())) for table, entries in reversed(default_config().items())}
    assert json.loads(json.dumps(patch(turned, wanted))) == json.loads(one)


def test_names_with_a_slash_are_pointed_to():
    """RFC 6901: ports may bear names such as Eth1/1."""
    ports = ("Eth1/1", "Eth1/2~a")
    apply(default_config(ports), switch("sonic", list(ports)))
