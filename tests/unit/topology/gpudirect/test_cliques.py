# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from dataclasses import replace

import gpudirect_servers as servers
import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect import cliques
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Bar, Function


def find(host, gpus=None):
    every = [item for item in host.functions if item.kind == "gpu"]
    return cliques.find(host, every if gpus is None else gpus, [])


def with_host_bridges(host, device):
    """Add Intel's host bridge at 00.0 of each root bus."""
    for item in host.root_complexes:
        address = f"0000:{item.bus:02x}:00.0"
        if device:
            host.functions.append(
                Function(address, item.name, None, 0x088000, 0x8086, device, "other", "root_complex_endpoint")
            )
    return host


@pytest.mark.parametrize("below_switch", [True, False])
def test_gpus_of_one_node_are_a_clique_if_the_processor_routes_p2p(below_switch):
    host = servers.pcie_cards(below_switch=below_switch)
    gpus = [item.address for item in host.functions if item.kind == "gpu"]
    found = find(host)
    assert [clique.gpus for clique in found.cliques] == [tuple(gpus[:2]), tuple(gpus[2:])]
    assert [clique.number for clique in found.cliques] == [0, 1]
    assert found.number_of(gpus[3]) == 1
    assert found.notes[0].endswith("they are on different NUMA nodes")


@pytest.mark.parametrize(
    ("device", "below_switch", "count"),
    [(0x09A2, True, 2), (0x09A2, False, 2), (0x2F00, True, 2), (0x2F00, False, 0), (0x1234, True, 0), (None, True, 0)],
)
def test_intel_host_bridges_route_as_in_the_kernels_table(device, below_switch, count):
    build = servers.pcie_cards(servers.SAPPHIRE_RAPIDS, servers.INTEL_ROOT, below_switch)
    found = find(with_host_bridges(build, device))
    assert len(found.cliques) == count
    if not count:
        assert "the host bridge above is not known to route between its ports" in found.notes[0]


def test_the_host_bridge_of_the_gpus_root_complex_determines_the_clique():
    host = with_host_bridges(servers.pcie_cards(servers.SAPPHIRE_RAPIDS, servers.INTEL_ROOT), 0x2F00)
    gpus = [item.address for item in host.functions if item.kind == "gpu"]
    host.functions[-1].device_id = 0x1234  # the id of the second node's host bridge, which the table does not have
    assert [clique.gpus for clique in find(host).cliques] == [tuple(gpus[:2])]


def test_the_host_bridge_is_ignored_below_a_switch_without_redirection():
    """All devices of a switch without ACS go to one virtual machine, as one group."""
    host = servers.pcie_cards(servers.SAPPHIRE_RAPIDS, servers.INTEL_ROOT)
    for item in host.functions:
        if item.port_type == "switch_downstream":
            item.acs = None
    assert len(find(host).cliques) == 2


def test_egress_control_prevents_a_clique():
    host = servers.pcie_cards()
    gpu = next(item for item in host.functions if item.kind == "gpu")
    host.function(gpu.parent).acs.control |= 0x20
    found = find(host)
    assert len(found.cliques) == 1
    assert f"ACS egress control is on at port {gpu.parent}" in found.notes[0]


def test_an_older_or_unknown_processor_has_no_cliques():
    host = servers.pcie_cards()
    for model in ("AMD Opteron(tm) Processor 6386 SE", None):
        host.cpu.model = model
        assert find(host).cliques == ()


def test_gpus_with_unknown_nodes_are_in_no_clique():
    host = servers.pcie_cards(below_switch=False)
    for item in (*host.functions, *host.root_complexes):
        item.numa_node = None
    assert find(host).cliques == ()


def test_nvlink_boards_have_no_clique_and_a_note_with_the_reason():
    found = find(servers.hgx())
    assert found.cliques == ()
    assert found.notes == ("no GPUDirect P2P clique: NVLink joins the GPUs of this host's NVSwitch board",)


def test_a_single_gpu_and_gpus_of_other_vendors_are_in_no_clique():
    host = servers.pcie_cards()
    gpus = [item for item in host.functions if item.kind == "gpu"]
    assert find(host, gpus[:1]) == cliques.Cliques(())
    assert find(host, [replace(item, vendor_id=0x1002) for item in gpus]) == cliques.Cliques(())
    assert find(host, []) == cliques.Cliques(())


def test_a_gpu_whose_memory_is_not_reachable_is_in_no_clique():
    host = servers.pcie_cards()
    gpus = [item for item in host.functions if item.kind == "gpu"]
    before = find(host)
    joined = [address for clique in before.cliques for address in clique.gpus]
    assert gpus[0].address in joined
    for item in gpus:
        item.vendor_id, item.device_id, item.bars = 0x10DE, 0x26B9, [Bar(1, 64 << 30, "memory", 64, True)]
    assert find(host).cliques == before.cliques
    gpus[0].bars = [Bar(1, 256 << 20, "memory", 64, True)]
    found = find(host)
    assert gpus[0].address not in [address for clique in found.cliques for address in clique.gpus]
    assert [note for note in found.notes if gpus[0].address in note and "256 MiB" in note]


@pytest.mark.parametrize(("device", "joined"), [(0x2901, True), (0x3182, True), (0x2B85, False)])
def test_gpus_of_an_nvlink5_board_need_no_clique(device, joined):
    host = servers.pcie_cards()
    for item in host.functions:
        if item.kind == "gpu":
            item.vendor_id, item.device_id, item.bars = 0x10DE, device, []
    assert (find(host).cliques == ()) is joined
