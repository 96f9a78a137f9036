# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Output of the measuring tools: their real formats, with made-up values.

Formats: perftest 00b55b66 (src/perftest_parameters.c, ctx_print_test_info and print_full_bw_report), nccl-tests
a0b82b22 (src/util.cu), nvbandwidth 66746a3b (json_output.cpp). No tool ran on a GPU or NIC for this.
"""

from __future__ import annotations

import json

LINE = "-" * 87


def perftest(gbit_s: float = 394.21, unit: str = "Gb/sec") -> str:
    """Return the client's output of ib_write_bw --report_gbits."""
    return f"""{LINE}
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 PCIe relax order: ON\t\tLock-free      : OFF
 ibv_wr* API     : ON\t\tUsing Enhanced Reorder      : OFF
 CQ Moderation   : 1
 Mtu             : 4096[B]
 Link type       : IB
 Max inline data : 0[B]
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
{LINE}
 local address: LID 0x12 QPN 0x0048 PSN 0x58ac3f RKey 0x1fff00 VAddr 0x007f1c00000000
 remote address: LID 0x13 QPN 0x0049 PSN 0x2d1a80 RKey 0x1fff00 VAddr 0x007f5e00000000
{LINE}
 #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]
 65536      3757310          0.00               {gbit_s:<7.2f}\t\t     0.751896
{LINE}
"""


def nccl(bus_gb_s: float = 478.1, wrong: int = 0) -> str:
    """Return the output of all_reduce_perf -b 1G -e 4G -f 2 -g 8."""
    rows = "".join(
        f"{size:12d}  {size // 4:12d}     float     sum      -1"
        f"  {size / bus_gb_s / 1e3:7.0f}  {bus_gb_s / 1.75:6.2f}  {bus:6.2f}       0"
        f"  {size / bus_gb_s / 1e3:7.0f}  {bus_gb_s / 1.75:6.2f}  {bus - 1:6.2f}       0\n"
        for size, bus in ((1 << 30, bus_gb_s - 30), (1 << 31, bus_gb_s - 10), (1 << 32, bus_gb_s))
    )
    return f"""# nccl-tests version 2.18.0 nccl-headers=22803 nccl-library=22803
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 8 minBytes 1073741824 maxBytes 4294967296 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid   4711 on      node1 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
{rows}# Out of bounds values : {wrong} {"FAILED" if wrong else "OK"}
# Avg bus bandwidth    : {bus_gb_s - 13:g}
#
# Collective test concluded: all_reduce_perf
#
"""


def nvbandwidth(addresses: list[str], to_gpu: list[float], between: float | None = 391.0) -> str:
    """Return the output of nvbandwidth --json for three tests.

    Copies between GPUs are waived if there is only one GPU (``between`` is None).
    """
    row = [f"{value}" for value in to_gpu]
    size = range(len(addresses))
    matrix = [["N/A" if one == other else str((between or 0) + one) for other in size] for one in size]
    pairs = {"bandwidth_description": "x", "bandwidth_matrix": matrix, "status": "Passed", "sum": 1.0}
    tests = [
        {"name": "host_to_device_memcpy_ce", "bandwidth_matrix": [row], "status": "Passed", "sum": sum(to_gpu)},
        {"name": "device_to_host_memcpy_ce", "bandwidth_matrix": [row], "status": "Passed", "sum": sum(to_gpu)},
        {"name": "device_to_device_memcpy_read_ce", **(pairs if between else {"status": "Waived"})},
    ]
    devices = [f"{at}: NVIDIA H100 (0000{address[:-2]}): (node1)" for at, address in enumerate(addresses)]
    return json.dumps(
        {"nvbandwidth": {"version": "v0.8", "git_version": "v0.8", "GPU Device list": devices, "testcases": tests}},
        indent=3,
    )
