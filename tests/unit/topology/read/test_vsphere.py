# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""ESXi hosts read through the simulated API, compared with the recordings from which they are made."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from machines import RECORDINGS, lab, recording
from simulated_vcenter import esxi, serving, site

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.vsphere import read_esxi
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.session import Login, Session
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.site import VsphereCluster

SERVERS = ("aws-g4dn-metal", "nvidia-dgx2", "supermicro-4029gp-ve")
# The attributes of each function that the API returns.
TOLD = (
    "address", "root_complex", "parent", "vendor_id", "device_id", "kind", "physical_function",
)  # fmt: skip


def seen(host: Host, **more) -> Host:
    with serving(site(esxi(host, "esx01", **more))) as vcenter, Session(Login(**vcenter.login)) as session:
        read = VsphereCluster(session)
        # from_dict refuses a topology that contradicts itself.
        return read_saved(read.model(read.host("esx01")).to_dict())


@pytest.mark.parametrize("name", [*SERVERS, "lab"])
def test_a_recorded_server_is_read_back_with_all_attributes_of_the_api(name):
    host = lab() if name == "lab" else recording(name)
    found = seen(host)
    known = found.by_address()
    for function in host.functions:
        other = known[function.address]
        assert [getattr(other, key) for key in TOLD] == [getattr(function, key) for key in TOLD]
        # The API has no programming interface, which is the last byte of the class code.
        assert other.class_code == function.class_code & ~0xFF
        assert (other.subsystem_vendor_id, other.subsystem_device_id) == (
            function.subsystem_vendor_id or 0,
            function.subsystem_device_id or 0,
        )
        assert found.node_of(other) == host.node_of(function)
        assert (other.sriov and other.sriov.vfs) == (function.sriov and function.sriov.vfs)
        assert other.bars == []
    assert [(node.id, node.cpus, node.memory_bytes) for node in found.numa_nodes] == [
        (node.id, node.cpus, node.memory_bytes) for node in host.numa_nodes
    ]
    used = {function.root_complex for function in host.functions}
    assert [(item.name, item.domain, item.bus) for item in found.root_complexes] == [
        (item.name, item.domain, item.bus) for item in host.root_complexes if item.name in used
    ]
    assert (found.cpu.architecture, found.source) == ("x86_64", "vsphere")


def test_passthrough_is_read():
    gpu = next(item for item in seen(lab()).functions if item.kind == "gpu")
    assert (gpu.passthrough.capable, gpu.passthrough.active) == (True, True)
    gpu = next(item for item in seen(lab(), active=False).functions if item.kind == "gpu")
    assert (gpu.passthrough.capable, gpu.passthrough.active) == (True, False)


def test_a_host_without_numa_has_one_node_with_adjacent_threads_as_siblings():
    info = SimpleNamespace(numCpuThreads=4, numCpuCores=2)
    features = [SimpleNamespace(level=-0x7FFFFFF8, eax="0000:0000:0000:0000:0011:0000:0011:0100")]
    package = SimpleNamespace(vendor="amd", description="EPYC", cpuFeature=[])
    hardware = SimpleNamespace(
        cpuInfo=info, numaInfo=None, memorySize=1 << 30, pciDevice=None, cpuPkg=[package], cpuFeature=features
    )
    host = read_esxi({"hardware": hardware})
    assert [(node.id, node.siblings) for node in host.numa_nodes] == [(0, [[0, 1], [2, 3]])]
    assert (host.cpu.vendor, host.cpu.virtualization, host.cpu.physical_address_bits) == ("AuthenticAMD", "svm", 52)
    assert "the host reports nothing about passthrough" in " ".join(host.notes)


def test_the_recordings_exist():
    assert all((RECORDINGS / f"{name}.json").is_file() for name in SERVERS)
