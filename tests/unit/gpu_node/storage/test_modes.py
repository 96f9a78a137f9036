# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from dataclasses import replace

import gpudirect_servers as servers
import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage import facts, modes
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host

READY = facts.StorageFacts(
    driver="595.91.07",
    open_driver=True,
    p2pdma_symbol=True,
    nvme_multipath=False,
    registry="RMForceStaticBar1=1;RmForceDisableIomapWC=1;",
    nvidia_fs=True,
    registered=("nvme", "nvme_rdma", "rpcrdma", "lnet", "beegfs"),
    file_systems=(facts.MountedFileSystem("/scratch", "xfs", facts.NVME, drives=("nvme0n1",)),),
)


def server(control: int = 0, cpu: tuple[str, str] = servers.SAPPHIRE_RAPIDS) -> Host:
    """Return a host with a GPU and an NVMe drive below one switch, whose ACS is ``control``, and a NIC with RDMA."""
    build = servers.Build(cpu)
    ports = build.switch(build.root(0), 3)
    build.device(ports[0], servers.H100, "gpu")
    build.device(ports[1], (0x144D, 0xA80A), "nvme").interfaces = {"block": ["nvme0n1"]}
    build.device(ports[2], servers.CX7, "nic").interfaces = {"rdma": ["mlx5_0"]}
    for port in ports:
        port.acs.control = control
    return build.done()


def of(host: Host, **changes: object) -> modes.StorageRoute:
    (route,) = modes.routes(host, replace(READY, **changes))
    return route


def mounted(kind: str, route: str, **more: object) -> dict[str, object]:
    return {"file_systems": (facts.MountedFileSystem("/data", kind, route, **more),)}


def test_a_ready_host_has_all_modes_of_local_drives():
    route = of(server())
    assert route.possible == [modes.P2PDMA, modes.NVIDIA_FS, modes.COMPAT]
    assert route.notes == ()
    assert len(route.hurdles[modes.RDMA]) == 1


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({"driver": None, "open_driver": None}, {modes.P2PDMA, modes.NVIDIA_FS}),
        ({"open_driver": False}, {modes.P2PDMA, modes.NVIDIA_FS}),
        ({"driver": "550.1.2"}, {modes.P2PDMA}),
        ({"p2pdma_symbol": False}, {modes.P2PDMA}),
        ({"nvme_multipath": True}, {modes.P2PDMA}),
        ({"registry": ""}, {modes.P2PDMA}),
        ({"registry": "RMForceStaticBar1=1;RmForceDisableIomapWC=0;"}, {modes.P2PDMA}),
        ({"registry": None}, {modes.P2PDMA}),
        ({"nvidia_fs": False, "registered": ()}, {modes.NVIDIA_FS}),
        ({"registered": ("rpcrdma",)}, {modes.NVIDIA_FS}),
    ],
)
def test_each_fact_of_the_software_takes_its_modes_with_one_known_reason(changes, lost):
    route = of(server(), **changes)
    assert {modes.P2PDMA, modes.NVIDIA_FS} - set(route.possible) == lost
    for mode in lost:
        (hurdle,) = route.hurdles[mode]
        assert hurdle.known
        assert hurdle.remedy


@pytest.mark.parametrize(
    ("changes", "mode"), [({"p2pdma_symbol": None}, modes.P2PDMA), ({"nvme_multipath": None}, modes.P2PDMA)]
)
def test_what_could_not_be_read_is_not_possible_and_not_known(changes, mode):
    route = of(server(), **changes)
    assert mode not in route.possible
    assert [hurdle.known for hurdle in route.hurdles[mode]] == [False]


@pytest.mark.parametrize(
    ("release", "possible"), [("5.15.0-1-generic", False), ("6.2.0-1-generic", True), ("5.14.0-570.el9", True)]
)
def test_the_kernel_must_be_new_enough_or_may_have_the_change_backported(release, possible):
    host = server()
    host.kernel_release = release
    assert (modes.P2PDMA in of(host).possible) is possible


@pytest.mark.parametrize(
    ("domain", "known"), [("DMA", True), ("DMA-FQ", True), ("mixed", True), (None, False), ("identity", None)]
)
def test_a_translating_iommu_takes_all_direct_modes(domain, known):
    host = server()
    host.iommu.default_domain = domain
    route = of(host)
    assert (route.possible == [modes.COMPAT]) is (known is not None)
    if known is not None:
        assert {hurdle.known for hurdle in route.hurdles[modes.NVIDIA_FS]} == {known}


def test_a_host_without_iommu_has_no_obstacle():
    host = server()
    host.iommu.kind = host.iommu.default_domain = None
    assert modes.P2PDMA in of(host).possible


def test_a_gpu_that_nvidia_does_not_list_has_no_p2pdma():
    host = server()
    gpu = next(item for item in host.functions if item.kind == "gpu")
    gpu.device_id = 0x20B7  # A30
    assert of(host).possible == [modes.NVIDIA_FS, modes.COMPAT]


def test_a_small_bar_takes_p2pdma():
    host = server()
    gpu = next(item for item in host.functions if item.kind == "gpu")
    gpu.bars[0].size_bytes = 256 << 20
    assert modes.P2PDMA not in of(host).possible


def test_acs_of_a_shared_switch_makes_transfers_slow_if_the_host_bridge_routes():
    route = of(server(control=0x1D, cpu=servers.GENOA))
    assert modes.P2PDMA in route.possible
    assert len(route.notes) == 1


def test_acs_of_a_shared_switch_forbids_p2pdma_if_the_host_bridge_is_not_known_to_route():
    route = of(server(control=0x1D))
    assert route.possible == [modes.NVIDIA_FS, modes.COMPAT]


def test_acs_that_was_not_read_is_not_known():
    host = server()
    next(item for item in host.functions if item.port_type == "switch_downstream").config_bytes = 64
    route = of(host)
    assert modes.P2PDMA not in route.possible
    assert [hurdle.known for hurdle in route.hurdles[modes.P2PDMA]] == [False]


def test_only_the_drives_of_the_file_system_are_judged():
    host = server(control=0x1D)
    next(item for item in host.functions if item.kind == "nvme").interfaces = {"block": ["nvme7n1"]}
    assert modes.P2PDMA in of(host).possible


@pytest.mark.parametrize(
    ("system", "possible"),
    [
        (mounted("xfs", "raid", raid_level="raid0", drives=("nvme0n1",)), [modes.NVIDIA_FS, modes.COMPAT]),
        (mounted("xfs", "nvmeof", drives=("nvme0n1",)), [modes.NVIDIA_FS, modes.COMPAT]),
        (mounted("ext4", "nvme", drives=("nvme0n1",)), [modes.COMPAT]),
        (
            mounted("ext4", "nvme", drives=("nvme0n1",), options=("rw", "data=ordered")),
            [modes.P2PDMA, modes.NVIDIA_FS, modes.COMPAT],
        ),
        (mounted("nfs4", "nfs", options=("rw", "proto=rdma")), [modes.NVIDIA_FS, modes.COMPAT]),
        (mounted("nfs4", "nfs", options=("rw", "proto=tcp")), [modes.COMPAT]),
        (mounted("lustre", "lustre"), [modes.NVIDIA_FS, modes.COMPAT]),
        (mounted("beegfs", "beegfs"), [modes.NVIDIA_FS, modes.COMPAT]),
        (mounted("wekafs", "weka"), [modes.RDMA, modes.COMPAT]),
        (mounted("gpfs", "scale"), [modes.RDMA, modes.COMPAT]),
    ],
)
def test_each_file_system_has_its_modes(system, possible):
    assert of(server(), **system).possible == possible


def test_raid_has_p2pdma_from_linux_7_1_on():
    host = server()
    host.kernel_release = "7.1.0-1-generic"
    stripe = mounted("xfs", "raid", raid_level="raid0", drives=("nvme0n1",))
    assert modes.P2PDMA in of(host, **stripe).possible
    mirror = mounted("xfs", "raid", raid_level="raid1", drives=("nvme0n1",))
    assert modes.P2PDMA not in of(host, **mirror).possible


def test_scale_needs_an_rdma_device_and_a_way_to_gpu_memory():
    host = server()
    scale = mounted("gpfs", "scale")
    next(item for item in host.functions if item.kind == "nic").interfaces = {}
    assert of(host, **scale).possible == [modes.COMPAT]
    host = server()
    host.kernel_release = "5.4.0-1-generic"
    assert of(host, **scale).possible == [modes.COMPAT]
    assert of(host, **scale, peermem=True).possible == [modes.RDMA, modes.COMPAT]


def test_a_host_without_gpu_has_no_mode():
    host = server()
    host.functions = [item for item in host.functions if item.kind != "gpu"]
    assert of(host).possible == []


def test_drives_without_a_file_system_are_judged_as_if_mounted():
    assert [route.route for route in modes.routes(server(), replace(READY, file_systems=()))] == ["nvme"]
    host = server()
    host.functions = [item for item in host.functions if item.kind != "nvme"]
    assert modes.routes(host, replace(READY, file_systems=())) == []


def test_the_lines_name_every_reason_and_remedy():
    route = of(server(), registry="", nvidia_fs=False)
    text = "\n".join(route.lines())
    for reasons in route.hurdles.values():
        for hurdle in reasons:
            assert hurdle.what in text
            assert hurdle.remedy in text


def test_drives_of_a_virtual_machine_are_not_known_and_its_network_is_judged():
    route = of(server(), virtual_machine=True)
    assert route.possible == [modes.COMPAT]
    assert [hurdle.known for hurdle in route.hurdles[modes.P2PDMA]] == [False]
    scale = of(server(), virtual_machine=True, **mounted("gpfs", "scale"))
    assert modes.RDMA in scale.possible
