# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The whole plan."""

from __future__ import annotations

from pathlib import Path

import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.plan import plan

# Whole files: a change of an output shows as a diff of files. SAILLOFT_WRITE_SITES=1 writes them again.
FILES = Path(__file__).parent / "harbour"
PLAN = plan(sites.harbour(), sites.harbour())


def test_the_same_blueprint_gives_the_same_bytes():
    one, other = plan(sites.site(), sites.site()), plan(sites.site(), sites.site())
    assert one == other
    assert sorted(one["files"]) == [
        "boot_nodes.json",
        "cables.csv",
        "hosts",
        "materials.csv",
        "neighbours.json",
        "site.svg",
        "topology.conf",
    ]
    assert one["summary"] == [
        "test: 3 racks, 27 kW, 32 cables",
        "4 node: gpu[01-04]",
        "4 leaf: leaf[1-2]-[1-2]",
        "2 spine: spine[1-2]",
        "16 cables of fabric: dac, 2.5 to 3 m",
        "16 cables of uplink: mmf, 5 to 7 m",
    ]
    assert one["findings"] == one["difference"] == []
    spares = plan(sites.site(devices__node__spare_percent=50))["summary"]
    assert spares[2] == "2 of them are spares: gpu[02,04]"


def test_findings_are_plain_data():
    (finding,) = plan(sites.site(links__uplink__each=1))["findings"]
    assert finding["rule"] == "oversubscription"


@pytest.mark.parametrize("name", PLAN["files"])
def test_a_file_of_the_plan_equals_the_stored_file(name):
    assert PLAN["files"][name] == sites.stored(FILES / name, PLAN["files"][name])


def test_the_summary_and_the_findings_equal_the_stored_file():
    text = "".join(f"{line}\n" for line in [*PLAN["summary"], *PLAN["broken_rules"]])
    assert text == sites.stored(FILES / "summary.txt", text)
    assert PLAN["difference"] == []
