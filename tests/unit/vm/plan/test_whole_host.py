# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The default request: a virtual machine with the whole host."""

from __future__ import annotations

import machines
import pytest
from machines import GIB, MIB

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import HugePages
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.whole_host import whole_host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


def server(pages=()):
    """Return the lab's server with ``pages`` on both nodes."""
    host = machines.lab()
    for node in host.numa_nodes:
        node.huge_pages = list(pages)
    return host


def test_the_request_contains_all_devices_that_can_be_assigned():
    request = whole_host(server())
    assert request["gpus"] == {"addresses": ["0000:13:00.0", "0000:83:00.0"]}
    # A port with VFs provides the first of them; the NIC with the default route is not passed through.
    assert request["nics"] == {"addresses": ["0000:14:00.0", "0000:15:10.0", "0000:84:00.0", "0000:85:10.0"]}
    assert request["nvme"] == {"addresses": []}


def test_the_request_uses_every_node_with_cpus_and_memory():
    host = machines.recording("llnl-tioga")
    request = whole_host(host)
    assert request["numa_nodes"] == ["all"]
    # If all GPUs are on one node, as on a host with sub-NUMA clusters, the other nodes are used, too.
    for item in [*host.functions, *host.root_complexes]:
        item.numa_node = 0
    (plan,) = plan_domains(host, parse_specs([whole_host(host)]))
    assert sorted(cell.host_node for cell in plan.processors.cells) == [0, 1, 2, 3]
    assert plan.processors.share.nodes_without_cell == []
    assert whole_host(host)["memory_mib"] == request["memory_mib"]


def test_devices_that_share_a_group_with_a_host_device_are_not_requested():
    host = server()
    host.function("0000:00:03.0").iommu_group = 99  # carries the default route
    host.function("0000:14:00.0").iommu_group = 99
    host.function("0000:83:00.0").iommu_group = 99
    request = whole_host(host)
    assert request["gpus"] == {"addresses": ["0000:13:00.0"]}
    assert request["nics"] == {"addresses": ["0000:15:10.0", "0000:84:00.0", "0000:85:10.0"]}


def test_a_device_that_is_never_assigned_keeps_the_others_of_its_group_from_a_guest():
    host = server()
    host.function("0000:00:1f.2").iommu_group = host.function("0000:83:00.0").iommu_group  # a SATA controller
    assert whole_host(host)["gpus"] == {"addresses": ["0000:13:00.0"]}


@pytest.mark.parametrize(
    ("pages", "page_mib", "memory_mib"),
    [
        # There are 2.8 and 2.9 GiB: the request is seven eighths in whole pages, the same on both nodes.
        ([], 1024, 2 * 2048),
        ([HugePages(2 * MIB, 0, 0), HugePages(GIB, 2, 2)], 1024, 2 * 2048),
        ([HugePages(2 * MIB, 1000, 0), HugePages(GIB, 0, 0)], 2, 2 * 2000),
        # A few pages were allocated for something else.
        ([HugePages(2 * MIB, 64, 64), HugePages(GIB, 1, 1)], 1024, 2 * 2048),
    ],
)
def test_the_memory_is_all_huge_pages_or_most_of_the_nodes_memory(pages, page_mib, memory_mib):
    request = whole_host(server(pages))
    assert (request["huge_page_mib"], request["memory_mib"]) == (page_mib, memory_mib)


def test_a_host_with_little_memory_gets_2_mib_pages():
    host = server()
    for node in host.numa_nodes:
        node.memory_bytes = 1024 * MIB
    request = whole_host(host)
    assert (request["huge_page_mib"], request["memory_mib"]) == (2, 2 * 896)


def test_a_host_whose_memory_is_not_known_is_refused():
    host = server()
    for item in [*host.functions, *host.root_complexes]:
        item.numa_node = None
    for node in host.numa_nodes:
        node.memory_bytes = 0
    with pytest.raises(DomainError, match=r"does not contain the memory of its NUMA nodes; .*specify the domains"):
        whole_host(host)
    host.numa_nodes = []
    with pytest.raises(DomainError, match=r"does not contain the memory of its NUMA nodes; .*specify the domains"):
        whole_host(host)


def test_a_host_without_an_available_gpu_is_refused_with_the_reasons():
    host = server()
    for address in ("0000:13:00.0", "0000:83:00.0"):
        host.function(address).used_by_host = ["holds swap space"]
    with pytest.raises(DomainError) as error:
        whole_host(host)
    assert "0000:13:00.0: it is in use on the host (holds swap space)" in str(error.value)
    assert "0000:00:03.0" not in str(error.value)
    host.functions = [function for function in host.functions if function.kind != "gpu"]
    with pytest.raises(DomainError, match=r"\(it has none\); specify the domains to plan"):
        whole_host(host)
