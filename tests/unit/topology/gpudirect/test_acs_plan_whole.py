# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whole plans of ports, and whole checks of ATS and IOMMU groups."""

from __future__ import annotations

import gpudirect_servers as servers
import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_plan import AcsPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import (
    BARE_METAL,
    RULES,
    VIRTUAL_MACHINES,
)

REBOOT = (
    "ACS has to be right before the kernel makes its groups: reboot with the kernel argument pci=config_acs= "
    "(gpu_host_acs_at_boot), or turn the IOMMU on"
)
KERNEL, NIC, DMA, GPU_OF_DMA, ROOT_OF_DMA, OFF = "xx111x1", "1x11101", "xx110x1", "xx101x1", "xx111x0", "xx000x0"


def ports(plan):
    return [(port.address, port.topology, port.role, port.mask.text, port.below) for port in plan.ports]


def planned(host, purpose=VIRTUAL_MACHINES):
    return AcsPlan(host, servers.passed(host), purpose)


def test_the_rules_are_those_of_rdma_topo():
    assert [
        (rule.topology, rule.role, rule.virtual_machines.text, rule.bare_metal.text, rule.why) for rule in RULES
    ] == [
        ("inline", "nic_port", NIC, OFF, "requests of the NIC that the IOMMU has translated go straight"),
        ("inline", "gpu_port", KERNEL, OFF, "requests of the GPU go through the IOMMU"),
        ("inline", "root_port", KERNEL, OFF, "the root port keeps its slots apart"),
        ("inline", "other_port", KERNEL, OFF, "other devices of the switch are kept apart"),
        ("dma_direct", "dma_port", DMA, DMA, "requests of the data-direct function go straight"),
        ("dma_direct", "gpu_port", GPU_OF_DMA, GPU_OF_DMA, "completions of the GPU go straight"),
        ("dma_direct", "root_port", ROOT_OF_DMA, ROOT_OF_DMA, "one IOMMU group for all below it"),
        ("dma_direct", "other_port", KERNEL, KERNEL, "other devices of the switch are kept apart"),
        ("numa", "root_port", KERNEL, KERNEL, "traffic goes through the root complex in any case"),
        ("numa", "other_port", KERNEL, KERNEL, "no NIC shares this switch with a GPU"),
    ]


def test_the_ports_of_a_board_with_inline_nics():
    plan = planned(servers.inline(True))
    assert ports(plan) == [
        ("0000:00:01.0", "inline", "root_port", KERNEL, ("0000:03:00.0", "0000:06:00.0")),
        ("0000:02:00.0", "inline", "nic_port", NIC, ("0000:03:00.0",)),
        ("0000:02:01.0", "inline", "gpu_port", KERNEL, ("0000:06:00.0",)),
        ("0000:05:00.0", "inline", "other_port", KERNEL, ("0000:06:00.0",)),
        ("0000:07:01.0", "inline", "root_port", KERNEL, ("0000:0a:00.0", "0000:0d:00.0")),
        ("0000:09:00.0", "inline", "nic_port", NIC, ("0000:0a:00.0",)),
        ("0000:09:01.0", "inline", "gpu_port", KERNEL, ("0000:0d:00.0",)),
        ("0000:0c:00.0", "inline", "other_port", KERNEL, ("0000:0d:00.0",)),
    ]
    assert plan.has_data_direct is False
    assert plan.ports[1].to_dict() == {
        "address": "0000:02:00.0",
        "topology": "inline",
        "role": "nic_port",
        "mask": NIC,
        "why": "requests of the NIC that the IOMMU has translated go straight",
        "below": ["0000:03:00.0"],
        "has_acs": True,
    }


def test_the_ports_of_a_board_with_data_direct_functions():
    plan = planned(servers.dma_direct(), BARE_METAL)
    assert ports(plan)[:6] == [
        ("0000:00:01.0", "dma_direct", "root_port", ROOT_OF_DMA, ("0000:03:00.0", "0000:06:00.0")),
        ("0000:02:00.0", "dma_direct", "dma_port", DMA, ("0000:03:00.0",)),
        ("0000:02:01.0", "dma_direct", "gpu_port", GPU_OF_DMA, ("0000:06:00.0",)),
        ("0000:05:00.0", "dma_direct", "other_port", KERNEL, ("0000:06:00.0",)),
        ("0000:07:01.0", "numa", "root_port", KERNEL, ("0000:0a:00.0",)),
        ("0000:09:00.0", "numa", "other_port", KERNEL, ("0000:0a:00.0",)),
    ]
    assert len(plan.ports) == 12
    assert plan.has_data_direct is True
    assert plan.topology("0000:06:00.0", "0000:03:00.0") == "dma_direct"
    assert plan.topology("0000:06:00.0", "0000:0e:00.0") == "numa"
    assert plan.topology("0000:06:00.0", "0000:0a:00.0") == "numa"


def test_root_ports_of_vera_have_no_completion_redirect():
    vera = [servers.VERA_ROOT, (0x10DE, 0x2F96), servers.GRACE_ROOT]
    masks = [{port.mask.text for port in planned(servers.numa(root)).ports} for root in vera]
    assert masks == [{"xx101x1"}, {"xx101x1"}, {KERNEL}]


def test_a_port_without_acs_is_in_the_plan_if_it_is_a_downstream_port():
    host = servers.hgx()
    for item in host.functions:
        item.acs = None
    found = ports(planned(host))[:4]
    assert [port[:3] for port in found] == [
        ("0000:00:01.0", "inline", "root_port"),
        ("0000:02:00.0", "inline", "gpu_port"),
        ("0000:02:01.0", "inline", "nic_port"),
        ("0000:02:02.0", "inline", "other_port"),
    ]
    assert {port.has_acs for port in planned(host).ports} == {False}


def test_an_upstream_port_with_acs_is_in_the_plan():
    host = servers.hgx()
    up = host.function("0000:01:00.0")
    assert up.address not in {port.address for port in planned(host).ports}
    up.acs = host.function("0000:00:01.0").acs
    assert ("0000:01:00.0", "inline", "other_port", KERNEL, ("0000:03:00.0", "0000:04:00.0")) in ports(planned(host))


def test_the_ports_where_the_requests_of_two_devices_turn():
    plan = planned(servers.hgx())
    assert plan.turns("0000:03:00.0", "0000:04:00.0") == ("0000:02:00.0", "0000:02:01.0")
    assert plan.turns("0000:04:00.0", "0000:03:00.0") == ("0000:02:01.0", "0000:02:00.0")
    assert plan.turns("0000:03:00.0", "0000:09:00.0") is None
    assert plan.turns("0000:03:00.0", "0000:02:00.0") is None
    host = servers.hgx()
    host.functions.append(servers.Build().device(host.function("0000:02:00.0"), servers.H100, "gpu", function=1))
    assert planned(host).turns("0000:03:00.0", "0000:03:00.1") is None


def test_devices_on_the_slots_of_one_root_port_do_not_turn_at_it():
    build = servers.Build()
    root = build.root(0)
    build.device(root, servers.H100, "gpu")
    build.device(root, servers.CX7, "nic", function=1)
    plan = planned(build.done())
    assert plan.turns(*plan.gpus, *plan.nics) is None
    assert ports(plan) == [("0000:00:01.0", "numa", "root_port", KERNEL, ("0000:01:00.0", "0000:01:00.1"))]


def test_a_port_that_leads_to_nics_and_gpus_is_a_nic_port():
    """Two switches, each with a NIC and a GPU, are below a third: its ports lead to a NIC and a GPU each."""
    build = servers.Build()
    upper = build.switch(build.root(0), 2)
    inner = {}
    for port in upper:
        to_nic, to_gpu = build.switch(port, 2)
        build.device(to_nic, servers.CX7, "nic", ats=True)
        build.device(to_gpu, servers.H100, "gpu")
        inner.update({to_nic.address: "nic_port", to_gpu.address: "gpu_port"})
    roles = {port.address: port.role for port in planned(build.done()).ports}
    assert roles == {"0000:00:01.0": "root_port", **{port.address: "nic_port" for port in upper}, **inner}


def ats(address, topology, seen, holds, wanted="present"):
    article = "an" if wanted == "present" else "no"
    remedy = f"set ATS_ENABLED={wanted == 'present'} in the NIC's firmware (gpu_host_nic_firmware) and reboot"
    return f"NIC {address} has {article} ATS capability ({topology})", wanted, seen, holds, "" if holds else remedy


def groups(one, gpus, wanted, topology, seen, holds):
    claim = f"IOMMU groups of {one} and GPU {gpus} are {wanted} ({topology})"
    return claim, wanted, seen, holds, "" if holds else REBOOT


def claimed(host, purpose=VIRTUAL_MACHINES):
    """Return claim, wanted and observed value, verdict and remedy of each claim."""
    claims = planned(host, purpose).claims()
    return [(claim.claim, claim.wanted, claim.seen, claim.holds, claim.reason) for claim in claims]


@pytest.mark.parametrize(
    ("own", "other", "seen", "holds"),
    [(1, 2, "1 and 2", True), (1, 1, "1", False), (None, 2, "none and 2", False), (1, None, "1 and none", False)],
)
def test_nic_and_gpu_of_a_virtual_machine_are_in_different_groups(own, other, seen, holds):
    host = servers.inline(True)
    nic, gpu = "0000:03:00.0", "0000:06:00.0"
    host.function(nic).iommu_group, host.function(gpu).iommu_group = own, other
    assert claimed(host)[:2] == [
        ats(nic, "inline", "present", True),
        groups(nic, gpu, "different", "inline", seen, holds),
    ]


@pytest.mark.parametrize(
    ("own", "other", "seen", "holds"),
    [(1, 2, "1 and 2", False), (1, 1, "1", True), (None, None, "none", True), (1, None, "1 and none", False)],
)
def test_nic_and_gpu_of_bare_metal_are_in_one_group_or_none(own, other, seen, holds):
    host = servers.inline(False)
    nic, gpu = "0000:03:00.0", "0000:06:00.0"
    host.function(nic).iommu_group, host.function(gpu).iommu_group = own, other
    assert claimed(host, BARE_METAL)[:2] == [
        ats(nic, "inline", "absent", True, "absent"),
        groups(nic, gpu, "none or same", "inline", seen, holds),
    ]


@pytest.mark.parametrize(
    ("own", "other", "seen", "holds"), [(1, 1, "1", True), (1, 2, "1 and 2", False), (None, None, "none", False)]
)
def test_a_data_direct_function_and_its_gpu_are_in_one_group(own, other, seen, holds):
    host = servers.dma_direct()
    dma, gpu = "0000:03:00.0", "0000:06:00.0"
    host.function(dma).iommu_group, host.function(gpu).iommu_group = own, other
    found = claimed(host)
    assert found[0] == groups(dma, gpu, "same", "dma_direct", seen, holds)
    assert len(found) == 2


def test_nics_without_a_gpu_on_their_switch_have_no_ats_and_other_groups_than_all_gpus():
    host = servers.numa()
    nic = "0000:03:00.0"
    host.function(nic).ats = servers.Ats(True, 0)
    assert claimed(host) == [
        ats(nic, "numa", "present", False, "absent"),
        groups(nic, "0000:01:00.0, 0000:05:00.0", "different", "numa", "4 and 2 and 6", True),
        ats("0000:07:00.0", "numa", "absent", True, "absent"),
        groups("0000:07:00.0", "0000:01:00.0, 0000:05:00.0", "different", "numa", "8 and 2 and 6", True),
    ]
    host.functions = [item for item in host.functions if item.kind != "gpu"]
    assert claimed(host) == []


@pytest.mark.parametrize(("config_bytes", "seen", "holds"), [(4096, "absent", False), (4095, None, False)])
def test_the_ats_capability_is_absent_only_if_the_extended_space_was_read(config_bytes, seen, holds):
    host = servers.inline(True)
    nic = host.function("0000:03:00.0")
    nic.ats, nic.config_bytes = None, config_bytes
    assert claimed(host)[0] == ats(nic.address, "inline", seen, holds)
