# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Congestion counters of NICs of each driver, and their differences.

The texts are written by hand with the names of the kernel's documentation and source, which the library names.
"""

from __future__ import annotations

from typing import Any

import pytest
from nic_host import NicHost

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.table import differences
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.nic.counters import counters

# Files of hw_counters and lines of `ethtool -S` by driver, and the counters that these are. Pauses are of priority 3.
DRIVERS: dict[str, tuple[dict[str, str], str, dict[str, int | None]]] = {
    "mlx5": (
        {
            "np_ecn_marked_roce_packets": "11",
            "np_cnp_sent": "12",
            "rp_cnp_handled": "13",
            "out_of_sequence": "14",
            "rnr_nak_retry_err": "15",
            "out_of_buffer": "16",
            "lifespan": "10",
        },
        "NIC statistics:\n     rx_discards_phy: 17\n     rx_prio3_pause: 18\n     tx_prio3_pause: 19\n"
        "     rx_prio3_pause_duration: 99\n     rx_out_of_buffer: 98\n",
        {"receive_buffer_missing": 16, "dropped_by_port": 17, "rnr_nak_received": 15},
    ),
    "bnxt_re": (
        {
            "rx_ecn_marked_pkts": "11",
            "tx_cnp_pkts": "12",
            "rx_cnp_pkts": "13",
            "oos_drop_count": "14",
            "rnr_naks_rcvd": "15",
            "rx_out_of_buffer": "16",
            "rx_roce_discards": "17",
        },
        "NIC statistics:\n     [0]: rx_ucast_packets: 7\n     rx_pfc_ena_frames_pri3: 18\n"
        "     tx_pfc_ena_frames_pri3: 19\n",
        {"receive_buffer_missing": 16, "roce_dropped": 17, "rnr_nak_received": 15},
    ),
    "irdma": (
        {"RxECNMrkd": "11", "cnpSent": "12", "cnpHandled": "13", "cnpIgnored": "99", "RNR received": "15"},
        "NIC statistics:\n     tx_priority_3_xon.nic: 99\n     rx_priority_3_xoff.nic: 18\n"
        "     tx_priority_3_xoff.nic: 19\n",
        {"out_of_sequence": None, "rnr_nak_received": 15},
    ),
}
CONGESTION = {"ecn_marked_received": 11, "cnp_sent": 12, "cnp_handled": 13, "out_of_sequence": 14}


def only(priority: int, value: int) -> list[int | None]:
    return [value if each == priority else None for each in range(8)]


class Counting(NicHost):
    """A host whose ethtool prints ``statistics``; None: it is not installed."""

    statistics: str | None = ""

    def run(self, argv: list[str], stdin: str | None = None) -> str:
        if argv[:2] != ["ethtool", "-S"]:
            return super().run(argv, stdin)
        if self.statistics is None:
            raise HostError("ethtool is not installed on this host", "install its package first")
        return self.statistics


@pytest.fixture
def host(tmp_path):
    return Counting(tmp_path, "mlx5-vendor")


def count(host: Counting, values: dict[str, str]) -> None:
    for name, value in values.items():
        host.put(f"/sys/class/infiniband/mlx5_0/ports/1/hw_counters/{name}", f"{value}\n")


@pytest.mark.parametrize("driver", DRIVERS)
def test_counters_of_each_driver_have_one_name(host, driver):
    files, host.statistics, known = DRIVERS[driver]
    count(host, files)
    values, unknown = counters(host, ["mlx5_0"])
    expected: dict[str, Any] = {**dict.fromkeys(values["mlx5_0"]), **CONGESTION, **known}
    expected.update(pause_received=only(3, 18), pause_sent=only(3, 19))
    assert values == {"mlx5_0": expected}
    assert unknown == {}


def test_software_roce_has_few_counters(tmp_path):
    host = Counting(tmp_path, "rxe")
    for name, value in {"out_of_seq_request": "14", "rcvd_rnr_err": "15", "sent_pkts": "99"}.items():
        host.put(f"/sys/class/infiniband/rxe0/ports/1/hw_counters/{name}", f"{value}\n")
    values, _unknown = counters(host, ["rxe0"])
    known = {name: value for name, value in values["rxe0"].items() if value not in (None, [None] * 8)}
    assert known == {"out_of_sequence": 14, "rnr_nak_received": 15}


def test_a_counter_that_is_not_there_is_unknown_and_not_0(host):
    host.statistics = None
    count(host, {"np_cnp_sent": "0", "rp_cnp_handled": "not supported"})
    values, unknown = counters(host, ["mlx5_0"])
    known = {name: value for name, value in values["mlx5_0"].items() if value not in (None, [None] * 8)}
    assert known == {"cnp_sent": 0}
    assert "ethtool" in unknown["mlx5_0"]


def test_differences_are_those_of_known_counters_that_were_not_reset():
    before = {"mlx5_0": {"cnp_sent": 5, "cnp_handled": 9, "out_of_sequence": None, "pause_sent": [1, None, 7, 0]}}
    after = {
        "mlx5_0": {"cnp_sent": 8, "cnp_handled": 2, "out_of_sequence": 4, "pause_sent": [1, 2, None, 3], "other": 1},
        "mlx5_1": {"cnp_sent": 1, "pause_sent": [1]},
    }
    assert differences(before, after) == {
        "mlx5_0": {
            "cnp_sent": 3,
            "cnp_handled": None,
            "out_of_sequence": None,
            "other": None,
            "pause_sent": [0, None, None, 3],
        },
        "mlx5_1": {"cnp_sent": None, "pause_sent": [None]},
    }


def test_a_device_that_does_not_exist_is_named(host):
    with pytest.raises(HostError, match="mlx5_9"):
        counters(host, ["mlx5_9"])
