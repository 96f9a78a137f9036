# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Policies of a TPM: a node's secrets open only after a boot of an image for which the site has signed a policy.

The site's Secure Boot key, a file or a command, signs for each image the policies that its boots fulfil
(TPM2_PolicyPCR), and secrets are bound to that key (TPM2_PolicyAuthorize): so a new image needs no new enrolment, and
no new bundle. PCR 4 covers the whole program, so PCR 11, which systemd extends while the node runs, is not part of it.
systemd's own signed policies (.pcrsig) are of PCR 11 only, which other software that runs first can imitate.

Source: TCG, "TPM 2.0 Library", part 3 "TPM2_PolicyPCR", "TPM2_PolicyAuthorize", "TPM2_PolicyCommandCode", part 2
"TPMT_PUBLIC".
"""

from __future__ import annotations

import base64
import hashlib
import struct
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.openssl import has_signed
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import search_path
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.measurements import FIRMWARE, IMAGE, SETTINGS
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki.measured import (
    BEGIN,
    TRIES,
    Prediction,
    extended,
)

# The node's script (roles/node_identity) has the same.
PCRS = (FIRMWARE, IMAGE, SETTINGS)
# How often the firmware may have tried to boot something else, which has not started.
MOST_TRIES = 4
POLICY_PCR, POLICY_AUTHORIZE, POLICY_COMMAND, ACTIVATE = (
    struct.pack(">I", code) for code in (0x17F, 0x16A, 0x16C, 0x147)
)
# RFC 8017: a public key of 2048 bits, the size that all TPMs know, in DER: before its modulus, and its exponent.
KEY_BEGIN = bytes.fromhex("30820122300d06092a864886f70d01010105000382010f003082010a0282010100")
KEY_END = bytes.fromhex("0203010001")
MODULUS_BYTES = 256


def with_policies(
    prediction: Prediction, sign: Callable[[bytes], bytes], certificate: Path, signed: Mapping[str, str]
) -> Prediction:
    """Return the prediction with the policies of the image's boots, signed by the certificate's key. Raises ImageError.

    ``sign`` returns the signature of a policy, and ``signed`` are those of an earlier build, as in a prediction: one
    that holds is not made again.
    """
    key, signatures = public_key(certificate), {}
    for policy in _policies(prediction):
        old_signature = _decoded(signed.get(policy.hex(), ""))
        valid_signature = (
            old_signature if has_signed(key, policy, old_signature) else signature(policy, sign, key, certificate)
        )
        signatures[policy.hex()] = base64.b64encode(valid_signature).decode()
    return replace(prediction, policy_key=base64.b64encode(key).decode(), policies=signatures)


def signature(policy: bytes, sign: Callable[[bytes], bytes], key: bytes, certificate: Path) -> bytes:
    """Return the signature of a policy, verified with the certificate's public key. Raises ImageError."""
    signed = sign(policy)
    if not has_signed(key, policy, signed):
        reason = "what it gives for a policy is no signature (RSASSA-PKCS1-v1_5, SHA-256) by the certificate's key"
        raise ImageError(
            reason, f"check that {certificate} belongs to the key", subject="node_image_secure_boot, signer of policies"
        )
    return signed


def sign_by_key(policy: bytes, key: Path) -> bytes:
    """Return the signature of a policy by a key file, which only openssl opens. Raises ImageError."""
    return _openssl("dgst", "-sha256", "-sign", f"{key}", stdin=policy)


def public_key(certificate: Path) -> bytes:
    """Return the public key of a certificate, in DER. Raises ImageError unless it is one of RSA 2048."""
    key = rsa_2048_key(certificate)
    if not key:
        reason = "secrets cannot be bound to its key, which is not RSA of 2048 bits"
        raise ImageError(reason, "sign images with such a key", subject=f"certificate {certificate}")
    return key


def rsa_2048_key(certificate: Path) -> bytes | None:
    """Return the public key of a certificate, in DER, if all TPMs know its kind; else None. Raises ImageError."""
    text = _openssl("x509", "-in", f"{certificate}", "-pubkey", "-noout").decode()
    key = base64.b64decode("".join(line for line in text.splitlines() if not line.startswith("-----")))
    return key if key.startswith(KEY_BEGIN) and key[len(KEY_BEGIN) + MODULUS_BYTES :] == KEY_END else None


def secrets_policy(key: bytes) -> bytes:
    """Return the policy of what only opens under a policy that this public key (DER) has signed."""
    # The key as tpm2_loadexternal loads it: RSA, SHA-256; userWithAuth, decrypt, sign; no policy, cipher and scheme.
    public = struct.pack(">HHIHHHHIH", 0x0001, 0x000B, 0x00060040, 0, 0x0010, 0x0010, 2048, 65537, MODULUS_BYTES)
    public += key[len(KEY_BEGIN) : len(KEY_BEGIN) + MODULUS_BYTES]
    name = b"\x00\x0b" + hashlib.sha256(public).digest()
    # The second extension is of the policy's reference, which is empty.
    authorized = _extended(_extended(bytes(32), POLICY_AUTHORIZE + name), b"")
    return _extended(authorized, POLICY_COMMAND + ACTIVATE)


def _policies(prediction: Prediction) -> list[bytes]:
    """Return the policies that a boot of the image fulfils; the firmware may start the kernel in its program or not."""
    calling, returning, separator = TRIES
    policies = []
    for tries in range(MOST_TRIES):
        for programs in (prediction.programs, prediction.programs[:1]):
            log = [calling, separator, *(returning, calling) * tries, *programs]
            first = {pcr: values[0] for pcr, values in prediction.pcrs.items()}
            policies.append(boot_policy({**first, FIRMWARE: extended(BEGIN, *log)}))
    return policies


def boot_policy(pcrs: Mapping[str, str]) -> bytes:
    """Return the policy that a boot fulfils in which the TPM has these values, by number."""
    selection = struct.pack(">IHB", 1, 0x000B, 3) + sum(1 << int(pcr) for pcr in PCRS).to_bytes(3, "little")
    digest = hashlib.sha256(bytes.fromhex("".join(pcrs[pcr] for pcr in PCRS))).digest()
    return _extended(bytes(32), POLICY_PCR + selection + digest)


def _extended(policy: bytes, data: bytes) -> bytes:
    return hashlib.sha256(policy + data).digest()


def _decoded(signature: str) -> bytes:
    """Return the bytes of a signature in base64; b"" if it is none."""
    try:
        return base64.b64decode(signature, validate=True)
    except ValueError:
        return b""


def _openssl(*arguments: str, stdin: bytes = b"") -> bytes:
    environment = {"PATH": search_path(), "LC_ALL": "C.UTF-8"}
    run = subprocess.run(["openssl", *arguments], input=stdin, check=False, capture_output=True, env=environment)
    if run.returncode:
        output = " ".join(run.stderr.decode("utf-8", "replace").split())
        raise ImageError(
            output or "it failed", "give files in PEM, a key without password", subject=f"openssl {arguments[0]}"
        )
    return run.stdout
