# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""SONiC's configuration, written by the switch, its vendors or others, is read or refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from messages import raises
from sonic_configs import PORTS, default_config, read, with_brackets
from switches import switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    ECMP_FIELDS,
    Ecn,
    Headroom,
    PortQos,
    Queue,
    Switch,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import sonic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.sonic_wanted import HASH_FIELDS


def first(config: dict) -> PortQos:
    return read(config).ports[PORTS[0]]


# Configurations of the images.


def test_sonics_default_puts_roce_into_class_1_and_its_cnp_is_not_strict():
    switch_read = read(default_config())
    assert list(switch_read.ports) == list(PORTS)
    assert switch_read.ecmp_fields is None
    qos = switch_read.ports["Ethernet0"]
    assert qos.dscp_to_class[26] == 1
    assert qos.dscp_to_class[48] == 6
    assert qos.pfc == (3, 4)
    assert qos.queues[1] == Queue(False, 14)
    assert qos.queues[6] == Queue(False, 14)
    assert qos.queues[3] == qos.queues[4] == Queue(False, 15, Ecn(1048576, 2097152, 5))
    assert qos.queues[7] is None
    assert qos.class_to_priority == (0, 0, 0, 3, 4, 0, 0, 7)
    assert qos.headroom[3] == qos.headroom[4] == Headroom(1248, 96928, 2496, -3, 1248)
    assert [priority for priority, headroom in enumerate(qos.headroom) if headroom] == [3, 4]
    assert qos.watchdog == Watchdog(200, 200, "drop")
    assert qos.ip_mtu_bytes == 9100


def test_references_in_brackets_and_keys_of_several_ports_are_read():
    assert read(with_brackets(default_config())) == read(default_config())


def test_a_groups_size_includes_headroom_if_the_switch_has_no_headroom_pool():
    """The rendered file has what a patch would write for ACS-MSN4700, the SKU of the example inventory's leaf."""
    for own_headroom, size in ((False, 19_456), (True, 19_456 + 38_912)):
        wanted = replace(switch("sonic", list(PORTS)), own_headroom=own_headroom)
        tables = json.loads(sonic.render(wanted))
        profile = tables["BUFFER_PROFILE"][tables["BUFFER_PG"]["Ethernet0|3"]["profile"]]
        assert (profile["size"], profile["xoff"]) == (str(size), "38912")
        assert sonic.parse(sonic.render(wanted), "leaf1").ports == wanted.ports


def test_a_lossless_group_that_the_switch_computes_has_no_headroom():
    """The dynamic buffer model has such groups (buffers_config.j2, dynamic_mode)."""
    config = default_config()
    for port in PORTS:
        config["BUFFER_PG"][f"{port}|3-4"] = {"profile": "NULL"}
    assert first(config).headroom == (None,) * 8


def test_headroom_of_0_bytes_is_read_as_0_bytes():
    """Source: sonic-net/SONiC#480."""
    config = default_config()
    config["BUFFER_PROFILE"]["pg_lossless_100000_5m_profile"]["xoff"] = "0"
    assert first(config).headroom[3] == Headroom(1248, 0, 2496, -3, 1248)


def test_reserved_bytes_exclude_headroom_within_a_groups_size():
    config = default_config()
    config["BUFFER_PROFILE"]["pg_lossless_100000_5m_profile"].update(size="98176", xon="1248", xoff="96928")
    assert first(config).headroom[3].reserved_bytes == 1248


def test_a_missing_xon_offset_is_computed_from_size_and_xon():
    config = default_config()
    profile = config["BUFFER_PROFILE"]["pg_lossless_100000_5m_profile"]
    del profile["xon_offset"]
    profile["size"] = "2000"
    assert first(config).headroom[3] == Headroom(2000, 96928, 2000 - 1248, -3, 1248)
    profile["size"] = "1000"
    assert first(config).headroom[3].xon_offset_bytes == 0
    del profile["xon"]
    assert first(config).headroom[3] == Headroom(1000, 96928, 0, -3, 0)
    profile["size"] = "96928"
    assert first(config).headroom[3] == Headroom(0, 96928, 0, -3, 0)
    profile["size"] = "96927"
    assert first(config).headroom[3] == Headroom(96927, 96928, 0, -3, 0)


def test_headroom_with_a_static_threshold_is_not_read():
    config = default_config()
    profile = config["BUFFER_PROFILE"]["pg_lossless_100000_5m_profile"]
    del profile["dynamic_th"]
    profile["static_th"] = "1000000"
    assert first(config).headroom[3] is None


def test_an_empty_pfc_enable_is_lossy():
    config = default_config()
    config["PORT_QOS_MAP"]["Ethernet0"]["pfc_enable"] = ""
    assert first(config).pfc == ()


@pytest.mark.parametrize(("field", "value"), [("wred_green_enable", "false"), ("ecn", "ecn_none"), ("ecn", "ecn_red")])
def test_a_profile_that_does_not_mark_green_packets_is_not_read_as_ecn(field, value):
    """Thresholds alone mark no packets (sonic-net/sonic-buildimage#4545)."""
    config = default_config()
    config["WRED_PROFILE"]["AZURE_LOSSLESS"][field] = value
    assert first(config).queues[3] == Queue(False, 15)


def test_ecn_thresholds_may_be_equal():
    config = default_config()
    config["WRED_PROFILE"]["AZURE_LOSSLESS"].update(green_min_threshold="5", green_max_threshold="5")
    ecn = first(config).queues[3].ecn
    assert (ecn.minimum_bytes, ecn.maximum_bytes) == (5, 5)


def test_ecn_thresholds_are_those_of_green_packets():
    config = default_config()
    config["WRED_PROFILE"]["AZURE_LOSSLESS"].update(ecn="ecn_green", yellow_min_threshold="1", red_max_threshold="2")
    assert first(config).queues[3].ecn == Ecn(1048576, 2097152, 5)


def test_weights_are_converted_to_percentages():
    config = default_config()
    config["SCHEDULER"] = {"scheduler.0": {"type": "STRICT"}, "scheduler.1": {"type": "DWRR", "weight": "7"}}
    assert [queue and queue.bandwidth_percent for queue in first(config).queues] == [*[None] * 3, 50, 50, *[None] * 3]
    assert first(config).queues[6].strict
    config["SCHEDULER"]["scheduler.1"] = {}  # the model's defaults: WRR with weight 1
    assert first(config).queues[3].bandwidth_percent == 50


def test_a_watchdog_that_omits_a_paused_priority_is_not_read():
    config = default_config()
    config["PORT_QOS_MAP"]["Ethernet0"]["pfcwd_sw_enable"] = "3"
    assert first(config).watchdog is None
    del config["PORT_QOS_MAP"]["Ethernet0"]["pfcwd_sw_enable"]
    assert first(config).watchdog is None
    config["VERSIONS"]["DATABASE"]["VERSION"] = "version_2_0_4"
    assert first(config).watchdog == Watchdog(200, 200, "drop")
    del config["PFC_WD"]["Ethernet0"]
    assert first(config).watchdog is None


def test_a_port_without_a_map_uses_the_map_of_the_switch():
    config = default_config()
    del config["PORT_QOS_MAP"]["Ethernet0"]["dscp_to_tc_map"]
    assert first(config).dscp_to_class[3] == 3
    del config["PORT_QOS_MAP"]["global"]
    assert set(first(config).dscp_to_class) == {None}


def test_the_map_from_priorities_to_groups_is_followed():
    """The platforms "mellanox" and "barefoot" have this map (qos_config.j2)."""
    config = default_config()
    config["PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"] = {"AZURE": {"3": "4", "4": "3"}}
    config["PORT_QOS_MAP"]["Ethernet0"]["pfc_to_pg_map"] = "AZURE"
    config["BUFFER_PG"]["Ethernet0|3"] = config["BUFFER_PG"].pop("Ethernet0|3-4")
    qos = first(config)
    assert qos.class_to_priority == (None, None, None, 4, 3, None, None, None)
    assert qos.headroom[3] is None
    assert qos.headroom[4] is not None


def test_a_class_has_the_pfc_priority_of_its_priority_group():
    config = default_config()
    config["PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"] = {"AZURE": {"0": "3", "3": "3", "4": "3"}}
    config["PORT_QOS_MAP"]["Ethernet0"]["pfc_to_pg_map"] = "AZURE"
    assert first(config).class_to_priority[3] == 3
    config["PORT_QOS_MAP"]["Ethernet0"]["pfc_enable"] = ""
    assert first(config).class_to_priority[3] == 0


def test_the_hash_of_roce_packets_is_read():
    config = default_config()
    config["SWITCH_HASH"] = {"GLOBAL": {"ecmp_hash": ["IN_PORT", "DST_IP", "SRC_IP", "L4_SRC_PORT"]}}
    assert read(config).ecmp_fields == ("destination_ip", "source_ip", "source_port")
    config["SWITCH_HASH"]["GLOBAL"]["ecmp_hash_ipv4_rdma"] = ["DST_IP", "RDMA_BTH_DEST_QP"]
    assert read(config).ecmp_fields == ("destination_ip",)
    config["SWITCH_HASH"]["GLOBAL"] = {"lag_hash": ["SRC_IP"]}
    assert read(config).ecmp_fields is None
    assert set(ECMP_FIELDS) == set(HASH_FIELDS)


def test_classes_above_7_without_a_dscp_are_ignored():
    """The maps of DualToR have such classes (sonic-net/SONiC#950)."""
    config = default_config()
    config["TC_TO_QUEUE_MAP"]["AZURE"]["8"] = "0"
    config["TC_TO_PRIORITY_GROUP_MAP"]["AZURE"]["8"] = "0"
    assert read(config) == read(default_config())


def test_queues_of_the_cpu_and_above_7_are_ignored():
    config = default_config()
    config["QUEUE"]["CPU|0-47"] = {"scheduler": "scheduler.0"}
    config["QUEUE"]["Ethernet0|8-9"] = {"scheduler": "scheduler.0"}
    assert read(config) == read(default_config())


def test_an_empty_configuration_has_no_settings():
    assert read({}) == Switch("leaf1", "sonic", {}, None)
    assert read({"PORT": {"Ethernet0": {"speed": "100000"}}}).ports == {"Ethernet0": PortQos()}


# Invalid configurations.


def put(*path_and_value):
    *path, last, value = path_and_value

    def change(config):
        for key in path:
            config = config.setdefault(key, {})
        config[last] = value

    return change


BAD = [
    (put("QUEUE", ["x"]), "leaf1: QUEUE: "),
    (put("QUEUE", "Ethernet0|3", "x"), "leaf1: QUEUE|Ethernet0|3: "),
    (put("QUEUE", "Ethernet0", {}), "leaf1: QUEUE|Ethernet0: "),
    (put("QUEUE", "Ethernet0|5-3", {}), "leaf1: QUEUE|Ethernet0|5-3: "),
    (put("QUEUE", "Ethernet0|3-4", {"scheduler": "scheduler.0"}), "Ethernet0 3 is also in QUEUE|Ethernet0|3"),
    (put("BUFFER_PG", "Ethernet0|3", {"profile": "NULL"}), "sonic-swss#2171"),
    (put("QUEUE", "host|asic0|Ethernet0|3", {}), "VOQ"),
    (put("QUEUE", ",|3", {}), "leaf1: QUEUE|,|3: "),
    (put("QUEUE", "Ethernet0|3", "scheduler", ["a"]), "leaf1: QUEUE|Ethernet0|3: scheduler"),
    (
        put("QUEUE", "Ethernet0|3", "scheduler", "none"),
        "refers to SCHEDULER|none, which is missing; add SCHED",
    ),
    (put("QUEUE", "Ethernet0|3", "scheduler", "[WRED_PROFILE|AZURE_LOSSLESS]"), "refers to WRED_PROFILE, not to SCHED"),
    (put("QUEUE", "Ethernet0|3", "wred_profile", "none"), "WRED_PROFILE|none, which is missing"),
    (
        put("PORT_QOS_MAP", "Ethernet0", "dscp_to_tc_map", "none"),
        "PORT_QOS_MAP|Ethernet0: dscp_to_tc_map refers",
    ),
    (put("PORT_QOS_MAP", "Ethernet0", "pfc_to_pg_map", "none"), "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP|none"),
    (put("PORT_QOS_MAP", "Ethernet0", "pfc_enable", "3,8"), "pfc_enable '8' is not a whole number from 0 to 7"),
    (put("PORT_QOS_MAP", "Ethernet0", "pfcwd_sw_enable", "x"), "leaf1: PORT_QOS_MAP|Ethernet0: pfcwd_sw_enable 'x'"),
    (
        put("PORT_QOS_MAP", "Ethernet0", "pfcwd_sw_enable", "3,8"),
        "leaf1: PORT_QOS_MAP|Ethernet0: pfcwd_sw_enable '8' is not a whole number from 0 to 7",
    ),
    (put("PORT_QOS_MAP", "Ethernet4,Ethernet0", {}), "is also in PORT_QOS_MAP|Ethernet"),
    (put("DSCP_TO_TC_MAP", "AZURE", "64", "1"), "leaf1: DSCP_TO_TC_MAP|AZURE: key '64'"),
    (put("DSCP_TO_TC_MAP", "AZURE", "26", "8"), "leaf1: DSCP_TO_TC_MAP|AZURE: value of 26: 8, but classes"),
    (put("TC_TO_QUEUE_MAP", "AZURE", "3", "9"), "leaf1: TC_TO_QUEUE_MAP|AZURE: value of 3: 9, but classes"),
    (put("TC_TO_QUEUE_MAP", "AZURE", "3", "16"), "leaf1: TC_TO_QUEUE_MAP|AZURE: value of 3: '16' is not a whole"),
    (put("TC_TO_QUEUE_MAP", "AZURE", "3", None), "leaf1: TC_TO_QUEUE_MAP|AZURE: value of 3: None"),
    (put("MAP_PFC_PRIORITY_TO_QUEUE", "AZURE", "8", "1"), "leaf1: MAP_PFC_PRIORITY_TO_QUEUE|AZURE: key '8'"),
    (put("SCHEDULER", "scheduler.0", "weight", "0"), "leaf1: SCHEDULER|scheduler.0: weight '0'"),
    (put("SCHEDULER", "scheduler.0", "weight", "٣"), "leaf1: SCHEDULER|scheduler.0: weight"),
    (put("SCHEDULER", "scheduler.0", "type", "FAIR"), "leaf1: SCHEDULER|scheduler.0: type 'FAIR' is unknown"),
    (
        put("WRED_PROFILE", "AZURE_LOSSLESS", "green_min_threshold", "1 MB"),
        "WRED_PROFILE|AZURE_LOSSLESS: green_min",
    ),
    (put("WRED_PROFILE", "AZURE_LOSSLESS", "green_min_threshold", "9999999"), "is above green_max_threshold 2097152"),
    (put("WRED_PROFILE", "AZURE_LOSSLESS", "green_drop_probability", "101"), "not a whole number from 0 to 100"),
    (put("BUFFER_PG", "Ethernet0|0", "profile", "none"), "BUFFER_PROFILE|none, which is missing"),
    (put("BUFFER_PROFILE", "pg_lossless_100000_5m_profile", "pool", "none"), "BUFFER_POOL|none, which is missing"),
    (put("BUFFER_PROFILE", "pg_lossless_100000_5m_profile", "dynamic_th", "8"), "dynamic_th '8'"),
    (put("BUFFER_PROFILE", "pg_lossless_100000_5m_profile", "xoff", "-1"), "xoff '-1'"),
    (put("PFC_WD", "Ethernet0", "detection_time", "20"), "leaf1: PFC_WD|Ethernet0: detection_time '20'"),
    (put("PFC_WD", "Ethernet0", "action", "panic"), "leaf1: PFC_WD|Ethernet0: action 'panic'"),
    (put("PORT", "Ethernet0", "mtu", "9217"), "leaf1: PORT|Ethernet0: mtu '9217'"),
    (put("SWITCH_HASH", "GLOBAL", "ecmp_hash", [1]), "leaf1: SWITCH_HASH|GLOBAL: ecmp_hash [1]"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=range(len(BAD)))
def test_an_invalid_configuration_is_refused_with_table_key_and_remedy(change, message):
    config = default_config()
    change(config)
    with pytest.raises(FabricError) as refused:
        read(config)
    assert message in str(refused.value)
    assert refused.value.remedy


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '"x"', "[" * 100_000])
def test_text_that_is_not_json_of_tables_is_refused(text):
    with pytest.raises(FabricError, match=r"leaf1: ConfigDB: .*sonic-cfggen"):
        sonic.parse(text, "leaf1")


def test_json_numbers_and_booleans_are_read_as_text():
    config = default_config()
    config["PORT"]["Ethernet0"]["mtu"] = 9100
    config["WRED_PROFILE"]["AZURE_LOSSLESS"].update(green_min_threshold=1048576, wred_green_enable=True)
    assert read(config) == read(default_config())


def test_a_vendors_port_with_a_lane_of_another_is_read():
    """As in the files of Arista 7050CX3 and Dell S5232F (sonic-buildimage 086b03bd70), which no breakout can change."""
    config = default_config()
    config["PORT"]["Ethernet0"]["lanes"] = "125,126,127,128"
    config["PORT"]["Ethernet132"] = {**config["PORT"]["Ethernet0"], "lanes": "128", "speed": "10000"}
    assert "Ethernet132" in read(config).ports
    config["PORT"]["Ethernet3"] = config["PORT"].pop("Ethernet132")
    with raises(FabricError, "Ethernet3", "128", "Ethernet0"):
        read(config)
