# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Claims of a proof by their words and results."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import Evidence


def failed(claims: list[Claim]) -> list[str]:
    return [claim.claim for claim in claims if claim.holds is False]


def found(claims: list[Claim], words: str) -> list[Claim]:
    some = [claim for claim in claims if words in claim.claim]
    assert some, f"no claim has {words!r}"
    return some


def function(topology: Host, address: str) -> Function:
    return topology.function(address)


def other_path(one: Evidence) -> None:
    """Move the VF of the second root complex below the first one's switch."""
    moved = one.guest.function("0000:64:00.0")
    moved.parent, moved.root_complex = "0000:22:01.0", "pci0000:20"
