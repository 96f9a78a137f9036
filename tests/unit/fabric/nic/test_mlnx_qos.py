# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The output of mlnx_qos is read, and its commands have the effect of dcb's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Nic, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic import mlnx_qos
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import Dcb

TEXT = (Path(__file__).parents[3] / "recordings" / "nics" / "mlnx_qos.txt").read_text()
READ = Dcb(
    "mlnx_qos",
    trust="dscp",
    dscp_priorities={dscp: (dscp // 8,) for dscp in range(64)},
    priority_to_class=(1, 0, 2, 2, 3, 4, 5, 6),
    queues=(None, None, Queue(False, 40), Queue(False, 60), Queue(True), None, None, None),
    pfc=(4,),
    delay=7,
    priority_to_buffer=(0,) * 8,
    buffer_bytes=(262_016, 0, 0, 0, 0, 0, 0, 0),
    buffer_total_bytes=1_038_192,
    by_host=False,
)


def read(*changes):
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return mlnx_qos.parse("eth0", text)


def test_recorded_output_is_read():
    assert mlnx_qos.show("eth0") == ["mlnx_qos", "-i", "eth0", "-a"]
    assert read() == READ


@pytest.mark.parametrize(
    ("old", "new", "field", "value"),
    [
        ("Firmware controlled", "OS controlled", "by_host", True),
        ("state: dscp", "state: pcp", "trust", "pcp"),
        ("state: dscp", "state: none", "trust", None),
        ("Cable len: 7", "Cable len: 300", "delay", 300),
        ("0   0   0   0   1   0   0   0", "1   0   0   0   1   0   0   1", "pfc", (0, 4, 7)),
        ("buffer      0   0   0   0", "buffer      0   1   2   7", "priority_to_buffer", (0, 1, 2, 7, 0, 0, 0, 0)),
        ("\tbuffer      0   0   0   0   0   0   0   0   \n", "", "priority_to_buffer", None),
        ("0,0,total_size", "9,0,total_size", "buffer_bytes", (262_016, 0, 0, 0, 0, 0, 9, 0)),
        ("0,0,total_size", "0,8,total_size", "buffer_bytes", (262_016, 0, 0, 0, 0, 0, 0, 8)),
        ("total_size=1038192", "max_buffer_size=5", "buffer_total_bytes", 5),
        ("total_size=1038192", "", "buffer_total_bytes", None),
        ("Receive buffer", "Buffer", "buffer_bytes", None),
        ("Receive buffer", "Buffer", "buffer_total_bytes", None),
        ("prio:7 dscp:63,", "prio:7 dscp:00,63,", "dscp_priorities", {**READ.dscp_priorities, 0: (0, 7)}),
    ],
)
def test_each_setting_of_the_output_is_read(old, new, field, value):
    assert getattr(read((old, new)), field) == value


@pytest.mark.parametrize(
    "line",
    ["DCBX mode:", "Priority trust state:", "Cable len:", "\tenabled ", "\t priority:  0", "tc: 6 "],
)
def test_output_without_one_of_the_needed_lines_is_refused(line):
    text = "".join(row for row in TEXT.splitlines(keepends=True) if not row.startswith(line))
    if line == "tc: 6 ":  # its priority would be of the class before
        text = re.sub(r"(?m)^\t priority:  7\n", "", text)
    assert text != TEXT
    with raises(FabricError, "eth0", "mlnx_qos -a", "dcb"):
        mlnx_qos.parse("eth0", text)


def test_a_priority_before_any_class_is_refused():
    with raises(FabricError, "eth0", "mlnx_qos -a", "output", "mlnx-tools"):
        mlnx_qos.parse("eth0", re.sub(r"(?m)^tc: .*\n", "", TEXT))


NIC = Nic(
    "mlx5_0",
    "eth0",
    priority_to_class=(0, 1, 2, 3, 4, 5, 6, 7),
    queues=(Queue(False, 40), None, Queue(False), Queue(False, 60), *(Queue(True),) * 4),
)


def test_commands_set_all_eight_entries():
    assert mlnx_qos.map_dscps("eth0", {26: 3, 48: 6}) == [
        ["mlnx_qos", "-i", "eth0", "--trust", "dscp"],
        ["mlnx_qos", "-i", "eth0", "--dscp2prio", "set,26,3", "--dscp2prio", "set,48,6"],
    ]
    assert [" ".join(command) for command in mlnx_qos.set_queues("eth0", NIC)] == [
        "mlnx_qos -i eth0 -p 0,1,2,3,4,5,6,7 -s ets,strict,ets,ets,strict,strict,strict,strict -t 40,0,0,60,0,0,0,0"
    ]
    assert [" ".join(command) for command in mlnx_qos.set_pfc("eth0", (0, 7), 5)] == [
        "mlnx_qos -i eth0 -f 1,0,0,0,0,0,0,1 --cable_len 5"
    ]
    assert mlnx_qos.set_delay("eth0", (0, 7), 5) == mlnx_qos.set_pfc("eth0", (0, 7), 5)
    assert [" ".join(command) for command in mlnx_qos.set_buffers("eth0", (9, 8, 7, 6, 5, 4, 3, 2), (0, 1) * 4)] == [
        "mlnx_qos -i eth0 --buffer_size 9,8,7,6,5,4,3,2",
        "mlnx_qos -i eth0 --prio2buffer 0,1,0,1,0,1,0,1",
    ]
