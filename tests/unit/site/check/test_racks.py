# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Units, power and lengths."""

from __future__ import annotations

import pytest
import sites
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.site.check.racks import check_lengths, check_racks

SERVER = "models__server__"
RACK = "blocks__rack__"
UNITS, POWER, SUPPLY = "rack units", "rack power", "rack power with a failed supply"


def test_the_small_site_has_no_findings():
    assert list(check_racks(sites.site())) == []
    assert list(check_lengths(sites.site())) == []


# A rack has 42 units, 2 supplies of 8000 W, 2 servers of 6000 W (3000 W after the power brake) in the units 1 to 16,
# and 2 leaves of 500 W in the units 40 and 41: 13000 W, and 7000 W after the brake. Servers brake in 2 s, and breakers
# hold for 5 s.
@pytest.mark.parametrize(
    ("changes", "rule", "message"),
    [
        ({"devices__leaf__unit": 42}, UNITS, "leaf number 2 needs unit 43, but the rack has 42"),
        ({"devices__leaf__unit": 41}, None, None),
        ({RACK + "units": 41}, None, None),
        ({RACK + "units": 40}, UNITS, "leaf number 2 needs unit 41, but the rack has 40"),
        ({"devices__leaf__unit": 17}, None, None),
        ({"devices__leaf__unit": 16}, UNITS, "unit 16 is assigned to two devices, one of them a leaf"),
        ({SERVER + "watts": 7500}, None, None),
        ({SERVER + "watts": 7501}, POWER, "16002 W exceed the capacity of 2 supplies of 8000 W"),
        ({SERVER + "capped_watts": 3500}, None, None),
        (
            {SERVER + "capped_watts": 3501},
            SUPPLY,
            "8002 W after the power brake (13000 W before) exceed the remaining 8000 W",
        ),
        ({RACK + "brake_s": 4.9}, None, None),
        (
            {RACK + "brake_s": 5},
            SUPPLY,
            "13000 W overload the remaining 8000 W for 5 s until the servers brake, but breakers hold for 5 s",
        ),
        (
            {RACK + "brake_s": 6.5},
            SUPPLY,
            "13000 W overload the remaining 8000 W for 6.5 s until the servers brake, but breakers hold for 5 s",
        ),
        # The remaining supplies carry the whole power, with no brake.
        ({RACK + "brake_s": 6, SERVER + "watts": 3500, SERVER + "capped_watts": 3000}, None, None),
        (
            {RACK + "brake_s": 6, SERVER + "watts": 3501, SERVER + "capped_watts": 3000},
            SUPPLY,
            "8002 W overload the remaining 8000 W for 6 s until the servers brake, but breakers hold for 5 s",
        ),
        ({RACK + "supplies": 3, RACK + "supply_watts": 4500, RACK + "brake_s": 1}, None, None),
        (
            {RACK + "supplies": 3, RACK + "supply_watts": 4400, SERVER + "capped_watts": 4000},
            SUPPLY,
            "9000 W after the power brake (13000 W before) exceed the remaining 8800 W",
        ),
        # A rack with one supply does not survive its loss, and one with no supplies has no limits.
        ({RACK + "supplies": 1, RACK + "supply_watts": 13000}, None, None),
        (
            {RACK + "supplies": 1, RACK + "supply_watts": 12999.5},
            POWER,
            "13000 W exceed the capacity of 1 supplies of 12999.5 W",
        ),
        ({RACK + "supplies": None}, None, None),
    ],
)
def test_unit_and_power_faults_of_racks_are_found(changes, rule, message):
    found = [(finding.rule, finding.offender, finding.message) for finding in check_racks(sites.site(**changes))]
    assert found == ([(rule, "rack-[1-2]", message)] if rule else [])


def test_every_device_that_has_no_place_is_found():
    # A device is reported once, for its first unit that is taken or outside the rack.
    found = check_racks(sites.site(devices__leaf__unit=1, devices__leaf__count=3, links=None, checks=None))
    assert [str(finding) for finding in found] == [
        f"rack-[1-2]: unit {unit} is assigned to two devices, one of them a leaf (rule: rack units)"
        for unit in (1, 2, 3)
    ]
    found = check_racks(sites.site(devices__node__unit=36, devices__leaf__unit=1))
    assert [finding.message for finding in found] == [
        "node number 1 needs unit 43, but the rack has 42",
        "node number 2 needs unit 44, but the rack has 42",
    ]


def test_racks_with_the_same_fault_are_one_finding_that_names_the_line_of_their_block():
    text = sites.TEXT.replace("unit: 40", "unit: 42").replace(
        "count: 2, rack: network", "count: 2, unit: 42, rack: network"
    )
    assert [str(finding) for finding in check_racks(sites.from_text(text, "site.yml"))] == [
        "site.yml:5: network-1: spine number 2 needs unit 43, but the rack has 42 (rule: rack units)",
        "site.yml:6: rack-[1-2]: leaf number 2 needs unit 43, but the rack has 42 (rule: rack units)",
    ]


def test_vela_racks_survive_a_failed_supply_only_with_their_power_brake():
    site = sites.example("vela")
    assert list(check_racks(site)) == []
    text = (sites.PROJECT / "inventories/vela/blueprint.yml").read_text()
    (finding,) = check_racks(sites.from_text(text.replace("capped_watts: 3200", "capped_watts: 6000")))
    assert finding.offender == "rack-[01-36]"
    assert finding.message.startswith("36750 W after the power brake")


def test_too_long_cables_are_found():
    site = sites.from_text(sites.TEXT.replace("medium: mmf", "medium: dac"), "site.yml")
    assert [str(finding) for finding in check_lengths(site)] == [
        "site.yml:39: leaf2-1 Ethernet16 - spine1 Ethernet16: its route is 5.16 m long, but dac supports 100 Gbit/s "
        "over at most 5 m; 8 cables of uplink are too long (rule: cable length)"
    ]


@pytest.mark.parametrize(
    ("most", "count"),
    # The routes of the uplinks are 4.47, 4.51, 4.56 and 5.07 to 5.16 m long.
    [(5.16, 0), (5.15, 2), (4.56, 8), (4.55, 10), (4, 16)],
)
def test_a_cable_may_be_as_long_as_its_medium_allows(most, count):
    site = sites.site(media={"own": {"most_m": most}}, links__uplink__medium="own")
    found = list(check_lengths(site))
    assert len(found) == bool(count)
    for finding in found:
        assert finding.offender == "leaf2-1 Ethernet16 - spine1 Ethernet16"
        assert finding.message == Mentions("5.16 m", "own", "100", most, count, "uplink")


def test_cables_of_each_rule_are_one_finding():
    site = sites.site(media={"own": {"most_m": 1}}, links__uplink__medium="own", links__fabric__medium="own")
    assert [(finding.offender, finding.message.partition("; ")[2]) for finding in check_lengths(site)] == [
        ("gpu01 mlx5_1 - leaf1-2 Ethernet0", "16 cables of fabric are too long"),
        ("leaf2-1 Ethernet16 - spine1 Ethernet16", "16 cables of uplink are too long"),
    ]
