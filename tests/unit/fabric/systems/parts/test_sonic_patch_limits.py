# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Patches at the limits of what ConfigDB may have, and settings that they keep."""

from __future__ import annotations

import json
from typing import Any

import pytest
from messages import Mentions
from patched_sonic import LOSSY, apply, patch
from sonic_configs import PORTS, default_config
from switches import switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import sonic

WANTED = switch("sonic", list(PORTS))
INGRESS = "ingress_lossless_pool"


def config(**tables: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the default configuration with other fields of entries."""
    config_db = default_config()
    for table, entries in tables.items():
        for key, fields in entries.items():
            config_db.setdefault(table, {}).setdefault(key, {}).update(fields)
    return config_db


def refused(tables: dict[str, Any], wanted: Any = WANTED) -> str:
    with pytest.raises(FabricError) as error:
        patch(tables, wanted)
    return str(error.value)


@pytest.mark.parametrize(
    ("interval", "expected"), [("0", "0"), ("199", "199"), ("0200", "0200"), ("201", "200"), ("2147483648", "200")]
)
def test_the_interval_of_the_watchdog_is_its_shortest_time_at_most(interval, expected):
    tables = config(PFC_WD={"GLOBAL": {"POLL_INTERVAL": interval}})
    assert apply(tables, WANTED)["PFC_WD"]["GLOBAL"]["POLL_INTERVAL"] == expected


@pytest.mark.parametrize("interval", ["-1", "2147483649", "often"])
def test_another_interval_is_refused(interval):
    assert refused(config(PFC_WD={"GLOBAL": {"POLL_INTERVAL": interval}})) == Mentions(
        "leaf1", "PFC_WD|GLOBAL", "POLL_INTERVAL", repr(interval), "0", "2147483648"
    )


@pytest.mark.parametrize("table", ["SCHEDULER", "PORT_QOS_MAP", "BUFFER_POOL", "VERSIONS", "SWITCH_HASH"])
def test_what_is_no_table_is_refused(table):
    assert refused({**default_config(), table: []}) == Mentions("leaf1", table, "object")


def test_a_queue_in_two_keys_is_refused():
    message = refused(config(QUEUE={"Ethernet0|3-4": {}, "Ethernet0|3": {}}))
    assert message.startswith("leaf1: QUEUE|Ethernet0|3")


def test_queues_above_7_stay_together():
    tables = config(
        QUEUE={"Ethernet0|7-8": {"scheduler": "scheduler.0"}, "Ethernet4|8-9": {"scheduler": "scheduler.1"}}
    )
    queues = apply(tables, WANTED)["QUEUE"]
    assert queues["Ethernet0|8"] == {"scheduler": "scheduler.0"}
    assert queues["Ethernet4|8-9"] == {"scheduler": "scheduler.1"}
    assert not {"Ethernet0|7-8", "Ethernet0|8-8"} & queues.keys()


def test_no_mtu_is_set_if_none_is_wanted():
    tables = default_config()
    for entry in tables["PORT"].values():
        del entry["mtu"]
    assert apply(tables, switch("sonic", list(PORTS), ip_mtu_bytes=None))["PORT"] == tables["PORT"]


def test_a_lossy_profile_of_the_platform_is_kept():
    tables = config(BUFFER_PROFILE={"mine": {"dynamic_th": "3", "pool": "egress_lossy_pool", "size": "0"}})
    for key, entry in tables["BUFFER_QUEUE"].items():
        if not key.endswith("3-4"):
            entry["profile"] = "mine"
    queues = apply(tables, WANTED)["BUFFER_QUEUE"]
    assert queues["Ethernet0|0-2"] == queues["Ethernet0|5-6"] == {"profile": "mine"}


def test_only_headroom_needs_a_dynamic_pool():
    tables = config(BUFFER_POOL={INGRESS: {"mode": "static"}})
    assert apply(tables, switch("sonic", list(PORTS), LOSSY))["BUFFER_POOL"] == tables["BUFFER_POOL"]


def test_every_field_that_overrides_the_hash_is_removed():
    names = [f"ecmp_hash_ipv{version}{of}" for version in (4, 6) for of in ("", "_rdma")]
    tables = config(SWITCH_HASH={"GLOBAL": {name: ["DST_IP"] for name in names}})
    assert apply(tables, WANTED)["SWITCH_HASH"]["GLOBAL"].keys() == {"ecmp_hash"}


def test_a_patch_has_one_operation_a_line_with_sorted_keys():
    text = sonic.remediation(json.dumps(config()), WANTED)
    lines = [line.rstrip(",") for line in text.splitlines() if line.startswith("{")]
    assert len(lines) > 50
    assert lines == [json.dumps(json.loads(line), sort_keys=True) for line in lines]
