# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sections and rows of the page of a proof."""

from __future__ import annotations

from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import (
    Claim,
    ProofError,
    compare,
    not_applicable,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof

HELD = compare("guest_xml", "the GPU is on guest NUMA node 1", 1, 1, "guest numa_node")
FAILED = compare("hypervisor", "8 VFs", 8, 7, "hv01 sriov_numvfs")
APART = not_applicable("nic_firmware", "ATS in firmware", True, "mstconfig query", "no such NIC here")


def proof(*claims: Claim) -> Proof:
    return Proof("vm1", "GPU VM vm1 on hv01", "hv01", list(claims))


def test_a_picture_is_in_its_own_section_without_blanks_around_it():
    text = page(proof(HELD), " <svg>a</svg>\n")
    assert '<section class="picture">\n<h2>PCIe and NUMA</h2>\n<figure class="scroll"><svg>a</svg></figure>' in text
    assert "picture" not in page(proof(HELD)).split("<main>")[1]
    assert text.index('class="picture"') < text.index('id="layer-guest_xml"')
    with raises(ProofError, "picture", "<svg>"):
        page(proof(HELD), "<svg>")


def test_a_section_of_a_layer_has_only_the_claims_that_apply():
    text = page(proof(HELD, APART))
    assert (
        '<section id="layer-guest_xml"><h2>Guest XML <span class="tally"><b class="held">1</b> held</span></h2>' in text
    )
    assert 'id="layer-nic_firmware"' not in text
    assert 'id="not-applicable"' not in page(proof(HELD))
    assert page(proof(HELD, FAILED, APART)).count(f'<td class="claim">{FAILED.claim}</td>') == 2


def test_a_row_of_a_claim_is_complete():
    row = (
        '<tr class="held"><td class="mark"><span title="holds" aria-label="holds">&#10003;</span></td>'
        '<td class="claim">the GPU is on guest NUMA node 1</td><td class="value">1</td><td class="value">1</td>'
        '<td class="source">guest numa_node</td></tr>'
    )
    assert row in page(proof(HELD))
    failed = compare("bios", "a", {}, [], "s", "r")
    row = (
        '<tr class="failed"><td class="mark"><span title="fails" aria-label="fails">&#10007;</span></td>'
        '<td class="claim">a<p class="reason">r</p></td><td class="value">none</td><td class="value">none</td>'
        '<td class="source">s</td></tr>'
    )
    assert row in page(proof(failed))
