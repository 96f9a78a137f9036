# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whole texts of the outlook, and the limits between its causes."""

from __future__ import annotations

import gpudirect_servers as servers
import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect import outlook
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import (
    BARE_METAL,
    VIRTUAL_MACHINES,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.outlook import Cause
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Link

ATS_COST = "its requests to the GPU go through the IOMMU: about half (NVIDIA/nccl-tests#156, #256)"
ATS_REMEDY = "ATS_ENABLED in the NIC's firmware and a reboot (gpu_host_nic_firmware_by_family: true)"
ACS_COST = "translated requests go to the root complex and back: 27 instead of 50 GB/s (NVIDIA/nccl#949)"
ORDER_COST = "its writes wait for each other; it matters most with ACS and ATS (NVIDIA/nccl#1205)"
READS_COST = "more and smaller reads of GPU memory"
ROOT = "read or record the host as root"


def board(**more):
    """Return an HGX board whose ACS is as the plan wants it."""
    host = servers.hgx(**more)
    servers.apply_plan(host, VIRTUAL_MACHINES)
    return host


def first(host, kind):
    return next(item for item in host.functions if item.kind == kind)


def of_first(host, **more):
    """Return the pair of the first NIC."""
    nic = first(host, "nic").address
    return next(pair for pair in outlook.pairs(host, servers.passed(host), **more) if pair.nic == nic)


def test_the_whole_text_of_an_outlook():
    host = board(gpus=2)
    one, other, *_more = (item for item in host.functions if item.kind == "nic")
    one.ats, one.max_read_request_bytes, one.relaxed_ordering = None, 512, False
    host.function(other.parent).acs.control = 0x1D
    other.link.width = 4
    [item for item in host.functions if item.kind == "gpu"][-1].link = None
    found = outlook.pairs(host, servers.passed(host), huge_pages=False)
    assert outlook.lines(found) == [
        "GPUDirect: 0 of 8 pairs of GPU and NIC are direct, 63 GB/s by their links",
        "  every pair: huge pages no",
        "  GPU           NIC           host  guest  verdict  ATS  ACS      ordering  MaxReadReq  GB/s",
        "  0000:0a:00.0  0000:0c:00.0  PIX   PIX    slow     yes  0011101  on        4096        63",
        "  0000:0b:00.0  0000:0c:00.0  PIX   PIX    slow     yes  0011101  on        4096        63",
        "  0000:03:00.0  0000:05:00.0  PIX   PIX    slow     no   1011101  off       512         63",
        "  0000:04:00.0  0000:05:00.0  PIX   PIX    slow     no   1011101  off       512         63",
        "  0000:15:00.0  0000:17:00.0  PIX   PIX    slow     yes  1011101  on        4096        63",
        "  0000:16:00.0  0000:17:00.0  PIX   PIX    slow     yes  1011101  on        4096        63",
        "  0000:1c:00.0  0000:1e:00.0  PIX   PIX    slow     yes  1011101  on        4096        63",
        "  0000:1d:00.0  0000:1e:00.0  PIX   PIX    slow     yes  1011101  on        4096        not known",
        "  ACS of port 0000:09:02.0 is 0011101, wanted 1x11101 (GPU 0000:0a:00.0 and NIC 0000:0c:00.0 and 1 more)",
        f"    costs: {ACS_COST}; remedy: gpu_host_acs: auto",
        "  the NIC has no ATS capability (GPU 0000:03:00.0 and NIC 0000:05:00.0 and 1 more)",
        f"    costs: {ATS_COST}; remedy: {ATS_REMEDY}",
        "  the link of 0000:0c:00.0 has 4 of 16 lanes (GPU 0000:0a:00.0 and NIC 0000:0c:00.0 and 1 more)",
        "    costs: 25% of its bandwidth; remedy: seat the card or riser again, see the BIOS's bifurcation",
        "  MaxReadReq of the NIC is 512 bytes (GPU 0000:03:00.0 and NIC 0000:05:00.0 and 1 more)",
        f"    costs: {READS_COST}; remedy: gpu_host_pci, max_read_request_bytes: 4096",
        "  relaxed ordering is off in the NIC (GPU 0000:03:00.0 and NIC 0000:05:00.0 and 1 more)",
        f"    costs: {ORDER_COST}; remedy: gpu_host_pci, relaxed_ordering: true",
        "  the guest's memory is not in huge pages (GPU 0000:0a:00.0 and NIC 0000:0c:00.0 and 7 more)",
        "    costs: misses in the IOMMU's cache of translations; remedy: huge_page_mib: 1024",
    ]
    assert found[0].facts.words() == ("ATS yes, ACS 0011101, relaxed ordering on, MaxReadReq 4096, huge pages no")


def test_a_cause_of_one_pair_names_only_that_pair():
    host = board()
    first(host, "nic").relaxed_ordering = None
    pair = of_first(host)
    assert outlook.lines(outlook.pairs(host, servers.passed(host)))[-2:] == [
        f"  it is not known whether the NIC has relaxed ordering on (GPU {pair.gpu} and NIC {pair.nic})",
        f"    costs: {ORDER_COST}; remedy: {ROOT}",
    ]


def test_the_summary_has_the_slowest_rate_or_none():
    host = board()
    first(host, "gpu").link.max_speed_gt_s = 16.0
    assert outlook.lines(outlook.pairs(host, servers.passed(host)))[0].endswith(" are direct, 32 GB/s by their links")
    for item in host.functions:
        item.link = None
    assert outlook.lines(outlook.pairs(host, servers.passed(host)))[0] == (
        "GPUDirect: 8 of 8 pairs of GPU and NIC are direct"
    )


@pytest.mark.parametrize(
    ("values", "causes"),
    [
        ({}, ()),
        ({"ats": None}, (Cause(2, "the NIC has no ATS capability", ATS_COST, ATS_REMEDY),)),
        ({"ats": None, "config_bytes": 4096}, (Cause(2, "the NIC has no ATS capability", ATS_COST, ATS_REMEDY),)),
        (
            {"ats": None, "config_bytes": 256},
            (Cause(0, "it is not known whether the NIC has the ATS capability", ATS_COST, ATS_REMEDY),),
        ),
        (
            {"max_read_request_bytes": 2048},
            (
                Cause(
                    1,
                    "MaxReadReq of the NIC is 2048 bytes",
                    READS_COST,
                    "gpu_host_pci, max_read_request_bytes: 4096",
                ),
            ),
        ),
        (
            {"max_read_request_bytes": None},
            (Cause(0, "MaxReadReq of the NIC is not known", READS_COST, ROOT),),
        ),
        (
            {"relaxed_ordering": False},
            (Cause(1, "relaxed ordering is off in the NIC", ORDER_COST, "gpu_host_pci, relaxed_ordering: true"),),
        ),
        (
            {"relaxed_ordering": None},
            (Cause(0, "it is not known whether the NIC has relaxed ordering on", ORDER_COST, ROOT),),
        ),
        ({"link": None}, ()),
        ({"link": Link(32.0, None, 32.0, 16)}, ()),
        ({"link": Link(32.0, 8, 32.0, None)}, ()),
        ({"link": Link(32.0, 16, 32.0, 16)}, ()),
        (
            {"link": Link(32.0, 15, 32.0, 16)},
            (
                Cause(
                    2,
                    "the link of 0000:04:00.0 has 15 of 16 lanes",
                    "94% of its bandwidth",
                    "seat the card or riser again, see the BIOS's bifurcation",
                ),
            ),
        ),
    ],
)
def test_a_value_of_the_nic_has_its_cause(values, causes):
    host = board()
    for name, value in values.items():
        setattr(first(host, "nic"), name, value)
    assert of_first(host).causes == causes


@pytest.mark.parametrize(
    ("change", "purpose", "tuned", "causes"),
    [
        (lambda port: setattr(port.acs, "control", 0x1D), VIRTUAL_MACHINES, True, ()),
        (
            lambda port: setattr(port.acs, "control", 0x1D),
            VIRTUAL_MACHINES,
            False,
            (Cause(2, "ACS of port 0000:02:01.0 is 0011101, wanted 1x11101", ACS_COST, "gpu_host_acs: auto"),),
        ),
        (
            lambda port: None,
            BARE_METAL,
            False,
            (
                Cause(
                    2, "ACS of port 0000:02:01.0 is 1011101, wanted xx000x0", ACS_COST, "gpu_node_pci.acs: bare_metal"
                ),
            ),
        ),
        (lambda port: None, BARE_METAL, True, ()),
        (
            lambda port: setattr(port.acs, "capability", 0x1F),
            VIRTUAL_MACHINES,
            True,
            (
                Cause(
                    2,
                    "ACS of port 0000:02:01.0 cannot pass translated requests directly",
                    ACS_COST,
                    "none on this switch; use a GPU and NIC below another one",
                ),
            ),
        ),
        (
            lambda port: setattr(port, "acs", None),
            VIRTUAL_MACHINES,
            False,
            (
                Cause(
                    0,
                    "port 0000:02:01.0 has no ACS: GPU and NIC are in one IOMMU group",
                    "unknown",
                    "turn ACS on in the BIOS, read the host as root",
                ),
            ),
        ),
        (
            lambda port: [setattr(port, "acs", None), setattr(port, "config_bytes", 256)],
            VIRTUAL_MACHINES,
            False,
            (
                Cause(
                    0,
                    "port 0000:02:01.0 was not read",
                    "unknown",
                    "turn ACS on in the BIOS, read the host as root",
                ),
            ),
        ),
    ],
)
def test_a_value_of_the_port_has_its_cause(change, purpose, tuned, causes):
    host = board()
    assert first(host, "nic").parent == "0000:02:01.0"
    change(host.function("0000:02:01.0"))
    assert of_first(host, purpose=purpose, tuned=tuned).causes == causes


def test_tuning_sets_the_read_requests_and_not_the_ordering():
    host = board()
    nic = first(host, "nic")
    nic.max_read_request_bytes, nic.relaxed_ordering = 128, False
    pair = of_first(host, tuned=True)
    assert [cause.what for cause in pair.causes] == ["relaxed ordering is off in the NIC"]
    assert (pair.facts.read_bytes, pair.facts.relaxed_ordering) == ("4096", "off")
    assert [cause.what for cause in of_first(host).causes] == [
        "MaxReadReq of the NIC is 128 bytes",
        "relaxed ordering is off in the NIC",
    ]


def test_a_virtual_function_is_judged_by_the_registers_of_its_physical_function():
    host = board()
    physical = first(host, "nic")
    virtual = servers.Build().device(host.function(physical.parent), servers.CX7, "nic", ats=True, function=1)
    virtual.physical_function, virtual.max_read_request_bytes, virtual.relaxed_ordering = physical.address, None, None
    host.functions.append(virtual)
    devices = [virtual, first(host, "gpu")]
    (pair,) = outlook.pairs(host, devices)
    assert (pair.nic, pair.causes, pair.facts.read_bytes) == (virtual.address, (), "4096")
    physical.max_read_request_bytes = 512
    (pair,) = outlook.pairs(host, devices)
    assert [cause.what for cause in pair.causes] == ["MaxReadReq of the NIC is 512 bytes"]


@pytest.mark.parametrize(
    ("guest", "cause"),
    [
        ("PIX", None),
        (
            None,
            Cause(
                0,
                "GPU and NIC share a switch on the host (PIX), but in the guest they are not known",
                "NCCL sends their traffic through the CPU (NVIDIA/nccl#1674)",
                "mirror_topology: true",
            ),
        ),
        (
            "PXB",
            Cause(
                2,
                "GPU and NIC share a switch on the host (PIX), but in the guest they are PXB",
                "NCCL sends their traffic through the CPU (NVIDIA/nccl#1674)",
                "mirror_topology: true",
            ),
        ),
    ],
)
def test_the_path_in_the_guest_is_compared_with_the_hosts(guest, cause):
    host = board()
    pair = of_first(host)
    paths = {(pair.gpu, pair.nic): guest} if guest else {}
    assert of_first(host, guest_paths=paths).causes == ((cause,) if cause else ())
    assert of_first(host, guest_paths=paths).guest_path == (guest or "not known")


def test_pairs_that_share_no_switch_have_one_cause():
    pair = of_first(servers.numa(servers.INTEL_ROOT))
    assert pair.causes == (
        Cause(
            1,
            "GPU and NIC share no switch on the host",
            "all traffic goes through the root complex, on bare metal too",
            "choose a NIC below the GPU's switch, if the server has one",
        ),
    )
    assert pair.facts.words() == "ATS -, ACS -, relaxed ordering on, MaxReadReq 4096, huge pages yes"


@pytest.mark.parametrize(
    ("severities", "verdict"), [((), "direct"), ((0,), "not known"), ((0, 0), "not known"), ((0, 1), "slow")]
)
def test_the_verdict_is_that_of_the_worst_cause(severities, verdict):
    causes = tuple(Cause(severity, "", "", "") for severity in severities)
    facts = outlook.Facts("", "", "", "", "")
    assert outlook.Pair("g", "n", "PIX", "PIX", None, causes, facts).verdict == verdict


def test_one_bad_cause_is_worse_than_two_lesser_ones():
    host = board()
    nics = [item for item in host.functions if item.kind == "nic"]
    nics[0].max_read_request_bytes, nics[0].relaxed_ordering = 512, False
    nics[1].ats = None
    nics[2].relaxed_ordering = None
    found = outlook.pairs(host, servers.passed(host))
    assert [pair.nic for pair in found[:4]] == [nics[1].address, nics[0].address, nics[2].address, nics[3].address]


@pytest.mark.parametrize(
    ("speed", "width", "rate"),
    [
        (2.5, 1, 0.25),
        (5.0, 4, 2.0),
        (8.0, 16, 8.0 * 16 * 128 / 130 / 8),
        (32.0, 16, 32.0 * 16 * 128 / 130 / 8),
        (64.0, 16, 121.0),
        (None, 16, None),
        (32.0, None, None),
    ],
)
def test_the_rate_of_a_link_is_that_of_its_highest_speed_and_width(speed, width, rate):
    assert outlook.link_rate(Link(1.0, 1, speed, width)) == (rate if rate is None else pytest.approx(rate))
    assert outlook.link_rate(None) is None


@pytest.mark.parametrize(
    ("of_gpu", "of_nic", "rate"),
    [
        (Link(1.0, 1, 5.0, 2), Link(1.0, 1, 5.0, 4), 1.0),
        (Link(1.0, 1, 5.0, 4), Link(1.0, 1, 5.0, 2), 1.0),
        (None, Link(1.0, 1, 5.0, 2), None),
        (Link(1.0, 1, 5.0, 2), None, None),
    ],
)
def test_the_rate_of_a_pair_is_that_of_its_slower_link(of_gpu, of_nic, rate):
    host = board()
    first(host, "gpu").link, first(host, "nic").link = of_gpu, of_nic
    assert of_first(host).link_gb_per_s == rate
