# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plans depend on the values that a switch system can represent."""

from __future__ import annotations

from copy import deepcopy
from fractions import Fraction

import pytest
from messages import raises
from planned_switches import STORAGE, change, one, planned
from refusals import refuses

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import BufferShares, Ecn
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy import thresholds
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asic_table import ASICS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import registry
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import read_switches


def test_a_system_without_pfc_needs_no_asic():
    soft = {"sw01": {"system": "soft", "ports": {"eth1": {"speed_gbit_s": 10}}}}
    qos = planned({"classes": {"roce": {"mode": "lossy"}}}, soft)["sw01"].ports["eth1"]
    assert qos.headroom == (None,) * 8
    assert qos.queues[3].ecn == thresholds.reference_ecn(10, 9100)


def test_a_lossless_class_is_refused_on_a_system_without_pfc():
    two = {"classes": {"roce": {"mode": "lossy"}, "storage": {**STORAGE, "mode": "lossless"}}}
    for policy, name in ((None, "roce"), (two, "storage")):
        with pytest.raises(FabricError) as refused:
            planned(policy, {"sw01": {"system": "soft", "ports": {"eth1": {"speed_gbit_s": 10}}}})
        assert refused.value.subject == "switch sw01"
        assert all(fact in refused.value.cause for fact in (f"class {name}", "soft", "it sends none"))


def test_a_system_that_computes_headroom_is_planned_with_the_cable_length():
    reckons = change(("leaf1", "system"), "reckons")
    wanted = planned(None, reckons)
    assert [qos.cable_m for qos in wanted["leaf1"].ports.values()] == [3, 3, 30]
    assert wanted["spine1"].ports["Ethernet1"].cable_m is None
    assert planned({"classes": {"roce": {"mode": "lossy"}}}, reckons)["leaf1"].ports["swp1"].cable_m is None


def test_ecn_thresholds_are_rounded_down_on_a_system_that_uses_percentages():
    switches = one(ports=32, queue_buffer_bytes=7_000_000)
    switches["leaf1"]["system"] = "percents"
    switch = planned(None, switches)["leaf1"]
    assert switch.queue_buffer_bytes == 7_000_000
    # 1% and 8% of the buffer are the largest whole percentages that do not exceed 103,000 and 621,000 bytes.
    assert switch.ports["swp0"].queues[3].ecn == Ecn(70_000, 560_000, 100)
    switches["leaf1"]["queue_buffer_bytes"] = 30_000_000
    with pytest.raises(FabricError, match=r"ECN of 300000 to 600000 bytes at 100% marks 0\.00% of packets, but"):
        planned(None, switches)
    second_leaf = deepcopy(switches["leaf1"])
    switches["leaf1"]["queue_buffer_bytes"] = 7_000_000
    with pytest.raises(FabricError, match="switch leaf2: port swp0"):  # leaf1's limits do not apply to leaf2
        planned(None, {**switches, "leaf2": second_leaf})
    assert planned(None, {**switches, "leaf2": one(ports=32)["leaf1"]})["leaf2"].ports["swp0"].queues[3].ecn == Ecn(
        103_000, 621_000, 100
    )
    del switches["leaf1"]["queue_buffer_bytes"]
    with refuses("switch leaf1", "roce_switch_queue_buffer_bytes"):
        planned(None, switches)
    switches["leaf1"]["queue_buffer_bytes"] = 7_000
    with raises(FabricError, "queue_buffer_bytes", "7000", "100000", "64000000000"):
        planned(None, switches)


def test_a_system_is_planned_with_its_buffer_partitions():
    headroom_bytes = 32 * (47_104 + 90_112)
    (pools_plan,), (parts,) = (planned(None, one(ports=32, system=name)).values() for name in ("plain", "parts"))
    assert pools_plan.ports["swp0"].queues[3].ecn == Ecn(103_000, 621_000, 100)
    part = thresholds.pfc_queue_bytes(Fraction((60_817_392 - headroom_bytes) * 30, 100), 32, 3, 0)
    half = int(part / 2) // 1000 * 1000
    assert parts.ports["swp0"].queues[3].ecn == Ecn(half, int(half + 5 * (part - half)) // 1000 * 1000, 100)
    assert (pools_plan.shares, parts.shares) == (None, None)


def test_default_partitions_are_planned_unless_the_user_gives_pools():
    switches = one("tomahawk3", ports=32, system="cut")
    switch = planned(None, switches)["leaf1"]
    q = thresholds.pfc_queue_bytes(Fraction(67_108_864 * 9, 100), 32, 3, -2)
    assert switch.shares == BufferShares(9, 45)
    assert switch.ports["swp0"].queues[3].ecn == Ecn(13_000, (13_000 + int((q - 13_000) * 5)) // 1000 * 1000, 100)
    asic_settings = {
        "like": "tomahawk3",
        "source": "a test",
        "pool_bytes": 40_000_000,
        "headroom_pool_bytes": 16_000_000,
    }
    switch = planned(None, {"leaf1": {**switches["leaf1"], "asic": "own"}}, asics={"own": asic_settings})["leaf1"]
    assert switch.shares == BufferShares(60, 24)  # of 67,108,864, rounded up to whole percents
    assert switch.ports["swp0"].queues[3].ecn.minimum_bytes > 60_000
    asic_settings.update(pool_bytes=33_554_432, headroom_pool_bytes=16_777_216)  # a half and a quarter
    switch = planned(None, {"leaf1": {**switches["leaf1"], "asic": "own"}}, asics={"own": asic_settings})["leaf1"]
    assert switch.shares == BufferShares(50, 25)


def test_a_system_that_sizes_headroom_itself_needs_no_headroom_rows():
    asic_settings = {"source": "a test", "buffer_bytes": 40_000_000, "pool_bytes": 20_000_000, "cell_bytes": 208}
    asic_settings["lossless_classes"] = 1
    switches = one("own", ports=32, system="sizes", cable=3)
    ports = planned(None, switches, asics={"own": {**asic_settings, "alpha_exponent": 0}})["leaf1"].ports
    assert ports["swp0"].headroom == (None,) * 8
    assert ports["swp0"].cable_m == 3
    assert ports["swp0"].queues[3].ecn == Ecn(78_000, 469_000, 100)  # 20,000,000 / 128 / 2, and 20% at 20,000,000 / 128
    with raises(FabricError, "leaf1", "alpha_exponent", "roce_asics"):
        planned(None, switches, asics={"own": asic_settings})
    with refuses("switch leaf1: port swp0", "not 4"):
        planned(None, one("tomahawk3", system="sizes", cable=4))
    # Where the user gives no alpha, the smallest of the ASIC's rows counts.
    (qos, _same) = planned(None, one("tomahawk3", ports=2, system="sizes", cable=3))["leaf1"].ports.values()
    assert qos.headroom == (None,) * 8
    (large, *_same) = planned(None, one("tomahawk3", ports=32, system="sizes", cable=3))["leaf1"].ports.values()
    assert large.queues[3].ecn == Ecn(87_000, 526_000, 100)


def test_only_the_alphas_of_rows_that_a_port_uses_count():
    """A row of 400 Gbit/s lets a priority use 1/64 of the pool's free part; no port has it."""
    rows = [
        {"speed_gbit_s": speed, "cable_m": 9, "reserved_bytes": 0, "xoff_bytes": 60_000, "alpha_exponent": alpha}
        for speed, alpha in ((100, 0), (400, -6))
    ]
    asic_settings = {"source": "a test", "buffer_bytes": 60_000_000, "pool_bytes": 50_000_000, "cell_bytes": 254}
    asics = {"own": {**asic_settings, "lossless_classes": 2, "headroom": rows}}
    slow = planned(None, one("own", ports=30, speed=100), asics=asics)["leaf1"].ports["swp0"].queues[3].ecn
    assert slow == Ecn(150_000, 1_483_000, 100)  # 20% at 50,000,000 / 120


def test_headroom_is_planned_for_the_cable_length_that_the_system_supports():
    assert planned(None, one("tomahawk3", system="steps"))["leaf1"].ports["swp0"].headroom[3].xoff_bytes == 201_930


def test_a_system_on_an_unsupported_asic_is_refused():
    assert planned(None, one("spectrum3", system="few"))
    with raises(FabricError, "leaf1", "few", "Tomahawk 3", "spectrum3", "roce_asics"):
        planned(None, one("tomahawk3", system="few"))
    with refuses("switch leaf1", "few has other queues there", "spectrum3"):
        planned(None, one("jericho2", system="few"))
    asic_settings = {"tomahawk3": {"like": "tomahawk3", "source": "a test"}}
    assert planned(None, one("tomahawk3", system="few"), asics=asic_settings)


@pytest.mark.parametrize(
    ("system", "asics"),
    [
        ("cumulus", {"spectrum", "spectrum2", "spectrum3", "spectrum4"}),
        ("junos", {"tomahawk2", "tomahawk3", "tomahawk4", "tomahawk5", "trident3", "trident4"}),
        ("eos", {"tomahawk2", "tomahawk3", "tomahawk4", "tomahawk5", "trident3", "trident4"}),
        ("dell_sonic", {"tomahawk2", "tomahawk3", "tomahawk4", "tomahawk5", "trident3", "trident4"}),
        ("nxos", set()),
        ("sonic", set(ASICS) - {"jericho2"}),
    ],
)
def test_a_system_is_accepted_only_on_its_supported_asics(system, asics):
    name = {"sonic": "Ethernet0", "cumulus": "swp1", "junos": "et-0/0/1", "eos": "Ethernet1/1", "nxos": "Ethernet1/1"}
    headroom_bytes = set()
    for asic in ASICS:
        each = one(asic, ports=0)["leaf1"]
        each = {**each, "system": system, "ports": {name.get(system, "Eth1/1"): {"speed_gbit_s": 100}}}
        each["queue_buffer_bytes"] = 5_000_000
        if asic in asics:
            assert read_switches({"leaf1": each})
            headroom_bytes.add(asic)
            continue
        with pytest.raises(FabricError, match=r"runs on no switch with|has the queues of Jericho 2 as"):
            read_switches({"leaf1": each})
    assert headroom_bytes == asics
    runs_on = registry.SYSTEMS[system].asics
    assert runs_on is None or set(runs_on) == asics


@pytest.mark.parametrize(
    ("system", "good", "bad", "example"),
    [
        ("sonic", ["Ethernet0", "Ethernet511"], ["swp1", "Ethernet01", "Ethernet0 ", "Eth1/1"], "Ethernet0"),
        ("cumulus", ["swp1", "swp64s7"], ["Ethernet0", "swp"], "swp1, or swp1s0 for a part of one"),
        ("eos", ["Ethernet1/1", "Port-Channel9"], ["Et1/1", "swp1"], "Ethernet1/1, or Port-Channel1"),
        ("nxos", ["Ethernet1/1", "port-channel9"], ["eth1/1", "Ethernet1"], "Ethernet1/1, or port-channel1"),
        ("junos", ["et-0/0/1", "et-0/0/1:3", "ae0"], ["et0", "ae"], "et-0/0/1, or ae1"),
        (
            "dell_sonic",
            ["Eth1/1", "Eth1/1/2", "Ethernet0"],
            ["swp1", "Eth1"],
            "Eth1/1, or Ethernet0 where interface naming is native",
        ),
        (
            "linux",
            ["eth1", "enp1s0f0np0"],
            ["a b", "sixteen-letters-"],
            "enp1s0f0np0: 15 letters, digits, '_', '.' and '-' at most",
        ),
    ],
)
def test_port_names_must_be_valid_on_their_system(system, good, bad, example):
    def read_one(port):
        asic_settings = {"source": "a test", "buffer_bytes": 9_000_000, "pool_bytes": 9_000_000, "cell_bytes": 64}
        switches = {"system": system, "asic": "own", "ports": {port: {"speed_gbit_s": 100}}}
        return read_switches(
            {"leaf1": {**switches, "queue_buffer_bytes": 5_000_000}},
            asics={"own": {**asic_settings, "lossless_classes": 2}},
        )

    for port in good:
        assert list(read_one(port)[0].ports) == [port]
    for port in bad:
        with raises(FabricError, "leaf1", port, example):
            read_one(port)
