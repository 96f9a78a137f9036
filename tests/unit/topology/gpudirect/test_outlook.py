# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The outlook for made-up boards with the topology facts of public threads; they are not recordings of the machines."""

from __future__ import annotations

import gpudirect_servers as servers
import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect import outlook
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import (
    BARE_METAL,
    VIRTUAL_MACHINES,
)

# The boards of the threads in docs/background/gpudirect.md: the GPUs and NICs below each of their switches.
THREADS = {
    "nccl-tests#380, 8 H200, 4 ConnectX-7": lambda: servers.hgx(gpus=2, nics=1),
    "nccl#2171, 8 H100, 8 ConnectX-7": lambda: servers.hgx(gpus=1, nics=1),
    "nccl#949, A100, 2 GPUs and 2 NICs a switch": lambda: servers.hgx(gpus=2, nics=2),
}


def tuned(host):
    servers.apply_plan(host, VIRTUAL_MACHINES)
    return host


def found(host, **more):
    return outlook.pairs(host, servers.passed(host), **more)


@pytest.mark.parametrize("name", THREADS)
def test_all_pairs_are_direct_after_tuning(name):
    host = THREADS[name]()
    # Before the tuning, each NIC's port has the kernel's default; ``tuned`` predicts the state after it.
    assert {pair.verdict for pair in found(host)} == {"slow"}
    for pairs in (found(host, tuned=True), found(tuned(host))):
        assert {pair.verdict for pair in pairs} == {"direct"}
        assert {pair.host_path for pair in pairs} == {"PIX"}
        assert {round(pair.link_gb_per_s) for pair in pairs} == {63}
        assert len({pair.gpu for pair in pairs}) == 8


def change_nic(name, value):
    return lambda host: setattr(next(item for item in host.functions if item.kind == "nic"), name, value)


def unread(host):
    nic = next(item for item in host.functions if item.kind == "nic")
    nic.ats, nic.config_bytes = None, 64


def no_direct_translated(host):
    nic = next(item for item in host.functions if item.kind == "nic")
    acs = host.function(nic.parent).acs
    acs.capability, acs.control = 0x1F, 0x1D


def fewer_lanes(host):
    next(item for item in host.functions if item.kind == "gpu").link.width = 8


@pytest.mark.parametrize(
    ("breaks", "what", "severity"),
    [
        (change_nic("ats", None), "the NIC has no ATS capability", 2),
        (unread, "it is not known whether the NIC has the ATS capability", 0),
        (no_direct_translated, "cannot pass translated requests directly", 2),
        (change_nic("max_read_request_bytes", 512), "MaxReadReq of the NIC is 512 bytes", 1),
        (change_nic("relaxed_ordering", False), "relaxed ordering is off", 1),
        (change_nic("max_read_request_bytes", None), "MaxReadReq of the NIC is not known", 0),
        (change_nic("relaxed_ordering", None), "it is not known whether the NIC has relaxed ordering on", 0),
        (fewer_lanes, "has 8 of 16 lanes", 2),
    ],
)
def test_the_pair_with_a_cause_is_listed_first_with_cost_and_remedy(breaks, what, severity):
    host = tuned(servers.hgx())
    breaks(host)
    worst, *others = found(host)
    (cause,) = worst.causes
    assert what in cause.what
    assert cause.cost
    assert cause.remedy
    assert (cause.severity, worst.verdict) == (severity, "slow" if severity else "not known")
    assert {pair.verdict for pair in others} == {"direct"}


def test_a_flat_guest_topology_and_small_pages_are_causes():
    host = tuned(servers.hgx())
    pairs = found(host, guest_paths={}, huge_pages=False)
    assert {pair.guest_path for pair in pairs} == {"not known"}
    assert {cause.severity for pair in pairs for cause in pair.causes} == {0, 1}  # the guest's path, and the pages
    first = pairs[0]
    flat = found(host, guest_paths={(first.gpu, first.nic): "PHB"})[0]
    assert (flat.gpu, flat.causes[0].remedy) == (first.gpu, "mirror_topology: true")
    assert "nccl#1674" in flat.causes[0].cost
    assert [cause.severity for cause in flat.causes] == [2]
    assert [cause.severity for cause in found(host, huge_pages=False)[0].causes] == [1]


def test_pairs_without_a_shared_switch_are_not_direct():
    pairs = found(servers.numa(servers.INTEL_ROOT))
    assert {pair.causes[0].what for pair in pairs} == {"GPU and NIC share no switch on the host"}
    assert {pair.causes[0].severity for pair in pairs} == {1}


def test_the_text_has_a_summary_and_lists_each_cause_once():
    host = servers.hgx()
    lines = outlook.lines(found(host))
    assert lines[0] == "GPUDirect: 0 of 8 pairs of GPU and NIC are direct, 63 GB/s by their links"
    assert sum("wanted 1x11101" in line for line in lines) == 8
    lines = outlook.lines(found(tuned(host)))
    assert lines[0] == "GPUDirect: 8 of 8 pairs of GPU and NIC are direct, 63 GB/s by their links"
    assert len(servers.outlook_rows(lines)) == 8
    assert max(len(line) for line in lines) <= 80
    assert outlook.lines([]) == ["GPUDirect: no GPU with a NIC"]


def rows_of(pairs):
    """Return the table as dictionaries by column."""
    rows = servers.outlook_rows(outlook.lines(pairs))
    assert len(rows) == len(pairs)
    return rows


def test_the_table_shows_the_settings_read_with_the_worst_pair_first():
    host = tuned(servers.hgx())
    bad = next(item for item in host.functions if item.kind == "nic" and item.numa_node == 1)
    bad.ats, bad.max_read_request_bytes, bad.relaxed_ordering = None, 512, False
    host.function(bad.parent).acs.control = 0x1D
    worst, *others = rows_of(found(host, huge_pages=False))
    common = {"host": "PIX", "guest": "PIX", "huge pages": "no", "GB/s": "63", "verdict": "slow"}
    off = {"ATS": "no", "ACS": "0011101", "ordering": "off", "MaxReadReq": "512"}
    on = {"ATS": "yes", "ACS": "1011101", "ordering": "on", "MaxReadReq": "4096"}
    assert worst == {**common, **off, "GPU": worst["GPU"], "NIC": bad.address}
    for row in others:
        assert row == {**common, **on, "GPU": row["GPU"], "NIC": row["NIC"]}


def test_the_table_of_a_plan_shows_the_settings_after_tuning():
    host = servers.hgx()
    for item in host.functions:
        if item.kind == "nic":
            item.max_read_request_bytes = 512
    assert {(row["ACS"], row["MaxReadReq"]) for row in rows_of(found(host))} == {("0011101", "512")}
    assert {(row["ACS"], row["MaxReadReq"]) for row in rows_of(found(host, tuned=True))} == {("1011101", "4096")}


def test_the_table_marks_unknown_and_unneeded_settings():
    host = tuned(servers.hgx())
    for item in host.functions:
        item.config_bytes, item.acs, item.link = 64, None, None
        if item.kind == "nic":
            item.ats, item.max_read_request_bytes, item.relaxed_ordering = None, None, None
    for row in rows_of(found(host)):
        unknown = ("ATS", "ACS", "ordering", "MaxReadReq", "GB/s")
        assert {row[name] for name in unknown} == {"not known"}
    for row in rows_of(found(servers.numa(servers.INTEL_ROOT))):
        assert (row["ATS"], row["ACS"]) == ("-", "-")
    bare = outlook.pairs(servers.hgx(ats=False), servers.passed(servers.hgx()), purpose=BARE_METAL)
    assert {row["ATS"] for row in rows_of(bare)} == {"-"}


def test_the_table_shows_none_for_a_port_without_acs():
    host = tuned(servers.hgx())
    nic = next(item for item in host.functions if item.kind == "nic")
    host.function(nic.parent).acs = None
    assert next(row for row in rows_of(found(host)) if row["NIC"] == nic.address)["ACS"] == "none"


@pytest.mark.parametrize(
    ("speed", "width", "rate"), [(8.0, 16, 15.75), (16.0, 16, 31.5), (64.0, 16, 121.0), (5.0, 4, 2.0)]
)
def test_the_link_rate_is_computed_from_speed_and_width(speed, width, rate):
    host = tuned(servers.hgx())
    for item in host.functions:
        if item.kind == "nic":
            item.link.max_speed_gt_s, item.link.max_width, item.link.width = speed, width, width
    got = found(host)[0].link_gb_per_s
    assert got == pytest.approx(min(rate, 63.0), rel=0.01)
