# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import gpudirect_servers as servers

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.acceptance import rails


def cards(devices=("mlx5_0", "mlx5_1")):
    """Return a host with two NICs and two GPUs, one of each per NUMA node, each on its own root port."""
    host = servers.numa()
    nics = [item for item in host.functions if item.kind == "nic"]
    for nic, device in zip(nics, devices):
        nic.interfaces = {"rdma": [device]} if device else {}
    return host


def addresses(host, kind):
    return [item.address for item in host.functions if item.kind == kind]


def test_rails_are_numbered_in_the_order_of_the_addresses():
    host = cards(("second", "first"))
    host.functions.reverse()
    (nic_0, nic_1), (gpu_0, gpu_1) = sorted(addresses(host, "nic")), sorted(addresses(host, "gpu"))
    ends = [
        {"device": "second", "nic": nic_0, "gpu": gpu_0},
        {"device": "first", "nic": nic_1, "gpu": gpu_1},
    ]
    assert rails.of_node(host) == ends
    other = cards(("a", "b"))
    assert rails.between(host, other) == [
        {"number": 0, "client": ends[0], "server": {"device": "a", "nic": nic_0, "gpu": gpu_0}},
        {"number": 1, "client": ends[1], "server": {"device": "b", "nic": nic_1, "gpu": gpu_1}},
    ]


def test_a_nic_without_rdma_is_no_rail_and_a_rail_of_one_node_is_left_out():
    host = cards((None, "mlx5_1"))
    assert [rail["device"] for rail in rails.of_node(host)] == ["mlx5_1"]
    assert [rail["client"]["device"] for rail in rails.between(cards(), host)] == ["mlx5_0"]


def test_nics_share_equally_near_gpus():
    host = servers.hgx(gpus=2, nics=2)
    nics = sorted((item for item in host.functions if item.kind == "nic"), key=lambda item: item.address)
    for number, nic in enumerate(nics):
        nic.interfaces = {"rdma": [f"mlx5_{number}"]}
    first_gpus = sorted(addresses(host, "gpu"))[:2]
    assert [rail["gpu"] for rail in rails.of_node(host)][:2] == first_gpus
    nics[0].interfaces = {"rdma": ["a", "b", "c"]}
    assert [rail["gpu"] for rail in rails.of_node(host)][:4] == [*first_gpus, *first_gpus]


def ports(*names, infiniband=True):
    """Return the ports of a node as a blueprint plans them."""
    return {name: {"infiniband": infiniband, "rail": number} for number, name in enumerate(names)}


def test_planned_hcas_are_the_rails_in_their_planned_order():
    planned = ports("mlx5_1", "mlx5_0")
    made = rails.between(cards(), cards(), [planned, {**planned, **ports("mlx5_2", infiniband=False)}])
    assert [(rail["number"], rail["client"]["device"], rail["server"]["device"]) for rail in made] == [
        (0, "mlx5_1", "mlx5_1"),
        (1, "mlx5_0", "mlx5_0"),
    ]
    assert made[0]["client"] == rails.of_node(cards())[1]


def test_a_planned_hca_that_a_node_lacks_leaves_the_other_rails_as_they_are():
    made = rails.between(cards((None, "mlx5_1")), cards(), [ports("mlx5_0", "mlx5_1")] * 2)
    assert [(rail["client"]["device"], rail["client"]["nic"] != "", rail["server"]["device"]) for rail in made] == [
        ("mlx5_0", False, "mlx5_0"),
        ("mlx5_1", True, "mlx5_1"),
    ]


def test_devices_without_a_plan_of_infiniband_are_paired_by_address():
    assert len(rails.between(cards(), cards(), [ports("mlx5_0"), {}])) == 2
    assert len(rails.between(cards(), cards(), [ports("mlx5_0", infiniband=False)] * 2)) == 2
