# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Counters of RDMA ports: one port that cannot be read hides no other one, and is not asked at each scrape."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring_host import rdma

READ = 'sailloft_rdma_port_unreadable{{device="{}",port="1"}} 0'
UNREAD = 'sailloft_rdma_port_unreadable{{device="{}",port="1"}} 1'


@pytest.fixture
def node(tmp_path):
    def write(device, name, text):
        file = tmp_path / "sys/class/infiniband" / device / "ports/1" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    for device in ("mlx5_0", "mlx5_1"):
        write(device, "state", "4: ACTIVE")
        write(device, "rate", "400 Gb/sec (4X NDR)")
        write(device, "counters/port_xmit_data", 1000)
        write(device, "counters/symbol_error", "N/A (no PMA)")
    return tmp_path


def break_port(node, device):
    """Put a directory, which cannot be read, in place of a counter: the kernel's error for such a port is EINVAL."""
    (node / "sys/class/infiniband" / device / "ports/1/counters/link_downed").mkdir()


def test_a_port_has_the_metrics_of_the_collector(node):
    assert rdma.metrics(str(node)).splitlines()[:6] == [
        "# TYPE node_infiniband_port_data_transmitted_bytes_total counter",
        'node_infiniband_port_data_transmitted_bytes_total{device="mlx5_0",port="1"} 4000',
        'node_infiniband_port_data_transmitted_bytes_total{device="mlx5_1",port="1"} 4000',
        "# TYPE node_infiniband_rate_bytes_per_second gauge",
        'node_infiniband_rate_bytes_per_second{device="mlx5_0",port="1"} 50000000000',
        'node_infiniband_rate_bytes_per_second{device="mlx5_1",port="1"} 50000000000',
    ]


def test_a_port_that_cannot_be_read_hides_no_other_one(node):
    break_port(node, "mlx5_1")
    text = rdma.metrics(str(node))
    assert 'rate_bytes_per_second{device="mlx5_0"' in text
    assert 'rate_bytes_per_second{device="mlx5_1"' not in text
    assert {READ.format("mlx5_0"), UNREAD.format("mlx5_1")} <= set(text.splitlines())


def test_such_a_port_is_asked_again_after_an_hour(node, monkeypatch):
    now = 100.0
    monkeypatch.setattr(rdma.time, "clock_gettime", lambda clock: now)
    break_port(node, "mlx5_1")
    rdma.metrics(str(node))
    (node / "sys/class/infiniband/mlx5_1/ports/1/counters/link_downed").rmdir()
    now += rdma.TRY_AGAIN_S - 1
    assert UNREAD.format("mlx5_1") in rdma.metrics(str(node))
    now += 1
    assert READ.format("mlx5_1") in rdma.metrics(str(node))


def test_a_node_without_such_devices_has_no_metrics(tmp_path):
    (tmp_path / "run/sailloft-monitoring").mkdir(parents=True)
    (tmp_path / "run/sailloft-monitoring/rdma.json").write_text("not JSON")
    assert rdma.metrics(str(tmp_path)) == ""
    target = tmp_path / "sailloft_rdma.prom"
    assert rdma.main([str(target)]) == 0
    assert target.stat().st_mode & 0o777 == 0o644
