# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whole files: a change of an output shows as a diff of files. SAILLOFT_WRITE_SITES=1 writes them again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.difference import difference
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.inventory import inventory
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.names import hosts_file
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.picture import picture
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.plan import plan

FILES = Path(__file__).parent / "harbour"
PLAN = plan(sites.harbour(), sites.harbour())


@pytest.mark.parametrize("name", PLAN["files"])
def test_a_file_of_the_plan_equals_the_stored_file(name):
    assert PLAN["files"][name] == sites.stored(FILES / name, PLAN["files"][name])


def test_the_summary_and_the_findings_equal_the_stored_file():
    text = "".join(f"{line}\n" for line in [*PLAN["summary"], *PLAN["broken_rules"]])
    assert text == sites.stored(FILES / "summary.txt", text)
    assert PLAN["difference"] == []


def test_the_inventory_equals_the_stored_file():
    found = inventory(sites.harbour())
    rows = [
        f"{json.dumps(name)}: {json.dumps(each)}" for part in ("groups", "hosts") for name, each in found[part].items()
    ]
    text = "{\n" + ",\n".join(rows) + "\n}\n"
    assert text == sites.stored(FILES / "inventory.json", text)


def many_racks(racks):
    """Return the small site with so many racks, one of them for the network, and one server missing in the last."""
    return sites.site(
        blocks__rack__count=racks - 1,
        devices__node__total=2 * racks - 3,
        models__spine__ports__down__names="Ethernet[0:99]",
    )


def test_the_picture_of_many_racks_equals_the_stored_file():
    text = picture(many_racks(13))
    assert text == sites.stored(FILES / "many_racks.svg", text)


@pytest.mark.parametrize(
    ("racks", "names"),
    [
        (12, ["network-1", *(f"rack-{at}" for at in range(1, 12))]),
        (13, ["network-1", "11 \u00d7 rack-[1-11]", "rack-12"]),
    ],
)
def test_racks_with_equal_contents_are_drawn_once_from_13_racks_on(racks, names):
    bold = [line for line in picture(many_racks(racks)).splitlines() if 'font-weight="bold"' in line]
    assert [line.partition("<title>")[2].partition("<")[0] for line in bold] == [*names, "fabric"]


def test_a_hosts_file_without_a_domain_has_one_name_in_each_line():
    text = hosts_file(sites.site(domain=None))
    assert text.splitlines()[:2] == ["10.0.0.11 gpu01", "10.1.0.1 gpu01-rail-0"]


def test_every_kind_of_difference_is_listed():
    before = sites.harbour(
        ("total: 7", "total: 6"),
        ("watts: 50.5", "watts: 40"),
        ("unit: 12, count: 2", "unit: 13, count: 2"),
        ("backbone: 5", "backbone: 7"),
        (
            "ports: lan, to: lan_switch, to_ports: lan, medium: aoc",
            "ports: lan, to: lan_switch, to_ports: lan, medium: dac",
        ),
        ("  partners: {from", "  mates: {from"),
    )
    text = "".join(f"{line}\n" for line in difference(before, sites.harbour()))
    text += "and back:\n" + "".join(f"{line}\n" for line in difference(sites.harbour(), before))
    assert text == sites.stored(FILES / "difference.txt", text)
