# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NCCL's topology file of a planned guest: the guest's tree with the host's links."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from machines import RECORDINGS, bridge, endpoint, lab, plan, recording, request
from made_up_hosts import hosts, whole

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import is_physical
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Function,
    Host,
    Link,
    NumaNode,
    RootComplex,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import pairs
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl import check_nccl, read_nccl
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.predicted_guest import predict
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.checks import without_libvirt
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render import nccl_topology
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.nccl_topology import for_guest, render
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.outputs import returned_of
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

NAME = "pci0000:10"
GEN5, GEN4, NARROW = Link(2.5, 16, 32.0, 16), Link(16.0, 16, 16.0, 16), Link(32.0, 8, 32.0, 8)


def classes(plan: DomainPlan, text: str) -> tuple[dict[Any, str], dict[Any, str]]:
    """Return the path classes of all GPUs and NICs: the plan's prediction, in NCCL's words, and those of the file."""
    guest = predict(plan)
    devices = {item.address: item.address for item in guest.functions if item.kind in ("gpu", "nic")}
    planned = {pair: "PHB" if word == "NODE" else word for pair, word in pairs(guest, devices).items()}
    return planned, pairs(read_nccl(text), devices)


def of(functions: list[Function], **changes: Any) -> tuple[DomainPlan, Host]:
    """Give all devices of a host with one node to one virtual machine."""
    host = Host([NumaNode(0, list(range(8)), [], 1 << 38)], [RootComplex(NAME, 0, 0x10, 0)], functions)
    found = {kind: [item.address for item in functions if item.kind == kind] for kind in ("gpu", "nic", "nvme")}
    requests = {f"{'nvme' if kind == 'nvme' else kind + 's'}": {"addresses": found[kind]} for kind in found}
    return plan(host, **{**requests, "vcpus": 2, **changes}), host


def switch(*behind: tuple[Function, Link | None], link: Link | None = GEN5) -> list[Function]:
    """Return a root port and a switch with one downstream port for each device."""
    functions = [
        replace(bridge("0000:10:00.0", None, NAME, "root_port"), link=GEN4),
        replace(bridge("0000:11:00.0", "0000:10:00.0", NAME, "switch_upstream"), link=link, subsystem_vendor_id=0x15D9),
    ]
    for number, (device, port_link) in enumerate(behind):
        down = f"0000:12:{number:02x}.0"
        functions += [
            replace(bridge(down, "0000:11:00.0", NAME, "switch_downstream"), link=port_link),
            replace(device, parent=down),
        ]
    return functions


def test_the_file_has_the_guests_tree_with_the_hosts_links() -> None:
    gpu = endpoint("0000:13:00.0", None, NAME, link=GEN5)
    pf = endpoint("0000:14:00.0", None, NAME, "nic", link=NARROW)
    drive = endpoint("0000:15:00.0", None, NAME, "nvme", link=GEN4)
    planned, host = of(switch((gpu, GEN5), (pf, GEN5), (drive, GEN4)))
    host.cpu.architecture, host.cpu.vendor = "x86_64", "GenuineIntel"
    assert render(planned, host) == (
        "<!-- Written by sailloft.fleet from the plan of this virtual machine; changes here are lost. -->\n"
        '<system version="1">\n'
        '  <cpu numaid="0" affinity="00000003" arch="x86_64" vendor="GenuineIntel">\n'
        '    <pci busid="0000:21:00.0" class="0x060400" vendor="0x1000" device="0xc010" subsystem_vendor="0x15d9" '
        'link_speed="16.0 GT/s PCIe" link_width="16">\n'
        '      <pci busid="0000:23:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>\n'
        '      <pci busid="0000:24:00.0" class="0x020000" link_speed="32.0 GT/s PCIe" link_width="8"/>\n'
        "    </pci>\n"
        "  </cpu>\n"
        "</system>\n"
    )


def test_the_file_of_an_emulated_guest_does_not_name_the_processor() -> None:
    planned = plan(accelerator="qemu")
    assert 'arch="' in render(plan(), lab())
    assert 'arch="' not in render(planned, lab())
    assert ' vendor="AuthenticAMD"' not in render(planned, lab())


@pytest.mark.parametrize("vendor", ['a" numaid="7', "A vendor of its own", "x" * 300])
def test_a_vendor_that_nccl_does_not_know_is_left_out(vendor: str) -> None:
    host = lab()
    host.cpu.vendor = vendor
    text = render(plan(host), host)
    check_nccl(text)
    assert " vendor=" not in "".join(line for line in text.splitlines() if "<cpu" in line)


def test_a_virtual_function_has_the_link_of_its_physical_function() -> None:
    pf = endpoint("0000:14:00.0", None, NAME, "nic", link=NARROW)
    functions = switch((pf, GEN5))
    down = functions[-1].parent
    vf = endpoint("0000:14:00.1", down, NAME, "nic", physical_function=pf.address, link=Link(None, None, None, None))
    host = Host([NumaNode(0, [0, 1, 2, 3], [], 1 << 38)], [RootComplex(NAME, 0, 0x10, 0)], [*functions, vf])
    planned = plan(host, gpus={}, nics={"addresses": [vf.address]}, vcpus=2)
    assert read_nccl(render(planned, host)).function("0000:23:00.0").link == Link(None, None, 32.0, 8)


@pytest.mark.parametrize(
    ("device", "port", "text"),
    [
        (None, None, 'link_speed="" link_width=""'),
        (Link(None, None, None, None), None, 'link_speed="" link_width=""'),
        # The current speed is not the maximum: NCCL ignores it as well.
        (Link(8.0, 4, None, None), None, 'link_speed="" link_width=""'),
        (None, GEN4, 'link_speed="16.0 GT/s PCIe" link_width="16"'),
        # NCCL's table ends at 64.
        (Link(None, None, 128.0, 16), None, 'link_speed="64.0 GT/s PCIe" link_width="16"'),
        (Link(None, None, 2.5, 1), GEN5, 'link_speed="2.5 GT/s PCIe" link_width="1"'),
    ],
)
def test_the_maximum_link_of_a_device_is_written(device: Link | None, port: Link | None, text: str) -> None:
    planned, host = of(switch((endpoint("0000:13:00.0", None, NAME, link=device), port)))
    assert f'<pci busid="0000:23:00.0" class="0x030200" {text}/>' in render(planned, host)


def test_a_device_directly_below_an_upstream_port_has_its_own_link() -> None:
    """The link of an upstream port in NCCL's files is the one above the switch."""
    up = replace(bridge("0000:11:00.0", None, NAME, "switch_upstream"), link=GEN4)
    planned, host = of([up, endpoint("0000:12:00.0", up.address, NAME, link=GEN5)])
    assert 'class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>' in render(planned, host)


def test_a_port_of_unknown_type_limits_the_link_below_it() -> None:
    port = replace(bridge("0000:10:00.0", None, NAME, None), link=GEN4)
    planned, host = of([port, endpoint("0000:11:00.0", port.address, NAME, link=GEN5)])
    assert 'class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16"/>' in render(planned, host)


def test_functions_of_one_root_port_are_below_one_bridge() -> None:
    port = replace(bridge("0000:10:00.0", None, NAME, "root_port"), link=GEN4)
    first, second = (endpoint(f"0000:11:00.{number}", port.address, NAME, "nic", link=GEN5) for number in range(2))
    planned, host = of([port, first, replace(second, link=NARROW)], gpus={})
    text = render(planned, host)
    assert '<pci busid="0000:20:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">' in text
    assert list(classes(planned, text)[1].values()) == ["PIX"]


def test_the_file_has_only_gpus_and_nics_and_the_bridges_above_them() -> None:
    drive = endpoint("0000:13:00.0", None, NAME, "nvme")
    planned, host = of(switch((drive, None)))
    assert render(planned, host).splitlines()[1:] == ['<system version="1">', "</system>"]


def test_a_guest_gets_a_file_only_if_it_has_a_gpu() -> None:
    assert for_guest(plan(), lab()) == render(plan(), lab())
    assert for_guest(plan(gpus={}, nics={"addresses": ["0000:14:00.0"]}, vcpus=2), lab()) is None


def test_devices_of_a_flat_guest_are_on_its_only_node_or_on_no_node() -> None:
    """A flat guest's devices are on no node; with one cell, that cell is the only possible node."""
    planned = plan(mirror_topology=False)
    text = render(planned, lab())
    assert '  <cpu numaid="-1" arch="x86_64"' in text
    ours, theirs = classes(planned, text)
    assert ours == theirs
    one = plan(mirror_topology=False, gpus={"count": 1}, nics={}, vcpus=2)
    assert '<cpu numaid="0" affinity="00000003"' in render(one, lab())


def test_an_affinity_mask_of_more_than_32_cpus_is_read_back() -> None:
    host = recording("llnl-corona")
    gpus = [item.address for item in host.functions if item.kind == "gpu"]
    planned = plan(host, gpus={"addresses": gpus}, nics={}, vcpus=80, memory_mib=8192)
    nodes = {node.id: node.cpus for node in read_nccl(render(planned, host)).numa_nodes}
    assert nodes == {cell.id: cell.vcpus for cell in planned.processors.cells}
    assert len(nodes) == 2


def test_a_topology_too_large_for_nccl_is_a_warning_and_has_no_file() -> None:
    functions = [bridge("0000:10:00.0", None, NAME, "root_port"), endpoint("0000:20:00.0", "0000:10:00.0", NAME)]
    for slot in range(1, 30):
        port = f"0000:10:{slot:02x}.0"
        nics = [endpoint(f"0000:{slot + 32:02x}:00.{number}", port, NAME, "nic") for number in range(3)]
        functions += [bridge(port, None, NAME, "root_port"), *nics]
    planned, host = of(functions, nics={})
    check_nccl(for_guest(planned, host) or "")
    planned, host = of(functions)
    assert for_guest(planned, host) is None
    warnings = [str(item) for item in without_libvirt([planned], host) if "NCCL" in item.what]
    assert warnings == [
        "virtual machine gpu-vm: NCCL's topology of its GPUs and NICs would have 300 elements, but NCCL reads at most "
        "255: no "
        "topology file is made for the guest, where NCCL then plans with the links of QEMU's switches; assign fewer "
        "NICs if NCCL must be fast there"
    ]
    # Two of three NICs have no RDMA.
    for function in functions:
        if function.kind == "nic" and not function.address.endswith(".0"):
            function.interfaces = {"net": ["eth0"]}
    planned, host = of(functions)
    text = for_guest(planned, host) or ""
    check_nccl(text)
    assert sum(item.kind == "nic" for item in read_nccl(text).functions) == 29
    assert not any("NCCL" in item.what for item in without_libvirt([planned], host))


@pytest.mark.parametrize(
    ("own", "of_port", "inside"),
    [
        ({}, {}, True),
        ({"net": ["eth0"]}, {}, False),
        ({"net": ["eth0"], "rdma": ["mlx5_0"]}, {}, True),
        # A VF has RDMA if its port has it.
        ({}, {"net": ["eth0"]}, False),
        ({}, {"net": ["eth0"], "rdma": ["mlx5_0"]}, True),
        ({"net": ["eth1"]}, {"net": ["eth0"], "rdma": ["mlx5_0"]}, True),
    ],
)
@pytest.mark.parametrize("limit", [2, 255])
def test_a_nic_without_rdma_is_left_out_if_there_are_too_many_elements(
    monkeypatch: pytest.MonkeyPatch, own: Any, of_port: Any, inside: bool, limit: int
) -> None:
    monkeypatch.setattr(nccl_topology, "MAX_ELEMENTS", limit)
    host = lab()
    host.function("0000:15:00.0").interfaces = of_port
    host.function("0000:15:10.0").interfaces = own
    nics = {"addresses": ["0000:15:10.0"]}
    planned = plan(host, gpus={"addresses": ["0000:13:00.0"]}, nics=nics, vcpus=2)
    places = {device["host_address"]: device["guest_address"] for device in planned.to_dict()["devices"]}
    there = read_nccl(render(planned, host)).by_address()
    assert (places["0000:15:10.0"] in there) == (inside or limit == 255)
    assert places["0000:13:00.0"] in there


def test_nothing_is_left_out_up_to_the_maximum_number_of_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    host = lab()
    host.function("0000:15:00.0").interfaces = {"net": ["eth0"]}
    planned = plan(host, gpus={"addresses": ["0000:13:00.0"]}, nics={"addresses": ["0000:15:10.0"]}, vcpus=2)
    whole, text = nccl_topology.elements(planned, host), render(planned, host)
    monkeypatch.setattr(nccl_topology, "MAX_ELEMENTS", whole)
    assert nccl_topology.elements(planned, host) == whole
    assert for_guest(planned, host) == render(planned, host) == text
    monkeypatch.setattr(nccl_topology, "MAX_ELEMENTS", whole - 1)
    assert nccl_topology.elements(planned, host) < whole
    assert for_guest(planned, host) == render(planned, host) != text
    monkeypatch.setattr(nccl_topology, "MAX_ELEMENTS", 1)
    assert for_guest(planned, host) is None


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.json")), ids=lambda path: path.stem)
def test_the_file_of_each_recorded_server_has_the_planned_path_classes(path: Any) -> None:
    host = recording(path.stem)
    gpus = sum(item.kind == "gpu" for item in host.functions)
    nics = [
        item.address for item in host.functions if item.kind == "nic" and is_physical(item) and not item.used_by_host
    ]
    planned = plan(host, gpus={"count": gpus}, nics={"addresses": nics}, vcpus=None, memory_mib=3072, huge_page_mib=0)
    text = render(planned, host)
    check_nccl(text)
    ours, theirs = classes(planned, text)
    assert ours == theirs
    assert len(ours) == (gpus + len(nics)) * (gpus + len(nics) - 1) // 2 > 0
    assert text == render(planned, read_saved(host.to_dict()))


@given(hosts())
def test_the_file_of_every_plan_has_the_planned_path_classes(host: Host) -> None:
    planned = plan_domains(host, parse_specs(whole(host)))[0]
    # NCCL reads 255 elements; a GPU needs at least 8, a NIC at least 3.
    devices = [function.kind for function in planned.chosen.all()]
    assume(8 * devices.count("gpu") + 3 * devices.count("nic") < 160)
    text = render(planned, host)
    check_nccl(text)
    ours, theirs = classes(planned, text)
    unknown = {item.address for item in predict(planned).functions if item.numa_node is None}
    for pair, word in ours.items():
        if word == "SYS" and unknown.issuperset(pair):
            # They share the one cpu that NCCL has for devices whose node is unknown.
            word = "PHB"
        if word == "SYS" and unknown.intersection(pair) and len(read_nccl(text).numa_nodes) == 1:
            # If there is only one node, the model assumes that devices without a node are on it.
            word = "NODE"
        assert theirs[pair] == word


def test_the_modules_return_the_file() -> None:
    requests = [request(), {"name": "without", "memory_mib": 1024, "vcpus": 1}]
    first, second = (returned_of(planned, lab()) for planned in plan_domains(lab(), parse_specs(requests)))
    assert first["nccl_topology"] == render(plan(), lab())
    assert second["nccl_topology"] is None
