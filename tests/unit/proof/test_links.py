# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Links become claims: of a fault at both ends, of a device without one, and never held where nothing was read."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.links import UNREAD, FaultyLink, link_claims

LINKS = ["a e1 - s p1", "b e1 - s p2", "c e1 - s p3", "d e1 - t p1"]


def claims(faults=(), unread=()):
    made = link_claims(LINKS, faults, unread, "LLDP")
    for claim in made:
        claim.check()
    return {claim.claim: (claim.layer == UNREAD, claim.seen, claim.holds) for claim in made}


def test_devices_whose_links_are_all_right_hold():
    assert claims() == {f"{device}: its links": (False, "as planned", True) for device in "asbcdt"}


def test_a_fault_is_about_its_link_and_both_devices_claim_nothing_else():
    found = claims([FaultyLink("a e1 - s p1", "missing", "connect it")])
    assert found.pop("a e1 - s p1: the link") == (False, "missing", False)
    assert set(found) == {f"{device}: its links" for device in "bcdt"}


def test_a_device_with_a_link_that_was_not_read_is_not_known():
    found = claims([FaultyLink("a e1 - s p1", "missing", "connect it")], unread=["b e1 - s p2"])
    assert {name: claim for name, claim in found.items() if claim[0]} == {
        "b: its links": (True, None, False),
        "s: its links": (True, None, False),
    }
