# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""All checks together."""

from __future__ import annotations

import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.check.finding import BrokenRule
from ansible_collections.sailloft.fleet.plugins.module_utils.site.check.site import check


@pytest.mark.parametrize("name", ["vela", "blue_vela", "small"])
def test_the_examples_have_no_findings(name):
    assert check(sites.example(name)) == []


def test_every_rule_is_checked():
    site = sites.site(
        devices__leaf__unit=16, links__uplink__medium="dac", links__uplink__each=1, checks__fabric__rail_aligned=True
    )
    assert [finding.rule for finding in check(site)] == [
        "rack units",
        "cable length",
        "oversubscription",
        "rail alignment",
        "rail alignment",
    ]


def test_a_finding_names_the_line_offender_and_rule():
    text = sites.TEXT.replace("each: 2", "each: 1")
    (finding,) = check(sites.from_text(text, "site.yml"))
    assert str(finding).startswith("site.yml:41: leaf[1-2]-[1-2]: 400 Gbit/s below and 200 above")
    assert str(BrokenRule("r", "o", "m")) == "o: m (rule: r)"
