# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host, TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved


@pytest.fixture
def host(recording) -> Host:
    return recording("emulated-gpu-server")


def test_a_host_is_unchanged_after_a_json_round_trip(host):
    again = read_saved(json.loads(json.dumps(host.to_dict())))
    assert again == host
    assert json.dumps(again.to_dict()) == json.dumps(host.to_dict())


@pytest.mark.parametrize("data", [{}, {"format": "sailloft-topology/0"}, None, [], "text"])
def test_data_without_the_current_format_is_refused(data):
    with raises(TopologyError, "format", "sailloft-topology/1"):
        read_saved(data)


@pytest.mark.parametrize("key", ["numa_nodes", "root_complexes", "functions"])
def test_a_topology_without_a_required_part_is_refused(host, key):
    data = host.to_dict()
    del data[key]
    with raises(TopologyError, "complete topology", repr(key)):
        read_saved(data)


@pytest.mark.parametrize("distances", [[10, 20], {0: 10}, "10"])
def test_distances_that_are_not_an_object_are_refused(host, distances):
    data = host.to_dict()
    data["numa_nodes"][0]["distances"] = distances
    with raises(TopologyError, "numa_nodes[0].distances", "object"):
        read_saved(data)


def test_unknown_keys_of_a_later_version_are_ignored(host):
    data = {**host.to_dict(), "more": 1}
    data["functions"][0]["colour"] = "green"
    assert read_saved(data) == host


def test_nested_parts_are_read_into_their_types(host):
    again = read_saved(json.loads(json.dumps(host.to_dict())))
    physical = again.function("0000:15:00.0")
    assert physical.sriov.vf_bars[0].size_bytes == 16384
    assert physical.link.speed_gt_s == 2.5
    assert again.function("0000:10:01.0").acs.capability == 0x5F
    assert again.function("0000:13:00.0").ats.enabled is False


def test_subclasses_of_int_and_str_are_accepted_but_bool_is_not_an_int(host):
    class Number(int):
        pass

    class Text(str):
        pass

    data = host.to_dict()
    data["numa_nodes"][0]["id"] = Number(0)
    data["cpu"]["vendor"] = Text(data["cpu"]["vendor"])
    assert read_saved(data).to_dict() == host.to_dict()
    data["numa_nodes"][0]["id"] = True
    with raises(TopologyError, "numa_nodes[0].id", "True", "int"):
        read_saved(data)


def test_the_path_of_a_device_lists_the_bridges_above_it_first(host):
    assert [step.address for step in host.path("0000:13:00.0")] == [
        "0000:10:00.0",
        "0000:11:00.0",
        "0000:12:00.0",
        "0000:13:00.0",
    ]


def test_a_loop_in_the_path_is_an_error(host):
    host.function("0000:10:00.0").parent = "0000:13:00.0"
    with raises(TopologyError, "0000:13:00.0", "above itself"):
        host.path("0000:13:00.0")


def test_a_missing_parent_in_the_path_is_an_error(host):
    host.function("0000:12:00.0").parent = "0000:ff:00.0"
    with raises(TopologyError, "function 0000:ff:00.0"):
        host.path("0000:13:00.0")


def test_an_unknown_function_is_an_error(host):
    with raises(TopologyError, "function 0000:ff:00.0"):
        host.function("0000:ff:00.0")


def test_the_members_of_an_iommu_group_are_found(host):
    group = host.function("0000:13:00.0").iommu_group
    assert [member.address for member in host.group_members(group)] == ["0000:12:00.0", "0000:13:00.0"]
    assert host.group_members(9999) == []


@pytest.mark.parametrize(
    ("own", "of_complex", "nodes", "wanted"),
    [(1, 0, 2, 1), (None, 0, 2, 0), (None, None, 2, None), (None, None, 1, 0), (0, None, 1, 0)],
)
def test_the_numa_node_defaults_to_that_of_the_root_complex_or_the_only_node(host, own, of_complex, nodes, wanted):
    gpu = host.function("0000:13:00.0")
    gpu.numa_node = own
    next(item for item in host.root_complexes if item.name == gpu.root_complex).numa_node = of_complex
    del host.numa_nodes[nodes:]
    assert host.node_of(gpu) == wanted


def test_values_that_were_not_read_are_unknown_or_empty():
    made = Function("0000:00:01.0", "pci0000:00", None, 0, 0, 0, "other", None)
    assert asdict(made) == {
        **dict.fromkeys(asdict(made)),
        "address": "0000:00:01.0",
        "root_complex": "pci0000:00",
        "kind": "other",
        "class_code": 0,
        "vendor_id": 0,
        "device_id": 0,
        "config_bytes": 0,
        "bars": [],
        "unassigned_bars": [],
        "interfaces": {},
        "used_by_host": [],
    }
    assert Host([], [], []).to_dict() == {
        "format": "sailloft-topology/1",
        "numa_nodes": [],
        "root_complexes": [],
        "functions": [],
        "cpu": dict.fromkeys(("architecture", "vendor", "model", "virtualization", "physical_address_bits")),
        "iommu": dict.fromkeys(("kind", "default_domain", "interrupt_remapping", "address_bits", "unsafe_interrupts")),
        "kernel_release": None,
        "kernel_arguments": [],
        "nvidia": None,
        "source": "sysfs",
        "notes": [],
    }
