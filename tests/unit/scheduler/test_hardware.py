# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Cores are the logical numbers of whole sockets, from recordings of real machines; the node itself is compared."""

from __future__ import annotations

import copy

import pytest
from messages import Mentions, raises
from recorded_nodes import RECORDED

from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.errors import SchedulerError
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.hardware import differences, hardware, runs

AWS = "aws-g4dn-metal"
SLURMD = (
    "NodeName=n CPUs=96 Boards=1 SocketsPerBoard=2 CoresPerSocket=24 ThreadsPerCore=2 RealMemory=386583\nUpTime=1\n"
)


def node(name, **changes):
    host = copy.deepcopy(RECORDED[name])
    for key, value in changes.items():
        setattr(host, key, value)
    return hardware(host)


def test_cores_are_logical_numbers_of_whole_sockets():
    """Linux numbers the CPUs of socket 0 of this machine 0-23 and 48-71."""
    (made, notes) = node(AWS)
    assert notes == []
    assert made[:3] == (2, 24, 2)
    assert [tuple(run) for run in runs(made, made.gpus)] == [(0, 3, "0-23"), (4, 7, "24-47")]
    assert made.nics == ()
    # Slurm drains a node with less memory than this; the machine had 386583 MiB.
    assert 370000 < made.memory_mib < 386583


def test_numa_nodes_of_one_socket_are_one_socket():
    host = copy.deepcopy(RECORDED[AWS])
    for numa_node in host.numa_nodes:
        numa_node.socket = 0
    made, _notes = hardware(host)
    assert (made.sockets, made.cores_per_socket, made.cores(0)) == (1, 48, "0-47")


def test_power_has_numa_nodes_with_other_numbers_than_sockets():
    made, _notes = node("llnl-lassen")
    assert made[:3] == (2, 20, 4)
    assert [run.cores for run in runs(made, made.gpus)] == ["0-19", "20-39"]


def test_what_is_not_known_is_said_and_not_guessed():
    assert node("emulated-gpu-server") == (None, [Mentions("socket", "record")])
    made, notes = node("llnl-tioga")
    assert (made.gpus, notes) == ((), [Mentions("8 GPUs", "NVIDIA")])
    host = copy.deepcopy(RECORDED[AWS])
    for function in host.functions:
        function.numa_node = None
    for root in host.root_complexes:
        root.numa_node = None
    made, notes = hardware(host)
    assert [run.cores for run in runs(made, made.gpus)] == [""]
    assert notes == [Mentions("NUMA")]
    host.numa_nodes[0].siblings = host.numa_nodes[0].siblings[1:]
    assert hardware(host) == (None, [Mentions("sockets", "different")])
    assert node(AWS, numa_nodes=[]) == (None, [Mentions("CPUs")])


def test_nics_are_those_of_a_gpus_switch():
    host = copy.deepcopy(RECORDED["llnl-corona"])
    for function in host.functions:
        if function.kind == "gpu":
            function.vendor_id = 0x10DE
    made, _notes = hardware(host)
    below = {one.address for one in host.functions if one.kind == "nic" and one.parent}
    assert {address for address, _socket in made.nics} <= below


def test_a_node_is_compared_with_its_plan():
    planned = node(AWS)[0].to_dict()
    driver = {address: f"Model: x\nDevice Minor: \t {number}\n" for number, address in enumerate(planned["gpus"])}
    assert differences(planned, SLURMD, driver) == []
    assert differences(planned, SLURMD, {}) == []
    wrong = SLURMD.replace("CoresPerSocket=24", "CoresPerSocket=32").replace("386583", "1000")
    assert differences(planned, wrong, {}) == [Mentions("CoresPerSocket", "32", "24"), Mentions("RealMemory", "1000")]
    first, second = planned["gpus"][:2]
    swapped = {**driver, first: driver[second], second: driver[first]}
    assert differences(planned, SLURMD, swapped) == [Mentions(first, "/dev/nvidia1"), Mentions(second, "/dev/nvidia0")]
    del driver[planned["gpus"][7]]
    assert differences(planned, SLURMD, driver) == [Mentions("7 GPUs", "8")]
    with raises(SchedulerError, "CoresPerSocket"):
        differences(planned, "slurmd: error SocketsPerBoard=1", {})


@pytest.mark.parametrize("boards", [1, 2])
def test_sockets_are_those_of_all_boards(boards):
    planned = {**node(AWS)[0].to_dict(), "sockets": 2 * boards}
    assert differences(planned, SLURMD.replace("Boards=1", f"Boards={boards}"), {}) == []
