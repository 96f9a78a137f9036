# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The look at a fleet as metrics: the worst state of a kind, old readings not known, servers that were not read."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.datum import (
    DIFFERS,
    FABRIC,
    HEALTH,
    OK,
    datum,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.hosts import FleetHost
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.look import look_at
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.metrics import boot_server_metrics, fleet_metrics
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.proofs import Proved
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.readings import HostReading

NOW_S = 1.8e9


def samples(metrics):
    return {(metric.name, *labels.values()): value for metric in metrics for labels, value in metric.samples}


def test_a_host_has_the_worst_state_of_each_kind_and_what_is_old_is_not_known():
    proved = Proved(
        {"leaf1": [datum(FABRIC, OK, "", NOW_S), datum(FABRIC, DIFFERS, "", NOW_S)]},
        {"cabling": datum(FABRIC, OK, "", NOW_S - 1e6)},
    )
    readings = {"gpu-1": HostReading([datum(HEALTH, OK, "", NOW_S)])}
    hosts = [FleetHost("gpu-1", "nodes", (HEALTH, FABRIC)), FleetHost("leaf1", "leaf", (FABRIC,))]
    assert samples(fleet_metrics(look_at(hosts, readings, proved, NOW_S))) == {
        ("sailloft_fleet_state", "gpu-1", HEALTH): 0,
        ("sailloft_fleet_state", "gpu-1", FABRIC): 2,
        ("sailloft_fleet_state", "leaf1", FABRIC): 3,
        ("sailloft_fleet_proof_state", "cabling"): 2,
    }


def test_a_boot_server_that_was_not_read_serves_nothing_known():
    result = {
        "channels": [{"name": "stable", "digest": "ab"}],
        "statement": 7,
        "images": [{"digest": "ab", "problem": None}, {"digest": "cd", "problem": "damaged"}],
        "missing": [{"digest": "ef"}],
    }
    unread = {"unreachable": True, "msg": "no route"}
    assert samples(boot_server_metrics({"boot1": result, "boot2": unread, "boot3": None})) == {
        ("sailloft_boot_server_read", "boot1"): 1,
        ("sailloft_boot_server_read", "boot2"): 0,
        ("sailloft_boot_server_read", "boot3"): 0,
        ("sailloft_boot_server_channel", "boot1", "stable", "ab"): 1,
        ("sailloft_boot_server_statement", "boot1"): 7,
        ("sailloft_boot_server_faulty_images", "boot1"): 2,
    }
