# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A virtual machine with all devices of a recorded server sees the server's own distances."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from machines import GIB, MIB, RECORDINGS, plan, recording

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import is_physical
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Bar, Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import pairs
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl import read_nccl
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.predicted_guest import predict
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.nccl_topology import render

# The numbers of pairs by class among the GPUs, NICs and NVMe drives that can be passed through, counted on the recorded
# tree.
RECORDED = {
    "aws-g4dn-metal": {"PIX": 2, "PHB": 6, "NODE": 28, "SYS": 42},
    "emulated-gpu-server": {"PIX": 2, "PHB": 2, "SYS": 6},
    "llnl-corona": {"PIX": 1, "PHB": 4, "NODE": 26, "SYS": 35},
    # There are four GPUs, three NICs of two ports and a drive; a switch with two GPUs or a NIC of two functions is one
    # PIX.
    "llnl-lassen": {"PIX": 5, "NODE": 22, "SYS": 28},
    # There are 16 drives on one switch, and a NIC on the switch above it.
    "llnl-tioga": {"PIX": 120, "PXB": 16, "PHB": 4, "NODE": 59, "SYS": 207},
    # Each of four root complexes has two switches of two GPUs below another switch; each node has two root complexes.
    "nvidia-dgx2": {"PIX": 8, "PXB": 16, "NODE": 32, "SYS": 64},
    "supermicro-4029gp-ve": {"PIX": 21, "NODE": 45},
}


def whole(host: Host, **changes: object) -> DomainPlan:
    """Plan one virtual machine with every GPU, NIC and NVMe drive that the host does not use itself."""

    def of(kind: str) -> list[str]:
        return [function.address for function in host.functions if function.kind == kind and free(function)]

    def free(function: Function) -> bool:
        return not function.used_by_host and is_physical(function)

    requests = {kind: {"addresses": of(kind.rstrip("s"))} for kind in ("gpus", "nics", "nvme")}
    # No recording has more than four nodes.
    return plan(host, memory_mib=4 * 1024, vcpus=None, **requests, **changes)


def test_every_recording_is_tested() -> None:
    assert set(RECORDED) == {path.stem for path in RECORDINGS.glob("*.json")}


@pytest.mark.parametrize("name", RECORDED)
def test_a_guest_with_all_devices_keeps_the_class_of_every_pair(name: str) -> None:
    host = recording(name)
    got = whole(host)
    # NVSwitches are passed through as well, but have no path class.
    own = [function for function in got.chosen.all() if function.kind != "nvswitch"]
    addresses = {function.address: function.address for function in own}
    assert Counter(pairs(host, addresses).values()) == RECORDED[name]
    fidelity = got.to_dict()["fidelity"]
    total = sum(RECORDED[name].values())
    assert fidelity == {"total": total, "equal": total, "share": 1.0, "differences": []}


@dataclass(frozen=True)
class Cloud:
    """Facts that NCCL's file of a cloud's guest omits, but others have published. ``bars`` are those of each GPU."""

    memory_gib: int
    cpus: int
    bars: tuple[Bar, ...]
    pairs: dict[str, int]


# From the kernel's log of an Azure ND A100 v4 guest: triton-inference-server/server#4154 (10de:20b0).
A100_BARS = (
    Bar(0, 16 * MIB, "memory", 32, False),
    Bar(1, 64 * GIB, "memory", 64, True),
    Bar(3, 32 * MIB, "memory", 64, True),
)
# From lspci of a server with H100 SXM: fastfetch-cli/fastfetch#1658.
H100_BARS = (
    Bar(0, 16 * MIB, "memory", 64, True),
    Bar(2, 128 * GIB, "memory", 64, True),
    Bar(4, 32 * MIB, "memory", 64, True),
)
# Memory and vCPUs: Microsoft's ND A100 v4 and ND H100 v5 size series, AWS's "Amazon EC2 P4d" and "P5" instance pages.
# The NICs' BARs are not published and stay unknown. How the pairs are counted: test_nccl.py, RECORDED and SHIPPED.
CLOUDS = {
    "aws-p4d-24xl": Cloud(1152, 96, A100_BARS, {"PIX": 12, "PHB": 18, "SYS": 36}),
    # Its file has only the 32 NICs, without their class, as its own comment says.
    "aws-p5-48xl": Cloud(2048, 192, H100_BARS, {"PIX": 48, "PHB": 192, "SYS": 256}),
    "azure-nd-a100-v4": Cloud(900, 96, A100_BARS, {"PIX": 24, "SYS": 96}),
    "azure-nd-h100-v5": Cloud(1900, 96, H100_BARS, {"PIX": 8, "PHB": 48, "SYS": 64}),
}


def test_every_recording_of_a_cloud_is_tested() -> None:
    assert set(CLOUDS) == {path.stem for path in RECORDINGS.glob("nccl/*.json")}


@pytest.mark.parametrize("name", CLOUDS)
def test_a_guest_of_a_cloud_server_keeps_the_class_of_every_pair(name: str) -> None:
    """NCCL's files have no root complexes: there is one per NUMA node, and PHB also stands for NODE."""
    host, cloud = recording(f"nccl/{name}"), CLOUDS[name]
    share = cloud.cpus // len(host.numa_nodes)
    for number, node in enumerate(host.numa_nodes):
        node.memory_bytes = cloud.memory_gib * GIB // len(host.numa_nodes)
        if not node.cpus:
            node.cpus = list(range(number * share, number * share + share))
        assert len(node.cpus) == share
    for function in host.functions:
        if function.kind == "gpu":
            function.bars = list(cloud.bars)
        if name == "aws-p5-48xl" and function.kind == "other":
            function.kind = "nic"
    got = whole(host)
    addresses = {function.address: function.address for function in got.chosen.all()}
    assert Counter(pairs(host, addresses).values()) == cloud.pairs
    total = sum(cloud.pairs.values())
    assert got.to_dict()["fidelity"] == {"total": total, "equal": total, "share": 1.0, "differences": []}
    gpu_bytes = sum(item.size_bytes for gpu in got.chosen.gpus for item in gpu.bars if item.width_bits == 64)
    assert got.window.window_bytes >= gpu_bytes
    # The guest's own file agrees with the cloud's.
    inside = pairs(read_nccl(render(got, host)), places(got))
    assert inside == pairs(host, addresses)


def test_a_guest_of_the_rccl_model_keeps_the_class_of_every_pair() -> None:
    """Eight MI300X each have a NIC behind two levels of switches; RCCL's file has no memory, here 2 TiB."""
    host = recording("rccl/mi300x-8")
    for node in host.numa_nodes:
        node.memory_bytes = 1024 * GIB
    got = whole(host, mirror_topology="true")
    counted = {"PXB": 8, "PHB": 48, "SYS": 64}
    addresses = {function.address: function.address for function in got.chosen.all()}
    assert Counter(pairs(host, addresses).values()) == counted
    assert got.to_dict()["fidelity"] == {"total": 120, "equal": 120, "share": 1.0, "differences": []}
    assert pairs(read_nccl(render(got, host)), places(got)) == pairs(host, addresses)


def places(got: DomainPlan) -> dict[str, str]:
    return {device["host_address"]: device["guest_address"] for device in got.to_dict()["devices"]}


def test_a_flat_guest_reports_the_pairs_that_differ() -> None:
    fidelity = whole(recording("nvidia-dgx2"), mirror_topology=False).to_dict()["fidelity"]
    assert (fidelity["total"], fidelity["equal"]) == (120, 0)
    assert fidelity["differences"][0] == {
        "pair": ["gpu 0000:34:00.0", "gpu 0000:36:00.0"],
        "host": "PIX",
        "guest": "PHB",
    }


def test_a_guest_of_a_host_with_several_pci_domains_has_one_domain() -> None:
    got = whole(recording("llnl-lassen"))
    hosts = {device["host_address"].split(":")[0] for device in got.to_dict()["devices"]}
    assert hosts == {"0000", "0003", "0004", "0005", "0033", "0035"}
    assert {function.address.split(":")[0] for function in predict(got).functions} == {"0000"}


def test_predicted_ports_have_the_ids_of_qemus_ports() -> None:
    got = whole(recording("supermicro-4029gp-ve"))

    def ids() -> set[tuple[str | None, int, int, int]]:
        ports = [function for function in predict(got).functions if function.kind == "bridge"]
        return {(port.port_type, port.vendor_id, port.device_id, port.class_code) for port in ports}

    qemus = {
        ("root_port", 0x1B36, 0x000C, 0x060400),
        ("switch_upstream", 0x104C, 0x8232, 0x060400),
        ("switch_downstream", 0x104C, 0x8233, 0x060400),
    }
    assert ids() == qemus
    # A domain written by hand may have other bridges.
    (got.root.expanders or [got.root])[0].ports[0].model = "pcie-to-pci-bridge"
    assert ids() >= {("pcie_to_pci_bridge", 0x1B36, 0x000E, 0x060400)}
