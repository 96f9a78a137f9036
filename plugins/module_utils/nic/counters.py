# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the congestion counters of RoCE NICs. A counter that a driver does not have is None.

Sources of the names, in Linux: mlx5: Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst and
drivers/infiniband/hw/mlx5/counters.c; bnxt: drivers/infiniband/hw/bnxt_re/hw_counters.c and drivers/net/ethernet/
broadcom/bnxt/bnxt_ethtool.c; irdma and ice: drivers/infiniband/hw/irdma/verbs.c and drivers/net/ethernet/intel/ice/
ice_ethtool.c; software RoCE: drivers/infiniband/sw/rxe/rxe_hw_counters.c. Never seen on such a NIC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import read

# Files in ports/1/hw_counters of the RDMA device by counter, each in the order mlx5, bnxt_re, irdma, rxe, as far as the
# driver has it. A patch of August 2025 gives bnxt_re mlx5's names, and np_cnp_pkts (linux-rdma, "RoCE related hardware
# counters update").
RDMA = {
    "ecn_marked_received": ("np_ecn_marked_roce_packets", "rx_ecn_marked_pkts", "RxECNMrkd"),
    "cnp_sent": ("np_cnp_sent", "tx_cnp_pkts", "np_cnp_pkts", "cnpSent"),
    "cnp_handled": ("rp_cnp_handled", "rx_cnp_pkts", "cnpHandled"),
    "out_of_sequence": ("out_of_sequence", "oos_drop_count", "out_of_seq_request"),
    "rnr_nak_received": ("rnr_nak_retry_err", "rnr_naks_rcvd", "RNR received", "rcvd_rnr_err"),
    "receive_buffer_missing": ("out_of_buffer", "rx_out_of_buffer"),
    "roce_dropped": ("rx_roce_discards",),
}
# Names in `ethtool -S` of the network interface, by counter; {} is the priority. Intel counts pauses that begin (XOFF).
PAUSES = {
    "pause_received": ("rx_prio{}_pause", "rx_pfc_ena_frames_pri{}", "rx_priority_{}_xoff.nic"),
    "pause_sent": ("tx_prio{}_pause", "tx_pfc_ena_frames_pri{}", "tx_priority_{}_xoff.nic"),
}
PORT = {"dropped_by_port": ("rx_discards_phy",)}
STATISTIC = re.compile(r"^ *(\S.*?): (\d+)$", re.M)

Counters = dict[str, Any]


def counters(system: System, names: list[str]) -> tuple[dict[str, Counters], dict[str, str]]:
    """Return the counters by RDMA device, and by device why those of its port are not known.

    Each counter is a number or None; pauses are a list of them by priority. Raises HostError for an unknown device.
    """
    values: dict[str, Counters] = {}
    reasons: dict[str, str] = {}
    for name, seen in read.read(system, names).items():
        try:
            statistics = dict(STATISTIC.findall(system.run(["ethtool", "-S", seen.nic.interface])))
        except HostError as error:
            statistics, reasons[name] = {}, str(error)
        folder = f"{read.DEVICES}/{name}/ports/{read.PORT}/hw_counters"
        files = system.names(folder)
        values[name] = {
            **{
                counter: _first([_read(system, f"{folder}/{file}") for file in candidates if file in files])
                for counter, candidates in RDMA.items()
            },
            **{counter: _statistic(statistics, candidates) for counter, candidates in PORT.items()},
            **{
                counter: [_statistic(statistics, candidates, priority) for priority in range(CLASSES)]
                for counter, candidates in PAUSES.items()
            },
        }
    return values, reasons


def _read(system: System, path: str) -> str | None:
    """Return the text of a file that a driver may refuse to show."""
    try:
        return system.read(path)
    except HostError:
        return None


def _statistic(statistics: Mapping[str, str], candidates: tuple[str, ...], priority: int = 0) -> int | None:
    return _first([statistics.get(name.format(priority)) for name in candidates])


def _first(texts: list[str | None]) -> int | None:
    """Return the first text that is a number; None without any."""
    return next((int(text) for text in texts if text is not None and text.isdecimal()), None)
