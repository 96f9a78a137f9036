# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Quotes: what a node's TPM signs about its PCRs, verified before the node's secrets are published.

The controller wraps a random nonce to the enrolled endorsement key (EK), bound to the Name of the attestation key (AK)
that the node has shown. Only a TPM that has both keys opens it, and signs the nonce together with its PCRs. The AK is a
primary key of the TPM's endorsement hierarchy: the same at each boot, never stored, and restricted, so that it signs
nothing that looks like a quote and was not made by the TPM itself.

Source: TCG, "TPM 2.0 Library", part 1 "Attestation", part 2 "TPMS_ATTEST", "TPMT_PUBLIC", "TPML_PCR_SELECTION".
"""

from __future__ import annotations

import base64
import hashlib
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.openssl import has_signed
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import tools
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity.identity import POINT_BYTES
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.measurements import PCRS
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign, statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import IMAGES, NODES, PREDICTION, Store
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import measured

# The beginning of a quote: TPM_GENERATED_VALUE, TPM_ST_ATTEST_QUOTE; after its nonce, clock and version, 25 bytes.
QUOTE_BEGIN, CLOCK_BYTES = bytes.fromhex("ff5443478018"), 25
VALUE_BYTES = 32
# RFC 5480: the beginning of the DER of a public key on NIST P-256, before the bytes of its point.
POINT_DER = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004")


@dataclass(frozen=True)
class Quote:
    """A quote with its signature (ECDSA, DER), the values of the PCRs in their order, and the firmware's log."""

    message: bytes
    signature: bytes
    values: bytes
    log: tuple[str, ...] | None

    @classmethod
    def of_result(cls, result: Mapping[str, Any], subject: str) -> Quote:
        """Build an instance from what node_identity_info returns as quote. Raises ImageError, about ``subject``."""
        try:
            parts = [base64.b64decode(result[name], validate=True) for name in ("message", "signature", "pcrs")]
        except (KeyError, TypeError, ValueError) as error:
            raise ImageError(
                "what it has given is no quote", "give what node_identity_info returns", subject=subject
            ) from error
        log = result.get("log")
        return cls(parts[0], parts[1], parts[2], None if log is None else tuple(map(str, log)))

    @property
    def seen(self) -> measured.Seen:
        """The PCRs by number, and the log."""
        values = [
            self.values[offset : offset + VALUE_BYTES].hex() for offset in range(0, len(self.values), VALUE_BYTES)
        ]
        return measured.Seen(dict(zip(PCRS, values)), self.log)


@dataclass(frozen=True)
class Ask:
    """A challenge for a node: ``credential`` is sent to it, and only its TPM finds ``nonce`` in it."""

    credential: bytes
    nonce: bytes


def challenge(ek: bytes, ak: bytes, subject: str) -> Ask:
    """Return a new challenge for the TPM with both keys. Raises ImageError."""
    nonce = os.urandom(tools.KEY_BYTES)
    return Ask(tools.wrap(nonce, ek, "000b" + hashlib.sha256(ak[2:]).hexdigest(), subject), nonce)


def expected(store: Store, node: str, public_key: str) -> measured.Prediction:
    """Return what a boot of the image measures that the signed statement names for the node. Raises ImageError."""
    subject, data = f"node {node}", store.contents(NODES, statement.STATEMENT)
    if data is None or not sign.verifies(*statement.split(data), sign.read_public_key(Path(public_key))):
        reason = f"{store.path} has no statement that the key {public_key} has signed"
        raise ImageError(reason, "let node_boot_signer and node_identity_publisher be one host", subject=subject)
    stated = [row.image for row in statement.load(data, subject).nodes.values() if row.name == node]
    if not stated:
        raise ImageError(
            "the signed statement does not name it", "run playbooks/node_scripts.yml for it", subject=subject
        )
    prediction = store.contents(IMAGES, stated[0], PREDICTION)
    if prediction is None:
        raise ImageError(f"{store.path} has no prediction of its image {stated[0]}", measured.AGAIN, subject=subject)
    return measured.load(prediction, stated[0])


def check(node: str, prediction: measured.Prediction, ak: bytes, nonce: bytes, quote: Quote) -> None:
    """Raise ImageError unless the TPM with this AK has answered this challenge, and has measured the prediction."""
    subject = f"node {node}"
    again = "run playbooks/node_identities.yml again; if it stays so, do not trust the node before you know why"
    # The point is x and y, each with its size in 2 bytes.
    point = ak[-2 * POINT_BYTES - 2 : -POINT_BYTES - 2] + ak[-POINT_BYTES:]
    if not has_signed(POINT_DER + point, quote.message, quote.signature):
        raise ImageError("its quote is not signed by the attestation key that it has shown", again, subject=subject)
    fields = _quoted(quote.message)
    if fields is None:
        raise ImageError(f"what its TPM has signed is no quote of the PCRs {', '.join(PCRS)}", again, subject=subject)
    if fields[0] != nonce:
        raise ImageError("its quote answers another challenge, as an old quote would", again, subject=subject)
    if fields[1] != hashlib.sha256(quote.values).digest():
        raise ImageError("its quote is of other PCRs than it has shown", again, subject=subject)
    wrong = [verdict for verdict in measured.verdicts(prediction, quote.seen) if verdict.problem]
    if wrong:
        reasons = "; ".join(
            f"PCR {verdict.pcr} ({verdict.says}): {verdict.problem}, "
            f"expected {' or '.join(verdict.wanted)}, seen {verdict.seen}"
            for verdict in wrong
        )
        remedy = f"boot the image {prediction.image} (playbooks/reimage.yml -l {node}); if it runs it, "
        raise ImageError(
            f"its TPM has not measured the image {prediction.image}: {reasons}", remedy + TRUST, subject=subject
        )


TRUST = "something else has started before it: do not trust the node before you know what"


def _quoted(message: bytes) -> tuple[bytes, bytes] | None:
    """Return nonce and digest of a quote of our PCRs in the bank of sha256; None for anything else."""
    try:
        if not message.startswith(QUOTE_BEGIN):
            return None
        _signer, offset = _sized(message, len(QUOTE_BEGIN))
        nonce, offset = _sized(message, offset)
        offset += CLOCK_BYTES
        bits = sum(1 << int(pcr) for pcr in PCRS)
        selection = struct.pack(">IHB", 1, 0x000B, 3) + bits.to_bytes(3, "little")
        if message[offset : offset + len(selection)] != selection:
            return None
        digest, offset = _sized(message, offset + len(selection))
        return (nonce, digest) if offset == len(message) else None
    except struct.error:
        return None


def _sized(data: bytes, offset: int) -> tuple[bytes, int]:
    """Return the content of a TPM2B at the offset, and the offset behind it."""
    (size,) = struct.unpack_from(">H", data, offset)
    return data[offset + 2 : offset + 2 + size], offset + 2 + size
