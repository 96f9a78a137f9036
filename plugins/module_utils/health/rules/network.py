# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rules of the ports of NICs. Pure.

Limits of NVSentinel are those of its NIC health monitor for InfiniBand and RoCE.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    APPLICATION,
    AT_LEAST,
    CONFIGURATION,
    HARDWARE,
    NOT_TRUE,
    Expected,
    Place,
    Rule,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.make import increase

PLAN, ESTIMATE, NVSENTINEL = "the node's plan", "estimate", "NVSentinel"
MINUTE, HOUR, DAY = 60, 3600, 24 * 3600


def _port(expected: Expected, place: Place) -> str | None:
    """Return the name of a planned port."""
    return next((port.name for port in expected.ports if Place("port", port.name) == place), None)


def _rate(expected: Expected, place: Place) -> float | None:
    """Return the rate of a planned port, in Gbit/s."""
    if place.kind != "port":
        return None
    return next((port.rate_gbit_s for port in expected.ports if port.name == place.name), None)


RULES = (
    Rule("port_missing", "planned port missing", HARDWARE, NOT_TRUE, "drain", PLAN, "port-down", expected=_port),
    Rule("port_down", "port down", HARDWARE, NOT_TRUE, "drain", PLAN, "port-down", expected=_port),
    # Only measured of a port that is up: one that is down has one fault.
    Rule(
        "port_rate",
        "port slower than planned",
        HARDWARE,
        AT_LEAST,
        "drain",
        PLAN,
        "port-slow",
        unit="Gbit/s",
        is_occasional=True,
        expected=_rate,
    ),
    # Maintenance of a switch takes a link down once or twice.
    increase(
        "port_link_downs",
        "link lost again and again",
        "drain",
        "estimate; NVSentinel takes the first, azurehpc-health-checks the fifth in a day",
        "port-errors",
        2,
        DAY,
    ),
    increase("port_link_recoveries", "link trained again and again", "watch", ESTIMATE, "port-errors", 10, DAY),
    increase("port_symbol_errors", "many symbol errors", "drain", NVSENTINEL, "port-errors", 120, HOUR),
    increase("port_receive_errors", "many damaged packets", "watch", ESTIMATE, "port-errors", 120, HOUR),
    increase("port_send_discards", "many packets discarded", "watch", NVSENTINEL, "port-errors", 100 * MINUTE, MINUTE),
    # Counters of 4 bits, which old errors keep at their end on many healthy ports.
    increase(
        "port_integrity_errors",
        "link errors beyond the limit",
        "drain",
        NVSENTINEL,
        "port-errors",
        0,
        DAY,
        HARDWARE,
        True,
    ),
    increase(
        "port_buffer_overruns", "receive buffer overrun", "drain", NVSENTINEL, "port-errors", 0, DAY, HARDWARE, True
    ),
    increase("rdma_timeouts", "RDMA packets got no answer", "watch", ESTIMATE, "port-errors", 10 * MINUTE, MINUTE),
    increase("rdma_sequence_errors", "RDMA packets lost", "watch", ESTIMATE, "port-errors", 100 * MINUTE, MINUTE),
    # The peer's program does not take the messages: no fault of this node.
    increase(
        "rdma_receiver_not_ready",
        "a program's peer was not ready",
        "note",
        NVSENTINEL,
        "port-errors",
        0,
        HOUR,
        APPLICATION,
    ),
    increase("rdma_slow_restarts", "RDMA slows down", "watch", NVSENTINEL, "roce-loss", 10 * MINUTE, MINUTE),
    increase("ethernet_crc_errors", "many damaged frames", "drain", ESTIMATE, "port-errors", 120, HOUR),
    increase("ethernet_symbol_errors", "many symbol errors", "drain", ESTIMATE, "port-errors", 120, HOUR),
    increase(
        "ethernet_discards",
        "packets lost on a lossless priority",
        "watch",
        ESTIMATE,
        "roce-loss",
        0,
        HOUR,
        CONFIGURATION,
    ),
    increase("ethernet_pause_storm_warning", "host too slow: pauses", "watch", "mlx5", "pause-storm", 0, HOUR),
    increase("ethernet_pause_storm", "host too slow: pause storm", "drain", "mlx5", "pause-storm", 0, HOUR),
    increase("ethernet_module", "transceiver faulty", "person", "mlx5", "port-errors", 0, DAY),
)
