# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Patches of buffer pools, profiles and groups."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from patched_sonic import LOSSY, apply
from sonic_configs import PORTS, default_config
from switches import switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asic_table import ASICS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import sonic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.sonic_wanted import wanted_port


def test_a_platforms_profile_of_lossy_queues_is_kept_and_used():
    config = default_config()
    config["BUFFER_PROFILE"]["q_lossy_profile"] = {"dynamic_th": "3", "pool": "egress_lossy_pool", "size": "0"}
    for key, entry in config["BUFFER_QUEUE"].items():
        if not key.endswith("3-4"):
            entry["profile"] = "q_lossy_profile"
    patched = apply(config, switch("sonic", list(PORTS), LOSSY))
    used = {key: entry["profile"] for key, entry in patched["BUFFER_QUEUE"].items() if key.startswith("Ethernet0|")}
    assert used == {
        "Ethernet0|0-2": "q_lossy_profile",
        "Ethernet0|3": "q_lossy_profile",
        "Ethernet0|4": "egress_lossless_profile",  # no class uses this queue
        "Ethernet0|5-6": "q_lossy_profile",
    }


def test_all_priorities_are_mapped_on_a_platform_that_maps_them_to_groups():
    config = default_config()
    config["PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"] = {"AZURE": {"3": "3", "4": "4"}}
    for port in PORTS:
        config["PORT_QOS_MAP"][port]["pfc_to_pg_map"] = "AZURE"
    patched = apply(config, switch("sonic", list(PORTS), {"classes": {"roce": {"traffic_class": 5}}}))
    own_map = patched["PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"][patched["PORT_QOS_MAP"]["Ethernet0"]["pfc_to_pg_map"]]
    assert own_map == {str(number): str(number) for number in range(8)}
    assert "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP" not in apply(default_config(), switch("sonic", list(PORTS)))


def test_headroom_is_added_to_the_groups_size_if_the_pool_has_none():
    config = default_config()
    del config["BUFFER_POOL"]["ingress_lossless_pool"]["xoff"]
    patched = apply(config, switch("sonic", list(PORTS)))
    profile = patched["BUFFER_PROFILE"][patched["BUFFER_PG"]["Ethernet0|3"]["profile"]]
    assert (profile["size"], profile["xon"], profile["xoff"]) == (str(19456 + 38912), "0", "38912")


@pytest.mark.parametrize(
    ("asic", "line", "pools", "written"),
    [
        # pg_profile_lookup.ini: size, xon, xoff, xon_offset. NVIDIA's size includes xoff, and its pools have none.
        ("spectrum3", (200, 5), False, ("55296", "19456", "35840", None)),
        ("spectrum3", (400, 5), False, ("86016", "37888", "38912", None)),
        ("spectrum4", (800, 5), False, ("304128", "38912", "257024", None)),
        ("tomahawk3", (400, 5), True, ("2540", "2540", "178562", "2540")),
        ("tomahawk4", (400, 5), True, ("9144", "9144", "371348", "9144")),
        ("tomahawk5", (400, 5), True, ("8636", "0", "425958", "3556")),
    ],
)
def test_a_profile_is_written_with_the_values_of_its_vendor(asic, line, pools, written):
    config = default_config()
    if not pools:
        del config["BUFFER_POOL"]["ingress_lossless_pool"]["xoff"]
    room = ASICS[asic].headroom[line]
    wanted = switch("sonic", list(PORTS), headroom=(None,) * 3 + (room,) + (None,) * 4)
    patched = apply(config, wanted)
    profile = patched["BUFFER_PROFILE"][patched["BUFFER_PG"]["Ethernet0|3"]["profile"]]
    assert tuple(profile.get(field) for field in ("size", "xon", "xoff", "xon_offset")) == written


def test_a_lossy_policy_leaves_buffers_to_a_switch_whose_image_has_none():
    """Arista-7060X6-64PE-B-P32O64 as ToRRouter (buffers_defaults_t0.j2, sonic-buildimage 086b03bd70)."""
    config = {table: entries for table, entries in default_config().items() if not table.startswith("BUFFER")}
    patched = apply(config, switch("sonic", list(PORTS), LOSSY))
    assert not [table for table in patched if table.startswith("BUFFER")]
    assert patched["QUEUE"]["Ethernet0|3"]["wred_profile"]


def test_one_old_reference_among_new_ones_does_not_turn_all_into_old_ones():
    """The template of DellEMC-Z9664f-O64 has both forms."""
    config = default_config()
    config["BUFFER_PROFILE"]["ingress_lossy_profile"]["pool"] = "[BUFFER_POOL|ingress_lossless_pool]"
    patched = apply(config, switch("sonic", list(PORTS)))
    assert not patched["BUFFER_PG"]["Ethernet0|3"]["profile"].startswith("[")


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
