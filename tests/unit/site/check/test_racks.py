# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Units, power and lengths."""

from __future__ import annotations

import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.check.racks import check_lengths, check_racks

RACK = "blocks__rack__"
SERVER = "models__server__"


def test_the_small_site_has_no_findings():
    assert list(check_racks(sites.site())) == []
    assert list(check_lengths(sites.site())) == []


@pytest.mark.parametrize(
    ("changes", "rule", "message"),
    [
        ({"devices__leaf__unit": 42}, "rack units", "leaf number 2 needs unit 43, but the rack has 42"),
        ({"devices__leaf__unit": 16}, "rack units", "unit 16 is assigned to two devices, one of them a leaf"),
        ({SERVER + "watts": 8000}, "rack power", "17000 W exceed the capacity of 2 supplies of 8000 W"),
        (
            {SERVER + "capped_watts": 4000},
            "rack power with a failed supply",
            "9000 W after the power brake (13000 W before) exceed the remaining 8000 W",
        ),
        (
            {RACK + "brake_s": 6},
            "rack power with a failed supply",
            "13000 W overload the remaining 8000 W for 6 s until the servers brake, but breakers hold for 5 s",
        ),
    ],
)
def test_unit_and_power_faults_of_racks_are_found(changes, rule, message):
    (finding,) = check_racks(sites.site(**changes))
    assert (finding.rule, finding.offender, finding.message) == (rule, "rack-[1-2]", message)


def test_power_without_limits_or_a_second_supply_has_no_findings():
    assert list(check_racks(sites.site(**{RACK + "supplies": None}))) == []
    assert list(check_racks(sites.site(**{RACK + "supplies": 1, RACK + "supply_watts": 13000}))) == []


def test_vela_racks_survive_a_failed_supply_only_with_their_power_brake():
    site = sites.example("vela")
    assert list(check_racks(site)) == []
    text = (sites.PROJECT / "inventories/vela/blueprint.yml").read_text()
    (finding,) = check_racks(sites.from_text(text.replace("capped_watts: 3200", "capped_watts: 6000")))
    assert finding.offender == "rack-[01-36]"
    assert finding.message.startswith("36750 W after the power brake")


def test_too_long_cables_are_found():
    (finding,) = check_lengths(sites.site(links__uplink__medium="dac"))
    assert finding.rule == "cable length"
    assert finding.offender == "leaf2-1 Ethernet16 - spine1 Ethernet16"
    assert (
        finding.message
        == "its route is 5.16 m long, but dac supports 100 Gbit/s over at most 5 m; 8 cables of uplink are too long"
    )
