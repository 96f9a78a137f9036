# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import json

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, TopologyError


@pytest.fixture
def host(recording) -> Host:
    return recording("emulated-gpu-server")


def test_there_and_back_through_json(host):
    again = Host.from_dict(json.loads(json.dumps(host.to_dict())))
    assert again == host
    assert json.dumps(again.to_dict()) == json.dumps(host.to_dict())


@pytest.mark.parametrize("data", [{}, {"format": "sailloft-topology/0"}, None, [], "text"])
def test_another_format(data):
    with pytest.raises(TopologyError, match=r"not a topology: .*sailloft-topology/1"):
        Host.from_dict(data)


@pytest.mark.parametrize("key", ["numa_nodes", "root_complexes", "functions"])
def test_a_missing_part(host, key):
    data = host.to_dict()
    del data[key]
    with pytest.raises(TopologyError, match=f"not a complete topology: '{key}'"):
        Host.from_dict(data)


@pytest.mark.parametrize("distances", [[10, 20], {0: 10}, "10"])
def test_an_object_that_is_none(host, distances):
    data = host.to_dict()
    data["numa_nodes"][0]["distances"] = distances
    with pytest.raises(TopologyError, match=r"distances.* is .*, expected an object"):
        Host.from_dict(data)


def test_unknown_keys(host):
    data = host.to_dict()
    data["functions"][0]["colour"] = "green"
    with pytest.raises(TopologyError, match=r"0000:00:00\.0\) has unknown keys \['colour'\]"):
        Host.from_dict(data)
    del data["functions"][0]["colour"]
    data["more"] = 1
    with pytest.raises(TopologyError, match="more"):
        Host.from_dict(data)


def test_nested_parts_have_their_types(host):
    again = Host.from_dict(json.loads(json.dumps(host.to_dict())))
    physical = again.function("0000:15:00.0")
    assert physical.sriov.vf_bars[0].size_bytes == 16384
    assert physical.link.speed_gt_s == 2.5
    assert again.function("0000:10:01.0").acs.capability == 0x5F
    assert again.function("0000:13:00.0").ats.enabled is False


def test_ansibles_own_numbers_and_texts_are_numbers_and_texts(host):
    class Number(int):
        pass

    class Text(str):
        pass

    data = host.to_dict()
    data["numa_nodes"][0]["id"] = Number(0)
    data["cpu"]["vendor"] = Text(data["cpu"]["vendor"])
    assert Host.from_dict(data).to_dict() == host.to_dict()
    data["numa_nodes"][0]["id"] = True
    with pytest.raises(TopologyError, match=r"numa_nodes\[0\]\.id is True, expected int"):
        Host.from_dict(data)


def test_the_way_down(host):
    assert [step.address for step in host.path("0000:13:00.0")] == [
        "0000:10:00.0",
        "0000:11:00.0",
        "0000:12:00.0",
        "0000:13:00.0",
    ]


def test_a_loop_is_seen(host):
    host.function("0000:10:00.0").parent = "0000:13:00.0"
    with pytest.raises(TopologyError, match="is above itself"):
        host.path("0000:13:00.0")


def test_a_parent_that_is_not_there(host):
    host.function("0000:12:00.0").parent = "0000:ff:00.0"
    with pytest.raises(TopologyError, match=r"no PCI function 0000:ff:00\.0"):
        host.path("0000:13:00.0")


def test_an_unknown_function(host):
    with pytest.raises(TopologyError, match=r"no PCI function 0000:ff:00\.0 on this host"):
        host.function("0000:ff:00.0")


def test_members_of_a_group(host):
    group = host.function("0000:13:00.0").iommu_group
    assert [member.address for member in host.group_members(group)] == ["0000:12:00.0", "0000:13:00.0"]
    assert host.group_members(9999) == []


@pytest.mark.parametrize(
    ("own", "of_complex", "nodes", "wanted"),
    [(1, 0, 2, 1), (None, 0, 2, 0), (None, None, 2, None), (None, None, 1, 0), (0, None, 1, 0)],
)
def test_the_node_of_a_device_is_its_own_or_its_root_complexs_or_the_only_one(host, own, of_complex, nodes, wanted):
    gpu = host.function("0000:13:00.0")
    gpu.numa_node = own
    next(item for item in host.root_complexes if item.name == gpu.root_complex).numa_node = of_complex
    del host.numa_nodes[nodes:]
    assert host.node_of(gpu) == wanted
