# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The parts of a Junos switch's buffer, as configured, as shown and by default, and the plan with them.

The answers of the switch are made up, in the published forms.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from planned_switches import planned_as_read
from refusals import refuses

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy import thresholds
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asic_table import ASICS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import remarks
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS

# A QFX5240 shares 49% of its buffer (84,206 of 169,207 KB; Juniper's TechPost "QFX5K-Series Switches Packet Buffer
# Architecture").
SHARED_BYTES = ASICS["tomahawk5"].buffer_bytes * 49 // 100


def request(text: str) -> dict[str, Any]:
    settings = {"system": "junos", "asic": "tomahawk5", "queue_buffer_bytes": 10_000_000}
    ports = {"et-0/0/0": {"speed_gbit_s": 400, "cable_m": 5}}
    given = {"policy": {}, "hosts": None, "asics": None, "running": {"leaf1": text}}
    return {"switches": {"leaf1": {**settings, "ports": ports}}, **given}


def parts(ingress: tuple[int, int], egress: int) -> str:
    """Return the lines of a buffer with these percents: lossless and headroom at ingress, lossless at egress."""
    percents = {
        "ingress": {"lossless": ingress[0], "lossless-headroom": ingress[1], "lossy": 100 - sum(ingress)},
        "egress": {"lossless": egress, "lossy": 100 - egress},
    }
    return "".join(
        f"set class-of-service shared-buffer {side} buffer-partition {name} percent {percent}\n"
        for side, sizes in percents.items()
        for name, percent in sizes.items()
    )


def large(text: str, queue_buffer_bytes: int = 10_000_000) -> Any:
    """Return the plan of a switch with 64 ports of 800 Gbit/s, which has the configuration ``text``."""
    asked = request(f"set system host-name leaf1\n{text}")
    ports = {f"et-0/0/{number}": {"speed_gbit_s": 800, "cable_m": 3} for number in range(64)}
    asked["switches"]["leaf1"] = {"system": "junos", "asic": "tomahawk5", "ports": ports}
    asked["switches"]["leaf1"]["queue_buffer_bytes"] = queue_buffer_bytes
    return planned_as_read(asked)["leaf1"]


@pytest.mark.parametrize(
    ("ingress", "egress", "lossless"), [((66, 24), 66, 66), ((80, 10), 80, 80), ((80, 10), 50, 50)]
)
@pytest.mark.parametrize("queue_buffer_bytes", [2_500_000, 5_000_000, 10_000_000])
def test_published_partitions_are_planned_and_never_mark_an_empty_queue(ingress, egress, lossless, queue_buffer_bytes):
    planned = large(parts(ingress, egress), queue_buffer_bytes)
    ecn = planned.ports["et-0/0/0"].queues[3].ecn
    pool = Fraction(SHARED_BYTES * lossless, 100)
    pauses_at = thresholds.pfc_queue_bytes(pool, 64, 3, 0)
    assert ecn.minimum_bytes >= queue_buffer_bytes // 100
    assert thresholds.marked_percent(ecn, pauses_at) >= 20
    text = SYSTEMS["junos"].render(planned)
    assert "fill-level 0" not in text
    running = f"set system host-name leaf1\n{parts(ingress, egress)}"
    assert "shared-buffer" not in SYSTEMS["junos"].remediation(running, planned)


def test_pauses_are_planned_for_the_switchs_own_alpha():
    prefix = "set class-of-service shared-buffer ingress buffer-partition lossless dynamic-threshold"
    pool = Fraction(SHARED_BYTES * 66, 100)
    maxima = []
    for threshold in (6, 7, 8, 10):
        planned = large(f"{parts((66, 24), 66)}{prefix} {threshold}\n")
        ecn = planned.ports["et-0/0/0"].queues[3].ecn
        assert thresholds.marked_percent(ecn, thresholds.pfc_queue_bytes(pool, 64, 3, threshold - 7)) >= 20
        maxima.append(ecn.maximum_bytes)
    assert maxima == sorted(set(maxima))


SHOWN = """# shared-buffer

Ingress:
  Total Buffer     :  160000 KB
  Dedicated Buffer :  40000.00 KB
  Shared Buffer    :  120000.00 KB
    Lossless                   :  {lossless} KB
    Lossless Headroom          :  12000 KB
    Lossy                      :  72000 KB
    Lossless dynamic threshold :  8

  Lossless Headroom Utilization:
  Node Device         Total          Used                  Free
  0                   12000 KB       0 KB                  12000 KB

Egress:
  Total Buffer     :  160000 KB
  Shared Buffer    :  118000 KB
    Lossless                 :  {egress} KB
    Lossy dynamic threshold  :  7
"""


@pytest.mark.parametrize(("lossless", "egress", "percent"), [(36_000, 35_400, 30), ("36000.00", 29_500, 25)])
def test_a_switch_is_planned_with_the_buffer_that_it_shows(lossless, egress, percent):
    shown = SHOWN.format(lossless=lossless, egress=egress)
    planned = large(f"{parts((66, 24), 66)}{shown}", 5_000_000)
    pool = Fraction(1024 * 118_000 * percent, 100)
    ecn = planned.ports["et-0/0/0"].queues[3].ecn
    pauses_at = thresholds.pfc_queue_bytes(pool, 64, 3, 1)
    assert planned.shares.default_of == ""
    assert (planned.shares.lossless_percent, planned.shares.headroom_percent) == (percent, 10)
    assert thresholds.marked_percent(ecn, pauses_at) >= 20 > thresholds.marked_percent(ecn, pauses_at / 2)
    assert SYSTEMS["junos"].remediation(f"set system host-name leaf1\n{shown}", planned)


def test_no_lossless_class_fits_into_a_buffer_that_is_shown_without_a_part_for_it():
    with refuses("leaf1: class-of-service shared-buffer", "lossless"):
        large(SHOWN.format(lossless=0, egress=35_400))


@pytest.mark.parametrize("shown", ["error: command is not valid\n", SHOWN.partition("Egress")[0], 2 * SHOWN])
def test_a_buffer_that_is_not_shown_whole_is_the_default_one(shown):
    text = f"# shared-buffer\n{shown}".format(lossless=60_000, egress=59_000)
    assert large(text, 5_000_000).shares.default_of == "QFX5240"


@pytest.mark.parametrize(
    ("asic", "shares"),
    [
        ("tomahawk2", (9, 45, 64)),
        ("tomahawk3", (20, 10, 67)),
        ("tomahawk4", (20, 10, 64)),
        ("tomahawk5", (20, 10, 49)),
        ("trident3", (9, 45, 84)),
        ("trident4", (20, 10, 82)),
    ],
)
def test_the_default_parts_are_those_of_the_model_and_named(asic, shares):
    asked = request("set system host-name leaf1\n")
    ports = {f"et-0/0/{number}": {"speed_gbit_s": 100, "cable_m": 3} for number in range(8)}
    asked["switches"]["leaf1"] = {"system": "junos", "asic": asic, "ports": ports, "queue_buffer_bytes": 1_000_000}
    wanted = planned_as_read(asked)
    planned = wanted["leaf1"].shares
    assert (planned.lossless_percent, planned.headroom_percent, planned.divided_percent) == shares
    (remark,) = (line for line in remarks(wanted) if "leaf1" in line and planned.default_of in line)
    assert all(f"{percent}%" in remark for percent in shares)


def test_every_asic_of_junos_has_default_parts():
    assert set(SYSTEMS["junos"].asics) == set(SYSTEMS["junos"].default_shares)


def test_default_partitions_of_a_large_switch_are_refused_because_an_empty_queue_would_be_marked():
    with refuses("switch leaf1: port et-0/0/0", "partition", "roce_switch_queue_buffer_bytes"):
        large("")


def test_partitions_without_lossless_buffer_are_refused():
    with refuses("leaf1: class-of-service shared-buffer", "lossless"):
        large(parts((0, 10), 66))


def test_headroom_of_partitions_is_checked_by_the_least_or_the_users_number():
    asked = request(f"set system host-name leaf1\n{parts((90, 1), 90)}")
    with refuses("switch leaf1", "1%"):
        asked["switches"]["leaf1"]["headroom"] = [{"speed_gbit_s": 400, "cable_m": 5, "headroom_bytes": 900_000}]
        asked["switches"]["leaf1"]["ports"] = {
            f"et-0/0/{number}": {"speed_gbit_s": 400, "cable_m": 5} for number in range(2)
        }
        planned_as_read(asked)
    del asked["switches"]["leaf1"]["headroom"]
    planned = planned_as_read(asked)["leaf1"].shares
    assert (planned.lossless_percent, planned.headroom_percent) == (90, 1)
