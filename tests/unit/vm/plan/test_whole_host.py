# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The default request: a virtual machine with the whole host."""

from __future__ import annotations

import machines
import pytest
from machines import GIB, MIB
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import HugePages
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.whole_host import (
    host_settings,
    requests,
    whole_host,
)
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
    with raises(DomainError, "memory", "NUMA nodes", "domains"):
        whole_host(host)
    host.numa_nodes = []
    with raises(DomainError, "memory", "NUMA nodes", "domains"):
        whole_host(host)


def test_a_host_without_an_available_gpu_is_refused_with_the_reasons():
    host = server()
    for address in ("0000:13:00.0", "0000:83:00.0"):
        host.function(address).used_by_host = ["holds swap space"]
    with raises(DomainError, "0000:13:00.0", "0000:83:00.0", "holds swap space") as error:
        whole_host(host)
    assert "0000:00:03.0" not in str(error.value)
    host.functions = [function for function in host.functions if function.kind != "gpu"]
    with raises(DomainError, "GPU", "none", "domains"):
        whole_host(host)


SETTINGS = {"name": "gpu01-vm", "image": "/images/ubuntu.qcow2", "bridge": "br0"}


def tuned():
    """Return the lab's server after gpu_host: two of its NICs have virtual functions, the others can have none."""
    host = server()
    for address in ("0000:14:00.0", "0000:84:00.0"):
        host.function(address).sriov = None
    return host


def asked(host=None, early=False, **changes):
    """Return the request of SETTINGS with ``changes``; None removes a setting."""
    (request,) = requests({"domains": [], "whole_host": {**SETTINGS, **changes}}, host, early)
    return request


def test_an_image_and_a_bridge_are_enough_for_a_plan_with_every_gpu_and_free_nic():
    (plan,) = plan_domains(tuned(), parse_specs([asked(tuned())]))
    assert plan.name == "gpu01-vm"
    chosen = {kind: [item.address for item in plan.chosen.by_setting[kind]] for kind in ("gpus", "nics")}
    assert chosen == {
        "gpus": ["0000:13:00.0", "0000:83:00.0"],
        "nics": ["0000:14:00.0", "0000:15:10.0", "0000:84:00.0", "0000:85:10.0"],
    }
    assert [(cell.host_node, cell.memory_mib) for cell in plan.processors.cells] == [(0, 2048), (1, 2048)]
    (disk,) = plan.spec.disks
    assert (disk.path, disk.base) == ("/var/lib/libvirt/images/gpu01-vm.qcow2", "/images/ubuntu.qcow2")
    assert [(item.type, item.source) for item in plan.spec.interfaces] == [("bridge", "br0")]


def test_a_host_without_a_gpu_is_refused():
    host = tuned()
    host.functions = [function for function in host.functions if function.kind != "gpu"]
    with pytest.raises(DomainError) as error:
        asked(host)
    assert error.value.domain == "gpu01-vm"


def test_drives_stay_with_the_host_unless_they_are_requested():
    assert "nvme" not in asked(tuned())
    assert asked(tuned(), nvme={"count": 2})["nvme"] == {"count": 2}


def test_every_gpu_is_requested_and_one_that_is_in_use_is_refused():
    host = tuned()
    host.function("0000:83:00.0").used_by_host = ["holds swap space"]
    with raises(DomainError, "gpu01-vm", "0000:83:00.0", "swap space"):
        plan_domains(host, parse_specs([asked(host)]))


def test_settings_of_the_user_replace_those_that_are_derived():
    explicit = {
        "memory_mib": 1024,
        "huge_page_mib": 2,
        "numa_nodes": ["0"],
        "gpus": {"count": 1},
        "nics": {"addresses": []},
        "vcpus": 2,
    }
    request = asked(tuned(), **explicit)
    assert {name: request[name] for name in explicit} == explicit
    disks, interfaces = [{"path": "/dev/vg/root", "format": "raw"}], [{"source": "default"}]
    request = asked(tuned(), image=None, disks=disks, bridge=None, interfaces=interfaces)
    assert (request["disks"], request["interfaces"]) == (disks, interfaces)


def test_a_list_of_virtual_machines_replaces_it():
    domains = [{"name": "a", "memory_mib": 2}]
    assert requests({"domains": domains, "whole_host": SETTINGS}, tuned()) == domains
    assert requests({"domains": None, "whole_host": None}, tuned()) == []


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"image": None}, "image"),
        ({"bridge": None}, "bridge"),
        ({"disks": [{"path": "/a.qcow2"}]}, "image"),
        ({"interfaces": []}, "bridge"),
        ({"image": None, "disks": [], "ssh_keys": ["ssh-ed25519 AAAA"]}, "ssh_keys"),
        ({"image": {"url": "https://host/a.qcow2"}}, "checksum"),
        ({"image": {"url": "https://host/a.qcow2", "checksum": "sha256:0"}}, "checksum"),
        ({"disk_mib": 0}, "disk_mib"),
        ({"memory_mib": "much"}, "memory_mib"),
        ({"huge_page_mib": 4}, "huge_page_mib"),
        ({"picture": "/a.qcow2"}, "picture"),
        ({"bridge": None, "brigde": "br0"}, "brigde"),
        ({"bridge": ["br0"]}, "gpu_vm_whole_host: bridge"),
        ({"image": "https://host/a.qcow2"}, "checksum"),
        ({"image": "a.qcow2"}, "gpu_vm_whole_host: image"),
        ({"ssh_keys": ["~/.ssh/id_ed25519.pub"]}, "gpu_vm_whole_host: ssh_keys"),
    ],
)
def test_a_wrong_setting_is_named(changes, setting):
    with pytest.raises(DomainError) as error:
        parse_specs([asked(tuned(), **changes)])
    assert setting in str(error.value)


def test_files_are_known_before_the_host_is_read():
    early, late = asked(ssh_keys=["ssh-ed25519 AAAA"]), asked(tuned(), ssh_keys=["ssh-ed25519 AAAA"])
    assert {name: late[name] for name in early} == early
    seed = parse_specs([early])[0].disks[1]
    assert (seed.path, seed.ssh_keys) == ("/var/lib/libvirt/images/gpu01-vm-seed.iso", ["ssh-ed25519 AAAA"])


def test_another_image_of_the_same_name_is_another_file():
    bases = [
        asked(image={"url": "https://host/noble/server.img", "checksum": f"sha256:{digit * 64}"})["disks"][0]["base"]
        for digit in "01"
    ]
    assert bases == [f"/var/lib/libvirt/images/{digit * 12}-server.img" for digit in "01"]


def test_a_nic_without_its_virtual_function_waits_for_the_role_gpu_host():
    host = tuned()
    port = host.function("0000:15:00.0")
    host.functions = [item for item in host.functions if item.physical_function != port.address]
    port.sriov.now, port.sriov.vfs, port.driver = 0, [], "igb"
    with pytest.raises(DomainError) as error:
        asked(host)
    assert port.address in error.value.cause
    # Before, a plan shows the NIC where its function will be.
    assert port.address in asked(host, early=True)["nics"]["addresses"]
    assert f"virtual functions: 1 of NIC {port.address}" in "\n".join(host_settings(host, SETTINGS))
    # A request for whole NICs does not wait.
    assert asked(host, nics={"per_gpu": 1, "functions": "pf"})
    assert "virtual functions" not in "\n".join(host_settings(host, {**SETTINGS, "nics": {"per_gpu": 1}}))
