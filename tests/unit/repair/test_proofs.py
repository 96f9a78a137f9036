# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A proof holds only if it can be read and holds."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.repair.proofs import proof_of


def proof(*holds):
    return Proof("a", "title", "a", [Claim("host", "subject", "1", "1", each, "made up") for each in holds]).to_json()


@pytest.mark.parametrize(
    ("text", "holds"),
    [(proof(True, True), True), (proof(True, False), False), (proof(), False), ("{", False)],
)
def test_a_proof(text, holds):
    assert proof_of("a.json", text, 7.0).holds is holds
