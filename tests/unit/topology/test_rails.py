# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""VFs and GPUs of one PCIe switch have one name, also where NUMA nodes alone pair them wrongly."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import pytest
from planned_clusters import WITH_RAILS, recorded, server

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Paths, path_class
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.rails import OF_ONE_SWITCH, rails
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import read_recording

ORIGINALS = os.environ.get("SAILLOFT_RECORDINGS")
SUPERMICRO = "32intel64-2p8co2t+8ve.tar.bz2"


def by_numa_alone(host):
    """Return the path classes of all pairs of GPU and NIC that kubelet's topology manager takes as aligned."""
    found, _notes = rails(host)
    gpus = [one for one in host.functions if one.kind == "gpu" and one.physical_function is None]
    return {
        path_class(host, gpu.address, rail.nic.address)
        for rail in found
        for gpu in gpus
        if host.node_of(gpu) == host.node_of(rail.nic)
    }


def paths_of_rails(host):
    return {path_class(host, gpu, rail.nic.address) for rail in rails(host)[0] for gpu in rail.gpus}


@pytest.mark.parametrize("name", WITH_RAILS)
def test_a_rail_has_the_gpus_of_its_own_switch(name):
    host = recorded(name)
    found, notes = rails(host)
    assert found
    assert all(rail.gpus for rail in found)
    assert paths_of_rails(host) <= set(OF_ONE_SWITCH)
    paths = Paths(host)
    for rail in found:
        for gpu in rail.gpus:
            classes = {other.nic.address: paths.path_class(gpu, other.nic.address) for other in found}
            order = [*OF_ONE_SWITCH, "PHB", "NODE", "SYS"]
            assert order.index(classes[rail.nic.address]) == min(map(order.index, classes.values()))
    # Each GPU has a rail, or is named.
    gpus = {one.address for one in host.functions if one.kind == "gpu" and one.physical_function is None}
    assert gpus - {gpu for rail in found for gpu in rail.gpus} == {gpu for gpu in gpus if gpu in " ".join(notes)}


@pytest.mark.parametrize("name", ["supermicro-4029gp-ve", "nccl/aws-p4d-24xl"])
def test_numa_nodes_alone_pair_devices_of_different_switches(name):
    host = recorded(name)
    assert by_numa_alone(host) - set(OF_ONE_SWITCH)
    assert paths_of_rails(host) <= set(OF_ONE_SWITCH)


@pytest.mark.skipif(not ORIGINALS, reason="SAILLOFT_RECORDINGS names no directory with the originals")
def test_so_does_the_original_of_the_supermicro_server():
    original = read_recording(str(Path(str(ORIGINALS)) / "topology" / SUPERMICRO))
    assert rails(original)[0] == rails(recorded("supermicro-4029gp-ve"))[0]
    assert by_numa_alone(original) - set(OF_ONE_SWITCH)
    assert paths_of_rails(original) <= set(OF_ONE_SWITCH)


def test_planned_ports_number_the_rails():
    host = server()
    ports = [f"mlx5_{number}" for number in range(8)]
    found, notes = rails(host, ports)
    assert [rail.nic.interfaces["rdma"] for rail in found] == [[port] for port in ports]
    assert [rail.name for rail in found] == [f"rail{number}" for number in range(8)]
    assert notes == []
    # A port that the recording lacks keeps its number, and its GPU is named.
    for one in host.functions:
        one.interfaces.pop("rdma", None) if one.interfaces.get("rdma") == ["mlx5_3"] else None
    found, notes = rails(host, ports)
    assert [rail.number for rail in found] == [0, 1, 2, 4, 5, 6, 7]
    assert "mlx5_3" in notes[0]
    assert len(notes) == 2


def test_nics_below_one_switch_divide_its_gpus():
    host = copy.deepcopy(recorded("supermicro-4029gp-ve"))
    host.function("0000:1b:00.0").kind = "nic"
    first, second, _other = rails(host)[0]
    assert sorted(map(len, (first.gpus, second.gpus))) == [1, 2]
    assert not set(first.gpus) & set(second.gpus)
    # Three NICs and one GPU: all have it.
    host.function("0000:1c:00.0").kind = host.function("0000:1d:00.0").kind = "nic"
    found, _notes = rails(host)
    assert [rail.gpus for rail in found[:4]] == [("0000:1e:00.0",)] * 4


def test_virtual_functions_are_no_rails():
    host = recorded("emulated-gpu-server")
    assert {rail.nic.address for rail in rails(host)[0]} == {"0000:14:00.0", "0000:84:00.0"}
    assert all(rail.gpus for rail in rails(host)[0])
