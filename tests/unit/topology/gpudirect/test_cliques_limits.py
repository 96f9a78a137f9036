# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The limits of GPUDirect P2P cliques, and the reasons why GPUs are in none."""

from __future__ import annotations

import gpudirect_servers as servers
import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect import cliques, reach
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.cliques import Clique, Cliques
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function

BRIDGE_UNKNOWN = "the host bridge above is not known to route between its ports"


def gpus(host):
    return [item for item in host.functions if item.kind == "gpu"]


def cards(count, nodes=1, cpu=servers.GENOA, root=servers.AMD_ROOT):
    """Return a host with ``count`` GPUs on each node, each on its own root port and root complex."""
    build = servers.Build(cpu)
    for node in range(nodes):
        for _gpu in range(count):
            build.device(build.root(node, root), servers.L40S, "gpu")
            build.end_of_complex()
    return build.done()


def with_bridge(host, name, device, **more):
    bus = next(item.bus for item in host.root_complexes if item.name == name)
    values = {"parent": None, "vendor_id": 0x8086, "address": f"0000:{bus:02x}:00.0", **more}
    host.functions.append(
        Function(values["address"], name, values["parent"], 0x060000, values["vendor_id"], device, "other", None)
    )
    return host


def test_a_clique_has_two_gpus_or_more():
    host = cards(2)
    one, other = (gpu.address for gpu in gpus(host))
    assert cliques.find(host, gpus(host), []) == Cliques((Clique(0, (one, other)),))
    assert cliques.find(host, gpus(host)[:1], []) == Cliques(())
    assert cliques.find(cards(1, 2), gpus(cards(1, 2)), []).cliques == ()


def test_functions_of_a_card_other_than_the_first_are_in_no_clique():
    host = cards(2)
    gpus(host)[1].address = gpus(host)[1].address[:-1] + "1"
    assert cliques.find(host, gpus(host), []) == Cliques(())


def test_the_reasons_name_both_gpus():
    host = cards(1, 2)
    one, other = (gpu.address for gpu in gpus(host))
    assert cliques.find(host, gpus(host), []).notes == (
        f"no GPUDirect P2P between GPU {one} and {other}: they are on different NUMA nodes",
    )
    host = cards(2, cpu=servers.SAPPHIRE_RAPIDS)
    one, other = (gpu.address for gpu in gpus(host))
    assert cliques.find(host, gpus(host), []).notes == (
        f"no GPUDirect P2P between GPU {one} and {other}: {BRIDGE_UNKNOWN}",
    )
    host = cards(2)
    one, other = gpus(host)
    host.function(other.parent).acs.control |= 0x20
    assert cliques.find(host, gpus(host), []).notes == (
        f"no GPUDirect P2P between GPU {one.address} and {other.address}: ACS egress control is on at port "
        f"{other.parent}",
    )


def test_only_the_first_reason_of_a_gpu_is_noted():
    host = cards(2, 2)
    for gpu in gpus(host):
        host.function(gpu.parent).acs.control |= 0x20
    found = cliques.find(host, gpus(host), [])
    first, *others = gpus(host)
    assert found.cliques == ()
    assert found.notes == tuple(
        f"no GPUDirect P2P between GPU {first.address} and {other.address}: ACS egress control is on at port "
        f"{other.parent}"
        for other in others
    )


def test_at_most_sixteen_cliques_are_numbered():
    host = servers.Build(servers.SAPPHIRE_RAPIDS)
    for _switch in range(17):
        for port in host.switch(host.root(0), 2):
            host.device(port, servers.L40S, "gpu")
        host.end_of_complex()
    host = host.done()
    for item in host.functions:
        if item.port_type == "switch_downstream":
            item.acs = None
    found = cliques.find(host, gpus(host), [])
    assert [clique.number for clique in found.cliques] == list(range(16))
    addresses = [gpu.address for gpu in gpus(host)]
    assert [clique.gpus for clique in found.cliques] == [tuple(addresses[at : at + 2]) for at in range(0, 32, 2)]
    assert found.number_of(addresses[31]) == 15
    assert found.number_of(addresses[32]) is None


@pytest.mark.parametrize(
    ("device", "across"),
    [
        *((device, True) for device in (0x2030, 0x2031, 0x2032, 0x2033, 0x2020, 0x09A2)),
        *((device, False) for device in (0x3C00, 0x3C01, 0x2F00, 0x2F01)),
    ],
)
def test_a_host_bridge_of_intel_routes_between_root_complexes_as_linux_says(device, across):
    host = cards(2, cpu=servers.SAPPHIRE_RAPIDS)
    for item in host.root_complexes:
        with_bridge(host, item.name, device)
    assert bool(cliques.find(host, gpus(host), []).cliques) is across
    for gpu in gpus(host):
        gpu.root_complex = host.root_complexes[0].name
    assert len(cliques.find(host, gpus(host), []).cliques) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"vendor_id": 0x10DE},
        {"address": "0000:00:01.1"},
        {"parent": "0000:00:01.0"},
    ],
)
def test_only_the_function_of_intel_at_00_0_of_the_root_bus_is_the_host_bridge(other):
    host = cards(2, cpu=servers.SAPPHIRE_RAPIDS)
    first, second = host.root_complexes
    with_bridge(host, second.name, 0x09A2)
    with_bridge(host, first.name, 0x09A2, **other)
    assert cliques.find(host, gpus(host), []).cliques == ()
    with_bridge(host, first.name, 0x09A2)
    assert len(cliques.find(host, gpus(host), []).cliques) == 1


@pytest.mark.parametrize(
    ("model", "routes"),
    [("AMD EPYC 9654", True), ("AMD Ryzen 9", True), ("AMD EPYCx", False), ("Opteron", False), (None, False)],
)
def test_amd_processors_route_since_zen(model, routes):
    host = cards(2)
    host.cpu.model = model
    assert bool(cliques.find(host, gpus(host), []).cliques) is routes


@pytest.mark.parametrize(("nodes", "count"), [((0, 0), 1), ((0, 1), 0), ((0, None), 0), ((None, None), 0)])
def test_gpus_of_a_clique_are_on_one_known_node(nodes, count):
    host = cards(2)
    for item in host.root_complexes:
        item.numa_node = None
    for gpu, node in zip(gpus(host), nodes):
        gpu.numa_node = node
    assert len(cliques.find(host, gpus(host), []).cliques) == count


@pytest.mark.parametrize(
    ("control", "planned", "count"), [(0x00, False, 1), (0x04, False, 0), (0x1D, False, 0), (0x00, True, 0)]
)
def test_a_port_that_redirects_requests_sends_them_to_the_host_bridge(monkeypatch, control, planned, count):
    build = servers.Build(servers.SAPPHIRE_RAPIDS)
    for port in build.switch(build.root(0), 2):
        build.device(port, servers.L40S, "gpu")
        port.acs.control = control
    host = build.done()
    if not planned:
        monkeypatch.setattr(reach.AcsPlan, "ports", ())
    assert len(cliques.find(host, gpus(host), []).cliques) == count


def test_gpus_of_an_nvswitch_board_are_in_no_clique():
    host = cards(2)
    note = ("no GPUDirect P2P clique: NVLink joins the GPUs of this host's NVSwitch board",)
    assert cliques.find(host, gpus(host), [gpus(host)[0]]) == Cliques((), note)
    host.functions[0].kind = "nvswitch"
    assert cliques.find(host, gpus(host), []) == Cliques((), note)


@pytest.mark.parametrize("known", [0, 1])
def test_the_host_bridges_of_both_gpus_must_route(known):
    host = cards(2, cpu=servers.SAPPHIRE_RAPIDS)
    with_bridge(host, host.root_complexes[known].name, 0x09A2)
    one, other = (gpu.address for gpu in gpus(host))
    assert cliques.find(host, gpus(host), []) == Cliques(
        (), (f"no GPUDirect P2P between GPU {one} and {other}: {BRIDGE_UNKNOWN}",)
    )
