# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether secrets may be sealed to a TPM that a node has shown: approved by the operator, or certified by its maker.

Whoever answers as a new node shows a TPM of their own, so what a node shows is taken for nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.image import identity
from ansible_collections.sailloft.fleet.plugins.module_utils.image.error import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.files import DIGEST


@dataclass(frozen=True)
class Approval:
    """Whether the key is approved, its fingerprint (the sha256 of its public part, hexadecimal), and why."""

    approved: bool
    fingerprint: str
    why: str


def decide(
    node: str,
    ek: bytes,
    certificate: bytes | None,
    enrolled: bytes | None,
    approved: Sequence[str],
    verify: Callable[[bytes], str] | None,
) -> Approval:
    """The approval of the endorsement key ``ek`` that ``node`` has shown.

    ``enrolled`` is the key that the inventory has for it, ``approved`` are fingerprints, and ``verify`` says what is
    wrong with a certificate, an empty text for nothing; None where no authority is given. A certificate replaces no
    enrolled key, since another machine's TPM has one too. Raises ImageError for a certificate of another key, a key
    that is neither the enrolled one nor approved, and what is no fingerprint.
    """
    subject = f"node {node}"
    for fingerprint in approved:
        if not isinstance(fingerprint, str) or not DIGEST.fullmatch(fingerprint):
            raise ImageError(
                subject,
                f"node_identity_approved has {fingerprint!r}, which is no fingerprint",
                "give the 64 hexadecimal digits that the enrolment shows",
            )
    fingerprint = identity.ek_digest(ek)
    if certificate is not None and not identity.certificate_is_of(certificate, ek):
        raise ImageError(subject, "the TPM's certificate is of another key", "do not enrol it before you know why")
    if fingerprint in approved:
        return Approval(True, fingerprint, "its fingerprint is in node_identity_approved")
    if enrolled is not None and enrolled != ek:
        raise ImageError(
            subject,
            "its TPM has another endorsement key than node_identity_ek",
            "see whether the board was changed or this is another machine; if it is right, put its fingerprint "
            f"{fingerprint} into node_identity_approved, and its key into node_identity_ek",
        )
    if enrolled is not None:
        return Approval(True, fingerprint, "it is the enrolled one")
    unknown = "its fingerprint is not in node_identity_approved"
    if verify is None:
        return Approval(False, fingerprint, unknown)
    if certificate is None:
        return Approval(False, fingerprint, f"{unknown}, and it has no certificate")
    wrong = verify(certificate)
    if wrong:
        why = f"{unknown}, and its certificate does not verify against node_identity_tpm_ca: {wrong}"
        return Approval(False, fingerprint, why)
    return Approval(True, fingerprint, "its certificate verifies against node_identity_tpm_ca")
