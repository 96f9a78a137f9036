# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Patches lead from any configuration to the policy, and change nothing else."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patched_sonic import LOSSY, TABLES, apply, check_steps, jsonpatch, patch, patches
from sonic_configs import PORTS, default_config, dynamic_config, with_brackets
from switches import policies, switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Watchdog
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import sonic


def test_a_patch_leads_from_sonics_default_to_the_reference():
    config = default_config()
    after = apply(config, switch("sonic", list(PORTS)))
    for table in ("DEVICE_METADATA", "VERSIONS", "LOOPBACK_INTERFACE", "CABLE_LENGTH", "BUFFER_POOL", "PORT"):
        assert after[table] == config[table]
    # The image's own entries still exist, but are no longer used.
    for table in ("DSCP_TO_TC_MAP", "SCHEDULER", "WRED_PROFILE", "BUFFER_PROFILE"):
        assert after[table].items() >= config[table].items()
    assert after["PORT_QOS_MAP"]["global"] == {"dscp_to_tc_map": "AZURE"}
    assert {key for key in after["QUEUE"] if key.startswith("Ethernet0|")} == {
        f"Ethernet0|{number}" for number in (0, 3, 6)
    }
    lossless = {key: entry["profile"] for key, entry in after["BUFFER_QUEUE"].items() if key.startswith("Ethernet0|")}
    assert lossless == {
        "Ethernet0|0-2": "egress_lossy_profile",
        "Ethernet0|3-4": "egress_lossless_profile",
        "Ethernet0|5-6": "egress_lossy_profile",
    }
    assert after["BUFFER_PG"].keys() >= {"Ethernet0|0", "Ethernet0|3", "Ethernet0|6"}
    assert "Ethernet0|4" not in after["BUFFER_PG"]  # its headroom is free for others


def test_an_image_with_the_merged_rendered_configuration_needs_no_patch():
    """The keys of the image are removed before, because `config load` merges entries."""
    wanted = switch("sonic", list(PORTS))
    config = default_config()
    for table in ("PORT_QOS_MAP", "QUEUE", "BUFFER_PG", "BUFFER_QUEUE", "PFC_WD"):
        del config[table]
    for table, entries in json.loads(sonic.render(wanted)).items():
        for key, entry in entries.items():
            config.setdefault(table, {}).setdefault(key, {}).update(entry)
    assert patch(config, wanted) == []


@pytest.mark.parametrize("policy", [None, LOSSY], ids=["lossless", "lossy"])
def test_an_old_image_keeps_references_in_brackets(policy):
    config = with_brackets(default_config())
    wanted = replace(switch("sonic", list(PORTS), policy), ecmp_fields=None)
    after = apply(config, wanted)
    entry = after["PORT_QOS_MAP"]["Ethernet4"]
    assert entry["dscp_to_tc_map"].startswith("[DSCP_TO_TC_MAP|SAILLOFT_")
    assert after["QUEUE"]["Ethernet4|3"]["scheduler"].startswith("[SCHEDULER|SAILLOFT_")
    assert "SWITCH_HASH" not in after
    with_hash = switch("sonic", list(PORTS), policy)
    assert not any("SWITCH_HASH" in operation["path"] for operation in patch(config, with_hash))


@given(policies(), policies(), st.booleans())
def test_patches_lead_from_any_policy_to_any_other(first, second, old):
    config = default_config()
    if old:
        config = with_brackets(config)
        config["VERSIONS"] = default_config()["VERSIONS"]
    between = apply(config, switch("sonic", list(PORTS), first))
    patched = apply(between, switch("sonic", list(PORTS), second))
    straight = apply(config, switch("sonic", list(PORTS), second))
    assert patched["QUEUE"] == straight["QUEUE"]
    for table in TABLES:
        own_names = {name for name in patched.get(table, {}) if name.startswith("SAILLOFT_")}
        assert own_names == {name for name in straight.get(table, {}) if name.startswith("SAILLOFT_")}


def test_objects_of_an_earlier_policy_are_removed_and_foreign_ones_are_kept():
    config = apply(default_config(), switch("sonic", list(PORTS)))
    config["WRED_PROFILE"]["theirs"] = dict(config["WRED_PROFILE"]["AZURE_LOSSLESS"])
    config["PORT_QOS_MAP"]["Ethernet0"]["scheduler"] = "scheduler.0"  # the shaper of a port
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


def test_our_settings_are_removed_only_from_a_port_that_is_no_longer_wanted():
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


def test_keys_of_several_ports_are_split_and_the_other_ports_keep_their_settings():
    config = with_brackets(default_config())
    config["PFC_WD"] = {",".join(PORTS): config["PFC_WD"]["Ethernet0"], "GLOBAL": config["PFC_WD"]["GLOBAL"]}
    wanted = replace(switch("sonic", ["Ethernet0"]), ecmp_fields=None)
    after = apply(config, wanted)
    ports, former = (sonic.parse(json.dumps(each), "leaf1").ports for each in (after, config))
    assert [ports[port] for port in PORTS[1:]] == [former[port] for port in PORTS[1:]]
    text = sonic.remediation(json.dumps(config), wanted)
    words = [word for pattern, word in sonic.SONIC.interruptions.items() if re.search(pattern, text)]
    assert any("ports that share a key" in word for word in words)
    back = sonic.restoration(json.dumps(config), json.dumps(after), "leaf1")
    assert check_steps(after, [json.loads(one) for one in back.split("\n\n")]) == config


TWO = {
    "classes": {
        "roce": {"bandwidth_percent": 40},
        "storage": {"dscp": 34, "traffic_class": 4, "bandwidth_percent": 20},
    }
}


@pytest.mark.parametrize("form", [default_config, lambda: with_brackets(default_config())], ids=["new", "old"])
def test_groups_have_the_keys_that_the_image_adds_when_pfc_changes(form):
    """One of two adjacent priorities ends its pauses before it loses its headroom, as in a stage of a run."""
    wanted = replace(switch("sonic", list(PORTS), TWO), ecmp_fields=None)
    both = apply(form(), wanted)
    assert "Ethernet0|3-4" in both["BUFFER_PG"]
    reduced = replace(wanted, ports={port: replace(qos, pfc=(3,)) for port, qos in wanted.ports.items()})
    one = apply(both, reduced)
    assert {"Ethernet0|3", "Ethernet0|4"} <= one["BUFFER_PG"].keys()
    assert apply(one, wanted)["BUFFER_PG"] == both["BUFFER_PG"]


def test_a_group_gets_the_images_own_profile_where_it_has_the_planned_headroom():
    config, wanted = default_config(), switch("sonic", list(PORTS))
    profile = config["BUFFER_PROFILE"].pop("pg_lossless_100000_5m_profile")
    config["BUFFER_PROFILE"]["pg_lossless_400000_5m_profile"] = {
        **profile, "size": "19456", "xoff": "38912", "xon": "0", "xon_offset": "19456", "dynamic_th": "0"
    }  # fmt: skip
    for port in PORTS:
        del config["BUFFER_PG"][f"{port}|3-4"]
        config["PORT_QOS_MAP"][port]["pfc_enable"] = ""
    assert apply(config, wanted)["BUFFER_PG"]["Ethernet0|3"] == {"profile": "pg_lossless_400000_5m_profile"}


def test_rewriting_of_dscps_is_detected_and_turned_off():
    config = default_config()
    config["TC_TO_DSCP_MAP"] = {"AZURE": {"3": "10"}}
    config["PORT_QOS_MAP"]["Ethernet4"]["tc_to_dscp_map"] = "AZURE"
    original = sonic.parse(json.dumps(config), "leaf1").ports
    assert [port for port, qos in original.items() if qos.rewrites_dscp] == ["Ethernet4"]
    apply(config, switch("sonic", list(PORTS)))


def test_a_change_to_lossy_removes_headroom_and_watchdog():
    config = apply(default_config(), switch("sonic", list(PORTS)))
    after = apply(config, switch("sonic", list(PORTS), LOSSY))
    assert after["PORT_QOS_MAP"]["Ethernet0"]["pfc_enable"] == ""
    assert after["PORT_QOS_MAP"]["Ethernet0"]["pfcwd_sw_enable"] == ""
    assert after["BUFFER_PG"]["Ethernet0|3"] == {"profile": "ingress_lossy_profile"}
    assert after["BUFFER_QUEUE"]["Ethernet0|3"] == {"profile": "egress_lossy_profile"}
    assert after["PFC_WD"] == {"GLOBAL": {"POLL_INTERVAL": "200"}}  # the interval is never removed
    assert not [name for name in after["BUFFER_PROFILE"] if name.startswith("SAILLOFT_")]


@pytest.mark.parametrize("watchdogs", [{}, {"Ethernet0": {"detection_time": "200", "restoration_time": "200"}}])
def test_no_table_is_left_empty(watchdogs):
    config = default_config()
    config["PFC_WD"] = watchdogs
    if not watchdogs:
        del config["PFC_WD"]
    after = apply(config, switch("sonic", list(PORTS), LOSSY))
    assert "PFC_WD" not in after


def test_the_poll_interval_of_the_watchdog_is_lowered_if_needed():
    config = default_config()
    config["PFC_WD"]["GLOBAL"]["POLL_INTERVAL"] = "400"
    after = apply(config, switch("sonic", list(PORTS), watchdog=Watchdog(300, 200, "drop")))
    assert after["PFC_WD"]["GLOBAL"] == {"POLL_INTERVAL": "200"}


def test_the_hash_keeps_foreign_fields_and_loses_overriding_fields():
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
    assert not any("SWITCH_HASH" in operation["path"] for operation in patch(config, untouched))


def drifts(config):
    """Yield each of our settings once removed and, if it is a number or a profile, once changed."""
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
                replacements = {"egress_lossless_profile": "egress_lossy_profile", "egress_lossy_profile": None}
                value = entry[field]
                changed[table][key][field] = replacements.get(str(value)) or (
                    str(int(value) ^ 1) if str(value).lstrip("-").isdecimal() else value
                )
                if changed != config:
                    yield f"{table}|{key}|{field} changed", changed


def test_each_changed_setting_of_ours_is_corrected():
    wanted = switch("sonic", ["Ethernet0"])
    config = apply(default_config(), wanted)
    count = 0
    for name, broken in drifts(config):
        try:
            operations = patch(broken, wanted)
        except FabricError:
            continue
        assert operations, name
        after = jsonpatch.apply_patch(broken, operations)
        assert patch(after, wanted) == [], name
        if "BUFFER_QUEUE" not in name:  # in which a range may be split
            assert after == config, name
        count += 1
    assert count > 150


def test_a_range_is_removed_in_a_separate_patch_before_its_parts_are_added():
    pauses, first, second = patches(default_config(), switch("sonic", list(PORTS)))
    assert {"op": "remove", "path": "/BUFFER_PG/Ethernet0|3-4"} in first
    assert {operation["op"] for operation in first} == {"remove"}
    assert "/BUFFER_PG/Ethernet0|3" in [operation["path"] for operation in second]
    assert {(operation["path"], operation["value"]) for operation in pauses} == {
        (f"/PORT_QOS_MAP/{port}/pfc_enable", "") for port in PORTS
    }


def test_pauses_end_before_headroom_is_removed_and_stay_where_it_stays():
    config = default_config()
    for port in PORTS:
        profile = config["BUFFER_PG"].pop(f"{port}|3-4")
        config["BUFFER_PG"].update({f"{port}|3": profile, f"{port}|4": profile})
    pauses, change = patches(config, switch("sonic", list(PORTS)))
    assert {(operation["path"], operation["value"]) for operation in pauses} == {
        (f"/PORT_QOS_MAP/{port}/pfc_enable", "3") for port in PORTS
    }
    assert {"op": "remove", "path": "/BUFFER_PG/Ethernet0|4"} in change
    assert not any(operation["path"].endswith("pfc_enable") for operation in change)


@pytest.mark.parametrize("policy", [None, LOSSY], ids=["lossless", "lossy"])
@pytest.mark.parametrize("form", [default_config, dynamic_config, lambda: with_brackets(default_config())])
def test_no_headroom_of_a_priority_that_pauses_is_removed_on_the_way_to_a_policy_and_back(form, policy):
    config = form()
    wanted = replace(switch("sonic", list(PORTS), policy), ecmp_fields=None)
    if form is dynamic_config:
        port = replace(wanted.ports["Ethernet0"], cable_m=5, headroom=(None,) * 8)
        wanted = replace(wanted, ports=dict.fromkeys(PORTS, port))
    after = apply(config, wanted)
    assert patches(config, wanted)[0][0]["path"].endswith("pfc_enable")
    text = sonic.restoration(json.dumps(config), json.dumps(after), "leaf1")
    assert check_steps(after, [json.loads(one) for one in text.split("\n\n")])["BUFFER_PG"] == config["BUFFER_PG"]


def test_the_same_input_gives_the_same_patch():
    wanted = switch("sonic", list(PORTS))
    first, second = (json.dumps(patch(default_config(), wanted)) for _time in range(2))
    assert first == second
    turned = {table: dict(reversed(entries.items())) for table, entries in reversed(default_config().items())}
    assert json.loads(json.dumps(patch(turned, wanted))) == json.loads(first)


def test_slashes_in_names_are_escaped_in_json_pointers():
    """Ports may have names such as Eth1/1, whose slash is escaped in a pointer (RFC 6901)."""
    ports = ("Eth1/1", "Eth1/2~a")
    apply(default_config(ports), switch("sonic", list(ports)))
