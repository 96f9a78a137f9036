# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decide whether to encrypt secrets to a TPM that a node shows: the operator approves it, or its maker certifies it.

Anyone who answers as a new node can show their own TPM, so a TPM is not trusted only because a node has shown it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import DIGEST
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identity

NO_CERTIFICATE = (
    "the TPM has no certificate for it: it was not checked that it is a key of a TPM, and of this machine's TPM"
)
IS_OF_EK = "the TPM's certificate is for it; who signed the certificate was not checked"


@dataclass(frozen=True)
class Approval:
    """The decision about a key, its fingerprint (the sha256 of its public part, hexadecimal), and the reason."""

    approved: bool
    fingerprint: str
    why: str


def checks(certificate: bytes | None) -> str:
    """Return the checks of a key that ``decide`` has not refused, and those that were not made."""
    return NO_CERTIFICATE if certificate is None else IS_OF_EK


def decide(
    node: str,
    ek: bytes,
    certificate: bytes | None,
    enrolled: bytes | None,
    approved: Sequence[str],
    verify: Callable[[bytes], str | None] | None,
) -> Approval:
    """Return the approval of the endorsement key ``ek`` that ``node`` has shown.

    ``enrolled`` is the key that the inventory has for it, and ``approved`` are fingerprints. ``verify`` returns the
    problem of a certificate, or None; it is itself None if no authority is given. A certificate does
    not replace an enrolled key, since another machine's TPM has a certificate too. Raises ImageError for a certificate
    of another key, for a key that differs from the enrolled one and is not approved, and for an invalid fingerprint.
    """
    subject = f"node {node}"
    for fingerprint in approved:
        if not isinstance(fingerprint, str) or not DIGEST.fullmatch(fingerprint):
            raise ImageError(
                f"node_identity_approved has {fingerprint!r}, which is not a fingerprint",
                "give the 64 hexadecimal digits that the enrolment shows",
                subject=subject,
            )
    fingerprint = identity.ek_digest(ek)
    if certificate is not None and not identity.certificate_is_of(certificate, ek):
        raise ImageError(
            "the TPM's certificate is for another key", "do not enrol it before you know why", subject=subject
        )
    if fingerprint in approved:
        return Approval(True, fingerprint, "its fingerprint is in node_identity_approved")
    if enrolled is not None and enrolled != ek:
        raise ImageError(
            "the endorsement key of its TPM differs from node_identity_ek",
            "check whether the board was replaced or this is another machine; if the key is right, put its fingerprint "
            f"{fingerprint} into node_identity_approved, and its key into node_identity_ek",
            subject=subject,
        )
    if enrolled is not None:
        return Approval(True, fingerprint, "it is the enrolled key")
    unknown = "its fingerprint is not in node_identity_approved"
    if verify is None:
        return Approval(False, fingerprint, unknown)
    if certificate is None:
        return Approval(False, fingerprint, f"{unknown}, and it has no certificate")
    wrong = verify(certificate)
    if wrong:
        reason = f"{unknown}, and its certificate does not verify against node_identity_tpm_ca: {wrong}"
        return Approval(False, fingerprint, reason)
    return Approval(True, fingerprint, "its certificate verifies against node_identity_tpm_ca")


def decision(approval: Approval) -> str:
    """Return the approval as text for a terminal, with the remedy for a pending key."""
    if approval.approved:
        return f"approved, {approval.why}"
    return (
        f"pending, {approval.why}. No secret is encrypted to it. Compare the fingerprint with one that you know from "
        "elsewhere, such as the console of the node or a list of its manufacturer, then add it to "
        "node_identity_approved"
    )
