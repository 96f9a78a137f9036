# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The objects of a cluster: per rail, from the RoCE policy, the blueprint and the nodes' variables."""

from __future__ import annotations

import copy
import json

import pytest
from messages import raises
from planned_clusters import SMALL, of_kind, recorded, server, small

from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.errors import KubernetesError
from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.plan import OWNED, PLAN, plan
from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.request import PARTS
from ansible_collections.sailloft.fleet.plugins.plugin_utils.blueprint_file import read_site

HARDWARE = "sailloft.fleet/hardware"


def test_a_plan_has_the_same_bytes_for_the_same_input():
    assert json.dumps(small()) == json.dumps(small())


def test_each_rail_has_a_policy_and_its_gpus_a_class_of_the_same_name():
    planned = small()
    policies = of_kind(planned, "SriovNetworkNodePolicy")
    classes = of_kind(planned, "DeviceClass")
    assert {item["spec"]["resourceName"] for item in policies.values()} == set(classes)
    assert set(classes) == {f"rail{number}" for number in range(8)}
    first = next(item["spec"] for item in policies.values() if item["spec"]["resourceName"] == "rail0")
    # mlx5_0 is the NIC with the last address.
    last = max(one.address for one in server().functions if one.kind == "nic")
    gpu = max(one.address for one in server().functions if one.kind == "gpu")
    assert first["nicSelector"] == {"rootDevices": [last]}
    assert (first["numVfs"], first["mtu"], first["isRdma"], first["linkType"]) == (8, 9000, True, "ETH")
    (selector,) = classes["rail0"]["spec"]["selectors"]
    assert gpu in selector["cel"]["expression"]
    (hardware,) = {item["metadata"]["labels"][HARDWARE] for item in of_kind(planned, "Node").values()}
    assert {item["spec"]["nodeSelector"][HARDWARE] for item in policies.values()} == {hardware}


def test_vfs_of_gpu_host_are_managed_there():
    host = server()
    for one in host.functions:
        if one.kind == "nic":
            one.sriov = recorded("emulated-gpu-server").function("0000:14:00.0").sriov
            one.driver = "mlx5_core"
    planned = small({"vfs": 4}, {"gpu_host_sriov": [{"devices": ["0000:04:00.0"], "count": 2}]}, host)
    specs = [item["spec"] for item in of_kind(planned, "SriovNetworkNodePolicy").values()]
    managed = {item["nicSelector"]["rootDevices"][0]: item for item in specs if item.get("externallyManaged")}
    assert {address: item["numVfs"] for address, item in managed.items()} == {"0000:04:00.0": 2}
    assert [item["numVfs"] for item in specs].count(4) == 7
    with raises(KubernetesError, "gpu01: NIC", "7"):
        small({"vfs": 8}, {}, host)
    hosts = {"gpu01": host, "gpu02": host}
    variables = {"gpu02": {"gpu_host_sriov": [{"devices": ["0000:04:00.0"], "count": 2}]}}
    with raises(KubernetesError, "gpu01", "gpu02", "VFs"):
        plan({"groups": ["a"], "vfs": 4}, {"a": hosts}, hosts, variables)


def test_the_roce_policy_is_the_nic_configuration_one_to_one():
    nics = {f"mlx5_{number}": {"speed_gbit_s": 400, "cable_m": 3 + number % 2 * 2} for number in range(8)}
    policy = {"classes": {"roce": {"dscp": 34, "traffic_class": 4, "ect": 1}}, "cnp": {"dscp": 50, "traffic_class": 6}}
    templates = of_kind(small(None, {"roce_policy": policy, "roce_host_nics": nics}), "NicConfigurationTemplate")
    assert len(templates) == 8
    by_rail = {name.split("-")[0]: item["spec"] for name, item in templates.items()}
    template = by_rail["rail1"]["template"]
    assert by_rail["rail1"]["nicSelector"]["nicType"] == "1021"
    assert template["roceOptimized"]["qos"] == {
        "trust": "dscp",
        "pfc": "0,0,0,0,1,0,0,0",
        "tos": 34 << 2 | 1,
        "ecn": {"enabled": True, "priority": 4},
        "pauseFrames": {"enabled": False},
        "cableLen": 5,
    }
    firmware = {item["name"]: item["value"] for item in template["rawNvConfig"]}
    assert (firmware["CNP_DSCP_P1"], firmware["CNP_802P_PRIO_P2"], firmware["ROCE_CC_PRIO_MASK_P1"]) == (
        "50",
        "6",
        "16",
    )
    assert template["pciPerformanceOptimized"]["maxReadRequest"] == 4096
    lossy = small(None, {"roce_policy": {"classes": {"roce": {"mode": "lossy"}}}})
    (pfc,) = {
        item["spec"]["template"]["roceOptimized"]["qos"]["pfc"]
        for item in of_kind(lossy, "NicConfigurationTemplate").values()
    }
    assert pfc == "0,0,0,0,0,0,0,0"


@pytest.mark.parametrize(
    "policy",
    [
        {"classes": {"roce": {"dscp": 26, "traffic_class": 5}}},
        {"classes": {"a": {"bandwidth_percent": 30}, "b": {"dscp": 34, "traffic_class": 4, "bandwidth_percent": 30}}},
    ],
)
def test_a_policy_that_no_template_holds_is_refused(policy):
    with raises(KubernetesError, "roce_policy", "nic_configuration"):
        small(None, {"roce_policy": policy})
    assert of_kind(small({"parts": ["sriov"]}, {"roce_policy": policy}), "SriovNetworkNodePolicy")


def test_ports_of_one_nic_have_one_template():
    host = server()
    first, second = [one for one in host.functions if one.kind == "nic"][:2]
    second.address, second.parent = f"{first.address[:-1]}1", first.parent
    templates = of_kind(small({"parts": ["nic_configuration"]}, None, host), "NicConfigurationTemplate")
    assert sorted(len(item["spec"]["nicSelector"]["pciAddresses"]) for item in templates.values()) == [1] * 6 + [2]


def test_nics_of_others_get_no_template():
    planned = small(None, None, server(0x14E4))
    assert not of_kind(planned, "NicConfigurationTemplate")
    assert of_kind(planned, "SriovNetworkNodePolicy")
    assert any("NVIDIA" in note for note in planned.notes)


def test_infiniband_has_neither_mtu_nor_roce():
    host = recorded("supermicro-4029gp-ve")
    planned = plan({"ipam": {"type": "whereabouts"}}, {"gpu_nodes": ["a"]}, {"a": host}, {})
    specs = [item["spec"] for item in of_kind(planned, "SriovNetworkNodePolicy").values()]
    assert {(item["linkType"], "mtu" in item) for item in specs} == {("IB", False)}
    assert set(of_kind(planned, "SriovIBNetwork")) == {"rail0", "rail1"}
    for item in of_kind(planned, "NicConfigurationTemplate").values():
        assert "roceOptimized" not in item["spec"]["template"]


def test_an_object_of_each_kind_is_removed_when_nothing_plans_it_any_more():
    """Only kubelet makes Nodes, and only the operator's chart its ClusterPolicy."""
    host = recorded("threads/nccl-2171")
    ipam = {"ipam": {"type": "whereabouts"}}
    plans = [
        small({**ipam, "parts": list(PARTS), "multinic_subnet": "10.200.0.0/16"}),
        plan(ipam, {"gpu_nodes": ["a"]}, {"a": host}, {}),
    ]
    kinds = {
        (item["apiVersion"], item["kind"]): item["metadata"].get("labels", {})
        for planned in plans
        for items in planned.objects.values()
        for item in items
    }
    assert {kind for kind in kinds if kind[1] not in ("Node", "ClusterPolicy")} == set(OWNED)
    assert all(PLAN in kinds[kind] for kind in OWNED)


def test_networks_name_their_rail_in_the_ipam():
    networks = of_kind(small({"ipam": {"type": "nv-ipam", "poolName": "pool-{rail}"}}), "SriovNetwork")
    assert json.loads(networks["rail3"]["spec"]["ipam"]) == {"type": "nv-ipam", "poolName": "pool-rail3"}
    assert networks["rail3"]["spec"]["resourceName"] == "rail3"
    assert not of_kind(small(), "SriovNetwork")


def test_labels_and_kueue_follow_the_blueprint():
    planned = small()
    labels = {name: item["metadata"]["labels"] for name, item in of_kind(planned, "Node").items()}
    assert labels["gpu01"]["sailloft.fleet/rack"] != labels["gpu03"]["sailloft.fleet/rack"]
    # Both leaves have all nodes: one group of leaves.
    assert {item["sailloft.fleet/layer1"] for item in labels.values()} == {"layer1-1"}
    (topology,) = of_kind(planned, "Topology").values()
    levels = [level["nodeLabel"] for level in topology["spec"]["levels"]]
    assert levels == ["sailloft.fleet/layer1", "kubernetes.io/hostname"]
    (flavor,) = of_kind(planned, "ResourceFlavor").values()
    assert flavor["spec"] == {"nodeLabels": {HARDWARE: labels["gpu01"][HARDWARE]}, "topologyName": "small"}


def test_a_large_fabric_has_its_layers():
    site = read_site(str(SMALL.parents[1] / "blue_vela/blueprint.yml"))
    names = [device.name for device in site.by_kind["nodes"]]
    planned = plan({"groups": ["nodes"]}, {"nodes": names}, {}, {}, site)
    labels = {name: item["metadata"]["labels"] for name, item in of_kind(planned, "Node").items()}
    assert len({item["sailloft.fleet/layer1"] for item in labels.values()}) == 16
    assert len({item["sailloft.fleet/layer2"] for item in labels.values()}) == 4
    assert len({item["sailloft.fleet/pod"] for item in labels.values()}) == 4
    (topology,) = of_kind(planned, "Topology").values()
    assert [level["nodeLabel"][-6:] for level in topology["spec"]["levels"]][-3:] == ["layer2", "layer1", "stname"]
    # No node has a recording: nothing about hardware is made up.
    assert not of_kind(planned, "SriovNetworkNodePolicy")
    assert not planned.kubelets
    assert len(planned.notes) == 1


def test_nodes_with_other_hardware_get_policies_of_their_own():
    other = server()
    other.functions = [one for one in other.functions if one.interfaces.get("rdma") != ["mlx5_7"]]
    hosts = {"gpu01": server(), "gpu02": other}
    planned = plan({"groups": ["a"]}, {"a": hosts}, hosts, {}, read_site(str(SMALL)))
    policies = of_kind(planned, "SriovNetworkNodePolicy").values()
    selected = [item["spec"]["nodeSelector"][HARDWARE] for item in policies]
    assert sorted(selected.count(name) for name in set(selected)) == [7, 8]
    assert len(of_kind(planned, "ResourceFlavor")) == len(planned.kubelets) == 2


def test_a_gpu_on_two_rails_in_one_cluster_is_refused():
    other = copy.deepcopy(server())
    swapped = {"mlx5_0": "mlx5_1", "mlx5_1": "mlx5_0"}
    for one in other.functions:
        if one.kind == "nic":
            one.interfaces = {"rdma": [swapped.get(name, name) for name in one.interfaces["rdma"]]}
    hosts = {"gpu01": server(), "gpu02": other}
    arguments = {"a": hosts}, hosts, {}, read_site(str(SMALL))
    with raises(KubernetesError, "dra", "gpu01", "gpu02"):
        plan({"groups": ["a"]}, *arguments)
    assert plan({"groups": ["a"], "parts": ["sriov"]}, *arguments).objects["sriov"]


def test_nodes_that_differ_in_one_policy_are_refused():
    hosts = {"gpu01": server(), "gpu02": server()}
    with raises(KubernetesError, "roce_policy", "gpu01", "gpu02"):
        plan({"groups": ["a"]}, {"a": hosts}, hosts, {"gpu02": {"roce_policy": {"mtu_bytes": 4200}}})


def test_kubelet_reserves_cores_and_memory_on_each_numa_node():
    host = recorded("supermicro-4029gp-ve")
    planned = plan({"reserved_cores": 1, "reserved_mib": 2048}, {"gpu_nodes": ["a"]}, {"a": host}, {})
    (config,) = planned.kubelets.values()
    first, second = (node.siblings[0] for node in host.numa_nodes)
    assert sorted(map(int, config["reservedSystemCPUs"].replace("-", ",").split(","))) == sorted(first + second)
    # kubelet's rule: the reservations of the NUMA nodes are kubeReserved + systemReserved + the hard eviction.
    memory = sum(int(item["limits"]["memory"][:-2]) for item in config["reservedMemory"])
    parts = config["systemReserved"]["memory"], config["evictionHard"]["memory.available"]
    assert memory == sum(int(text[:-2]) for text in parts) == 4096
    assert config["cpuManagerPolicyOptions"] == {"full-pcpus-only": "true"}
    assert "max-allowable-numa-nodes" not in config["topologyManagerPolicyOptions"]
    wide = copy.deepcopy(host)
    wide.numa_nodes += [copy.deepcopy(host.numa_nodes[0]) for _number in range(7)]
    (config,) = plan({}, {"gpu_nodes": ["a"]}, {"a": wide}, {}).kubelets.values()
    assert config["topologyManagerPolicyOptions"]["max-allowable-numa-nodes"] == "9"


def test_the_gpu_operator_leaves_out_what_the_nodes_have():
    (item,) = of_kind(small(), "ClusterPolicy").values()
    enabled = {name: part["enabled"] for name, part in item["spec"].items() if "enabled" in part}
    assert (enabled["driver"], enabled["toolkit"], enabled["devicePlugin"]) == (False, True, False)
    (item,) = of_kind(small({"parts": ["gpu_operator"]}, {"gpu_node_mig_off": False}), "ClusterPolicy").values()
    assert item["spec"]["devicePlugin"] == {"enabled": True}
    assert item["spec"]["mig"] == {"strategy": "mixed"}


def test_multinic_networks_have_room_for_all_nodes_and_rails():
    (item,) = of_kind(small({"parts": ["multinic"], "multinic_subnet": "10.200.0.0/16"}), "MultiNicNetwork").values()
    ipam = json.loads(item["spec"]["ipam"])
    assert (ipam["hostBlock"], ipam["interfaceBlock"]) == (2, 3)
    assert item["spec"]["masterNets"] == [f"10.20.{number}.0/24" for number in range(16, 24)]
    with raises(KubernetesError, "multinic_subnet"):
        small({"parts": ["multinic"], "multinic_subnet": "10.200.0.0/27"})


@pytest.mark.parametrize(
    "settings",
    [
        {"vf": 8},
        {"vfs": 0},
        {"parts": []},
        {"parts": ["gpus"]},
        {"groups": ["none"]},
        {"ipam": {"pool": "a"}},
        {"ipam": {"type": "nv-ipam", "poolName": "{rial}"}},
        {"namespace": "A_b"},
        {"reserved_mib": "4Gi"},
        {"parts": ["multinic"]},
        {"multinic_subnet": "10.0.0.1/16"},
        {"detector_image": "a b"},
        [],
    ],
)
def test_wrong_settings_are_refused(settings):
    with pytest.raises(KubernetesError):
        plan(settings or "text", {"gpu_nodes": ["a"]}, {}, {})


@pytest.mark.parametrize(
    ("node", "variables", "part"),
    [
        ("GPU_01", {}, "GPU_01"),
        ("gpu01.", {}, "gpu01."),
        ("gpu01", {"gpu_node_pci": "4096"}, "gpu_node_pci"),
        ("gpu01", {"gpu_node_pci": {"max_read_request_bytes": 4000}}, "max_read_request_bytes"),
        ("gpu01", {"gpu_node_mig_off": "maybe"}, "gpu_node_mig_off"),
    ],
)
def test_a_name_or_variable_that_no_object_can_have_is_refused(node, variables, part):
    with raises(KubernetesError, part):
        plan({}, {"gpu_nodes": [node]}, {node: server()}, {node: variables})
