# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node's secrets as a bundle that anyone may fetch and only the node's TPM 2.0 can open.

A bundle is ASCII text of ten lines: six lines of data, and the four lines of minisign's signature of them.

    sailloft-identity/2, or /3 if it is bound to what the node has booted
    node: bm01
    ek: sha256 of the endorsement key's public part, hexadecimal
    digest: the result of ``digest`` for the secrets, hexadecimal
    credential: base64 of a key of 32 bytes, wrapped by TPM2_MakeCredential to the endorsement key
    secrets: base64 of the payload, encrypted with that key

The payload has one line per file: mode, owner, group, path, and base64 of the content, "-" for an empty one.

Sources: TCG, "TPM 2.0 Library", part 1 "Credential Protection" and "Names", part 2 "TPMT_PUBLIC"; TCG, "EK Credential
Profile for TPM Family 2.0", template L-1 (RSA 2048).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import posixpath
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import DIGEST, canonical_json
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import NODE
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Comments

FORMAT, BOUND_FORMAT = "sailloft-identity/2", "sailloft-identity/3"
# The trusted comment is signed with a bundle, so that no signature of other data by the same key is valid for a bundle.
COMMENTS = Comments("sailloft node identity", "signature of a sailloft node identity")
SIGNATURE_LINES = 4
# The key of ``digest`` is derived from the signature of this message, which is never published.
DIGEST_KEY_MESSAGE = b"sailloft node identity: key of digests, a signature of this is a secret\n"
# The node fetches no more than this (see the role's script).
LARGEST_BUNDLE_BYTES = 1 << 20
ACCOUNT = re.compile(r"[a-z_][a-z0-9_-]{0,31}|0|[1-9][0-9]{0,9}")
MODE = re.compile(r"0?[0-7]{3}")
# The key with which a node signs, and what others may believe that it signed: copies of its health (health/copied.py).
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
SIGNED_NAMESPACES = "sailloft-health"
KEY_BEGIN, KEY_MAGIC = "-----BEGIN OPENSSH PRIVATE KEY-----", b"openssh-key-v1\x00"
# The kernel's own file systems.
NO_FILES = ("/dev", "/proc", "/sys")

# Template L-1: TPM_ALG_RSA, name by SHA-256, fixedTPM fixedParent sensitiveDataOrigin adminWithPolicy restricted
# decrypt, PolicyA (PolicySecret of the endorsement hierarchy), AES-128-CFB, no scheme, 2048 bits, exponent 65537.
EK_POLICY = bytes.fromhex("837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa")
EK_UNIQUE_BYTES = 256
EK_TEMPLATE = (
    struct.pack(">HHIH", 0x0001, 0x000B, 0x000300B2, len(EK_POLICY))
    + EK_POLICY
    + struct.pack(">HHHHHIH", 0x0006, 128, 0x0043, 0x0010, 2048, 0, EK_UNIQUE_BYTES)
)
RSA_EXPONENT = 65537

# The words by which tpm2_createprimary makes the AK, and the beginning of its public part, before the point's x and y:
# ECC, SHA-256, these attributes, no policy and cipher, ECDSA with SHA-256, NIST P-256, no KDF.
AK_TYPE = "ecc256:ecdsa-sha256:null"
AK_ATTRIBUTES = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign|noda"
AK_TEMPLATE = struct.pack(">HHIH6H", 0x0023, 0x000B, 0x00050472, 0, 0x0010, 0x0018, 0x000B, 0x0003, 0x0010, 32)
POINT_BYTES = 32

# A credential is bound to a second key besides the endorsement key. This cannot be the endorsement key itself, because
# the policy of that key does not allow it the role ADMIN. The second key is public: a P-256 key whose private part is
# sha256 of this text, so that only a node's endorsement key must be enrolled. Only the endorsement key decides who can
# open a credential.
ACTIVATED_KEY_TEXT = b"sailloft node identity: this key keeps no secret"
ACTIVATED_KEY_X = bytes.fromhex("2ccd0fa1428cb1e04dbec1a130a144be4a4c45ac1b714d9fd90647abfa5f708b")
ACTIVATED_KEY_Y = bytes.fromhex("28cba12357d5ca0756b5fb4257582bdb280bee83bb93e4e5f83f3a3e4e977a31")


@dataclass(frozen=True)
class Secret:
    """One file of a node. ``content`` is the secret; no representation of this object shows it."""

    path: str
    content: str
    mode: str
    owner: str
    group: str

    def __repr__(self) -> str:
        return f"Secret({self.path!r}, mode={self.mode!r}, owner={self.owner!r}, group={self.group!r})"


@dataclass(frozen=True)
class Bundle:
    """A bundle that is not opened. ``ek`` and ``digest`` are hexadecimal; ``bound``: to a policy of what was booted."""

    node: str
    ek: str
    digest: str
    credential: bytes
    secrets: bytes
    bound: bool = False


def read_ek(text: Any, subject: str) -> bytes:
    """Return the endorsement key's public part (a TPM2B_PUBLIC) from its base64.

    Raises ImageError, about ``subject``, also for a key that is not made by the template, since a key with other
    attributes might leave its TPM. Only the key's certificate shows that it is in a TPM at all.
    """
    remedy = "give what node_identity_info returns as ek"
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (AttributeError, binascii.Error, ValueError) as error:
        raise ImageError("the endorsement key is not base64", remedy, subject=subject) from error
    size = len(EK_TEMPLATE) + EK_UNIQUE_BYTES
    if len(data) != 2 + size or data[: 2 + len(EK_TEMPLATE)] != struct.pack(">H", size) + EK_TEMPLATE:
        raise ImageError("not an RSA 2048 endorsement key of the TCG's template L-1", remedy, subject=subject)
    return data


def read_ak(text: str, subject: str) -> bytes:
    """Return an AK's public part (a TPM2B_PUBLIC) from its base64. Raises ImageError for a key of another kind."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    offset = 2 + len(AK_TEMPLATE) + POINT_BYTES
    begin = struct.pack(">H", offset + POINT_BYTES) + AK_TEMPLATE
    if (
        not data.startswith(begin)
        or data[offset : offset + 2] != struct.pack(">H", 32)
        or len(data) != offset + 2 + POINT_BYTES
    ):
        raise ImageError(
            "not an attestation key of a TPM", "give what node_identity_info returns as ak", subject=subject
        )
    return data


def ek_digest(ek: bytes) -> str:
    """Return the hexadecimal sha256 that identifies an endorsement key in bundles."""
    return hashlib.sha256(ek).hexdigest()


def activated_name(policy: bytes = b"") -> str:
    """Return the hexadecimal Name of the key that credentials are bound to: algorithm and sha256 of its public area.

    With a ``policy`` (image/uki/policy.py), the TPM opens the credential only if it is fulfilled.
    """
    # ECC, SHA-256; userWithAuth, sign, and noDA. Without noDA, each power cut after a use of the key would count as a
    # wrong guess, and after a few of them the TPM would refuse to open anything for a while (TPM 2.0 library, part 1,
    # "Dictionary Attack Protection").
    attributes = 0x000404C0 if policy else 0x00040440  # adminWithPolicy
    public = struct.pack(">HHIH", 0x0023, 0x000B, attributes, len(policy)) + policy
    public += struct.pack(">HHHH", 0x0010, 0x0010, 0x0003, 0x0010)  # no cipher, no scheme, NIST P-256, no KDF
    for part in (ACTIVATED_KEY_X, ACTIVATED_KEY_Y):
        public += struct.pack(">H", len(part)) + part
    return "000b" + hashlib.sha256(public).hexdigest()


def certificate_of(stored: bytes) -> bytes | None:
    """Return the X.509 certificate, DER, at the start of a TPM's stored certificate data; None if there is none."""
    try:
        _tag, start, end = _der(stored, 0)
    except (IndexError, ValueError):
        return None
    return stored[:end] if stored[0] == 0x30 and start < end <= len(stored) else None


def certificate_is_of(certificate: bytes, ek: bytes) -> bool:
    """Return whether a DER certificate is of this endorsement key. The certificate's signer is not checked."""
    modulus = ek[-EK_UNIQUE_BYTES:]
    # RFC 8017 A.1.1: a SEQUENCE of two INTEGERs, here a zero byte with the modulus of 256 bytes, and 3 bytes.
    numbers = b"\x02\x82\x01\x01\x00" + modulus + b"\x02\x03" + RSA_EXPONENT.to_bytes(3, "big")
    try:
        return _subject_public_key(certificate) == b"\x00\x30\x82" + struct.pack(">H", len(numbers)) + numbers
    except (IndexError, ValueError):
        return False


def _subject_public_key(certificate: bytes) -> bytes:
    """Return the content of subjectPublicKey, a BIT STRING (RFC 5280 4.1). The algorithm may be RSA or RSAES-OAEP."""
    _tag, offset, _end = _der(certificate, 0)
    _tag, offset, _end = _der(certificate, offset)
    if certificate[offset] == 0xA0:  # version
        offset = _der(certificate, offset)[2]
    for _field in ("serialNumber", "signature", "issuer", "validity", "subject"):
        offset = _der(certificate, offset)[2]
    _tag, offset, _end = _der(certificate, offset)
    tag, start, end = _der(certificate, _der(certificate, offset)[2])
    if tag != 0x03:
        raise ValueError("no BIT STRING")
    return certificate[start:end]


def _der(data: bytes, offset: int) -> tuple[int, int, int]:
    """Return tag, start and end of the content of the DER element at ``offset``. Raises IndexError, ValueError."""
    tag, length = data[offset], data[offset + 1]
    start = offset + 2
    if length & 0x80:
        count = length & 0x7F
        if not 1 <= count <= 4:
            raise ValueError("not DER")
        length = int.from_bytes(data[start : start + count], "big")
        start += count
    return tag, start, start + length


def read_secrets(files: Sequence[Mapping[str, Any]], subject: str) -> tuple[Secret, ...]:
    """Return a node's files from dicts {path, content, mode, owner, group}, sorted by path.

    Raises ImageError, without the contents.
    """
    secrets: dict[str, Secret] = {}
    for file in files:
        path, mode, content = file["path"], file["mode"], file["content"]
        good = path.startswith("/") and path == posixpath.normpath(path) and not path.startswith("//") and path != "/"
        if not good or not re.fullmatch(r"[!-~]+", path):
            raise ImageError(
                f"{path!r} is not an absolute path",
                "write it like /etc/ssh/ssh_host_ed25519_key, without spaces",
                subject=subject,
            )
        if any(path == folder or path.startswith(f"{folder}/") for folder in NO_FILES):
            raise ImageError(f"{path} is in a file system of the kernel", "use another path", subject=subject)
        if path in secrets:
            raise ImageError(f"{path} is given twice", "give it once", subject=subject)
        if not MODE.fullmatch(mode):
            raise ImageError(
                f"mode {mode!r} of {path} is not three octal digits",
                'write it like "0600", with quotes',
                subject=subject,
            )
        for setting in ("owner", "group"):
            if not ACCOUNT.fullmatch(file[setting]):
                raise ImageError(
                    f"{setting} {file[setting]!r} of {path} is not a valid name", "write it like root", subject=subject
                )
        if not isinstance(content, str) or re.search("[\ud800-\udfff]", content):
            raise ImageError(
                f"the content of {path} is not UTF-8 text", "encode it, for example as base64", subject=subject
            )
        secrets[path] = Secret(path, content, mode.zfill(4), file["owner"], file["group"])
    for path in secrets:
        parent = posixpath.dirname(path)
        while parent != "/":
            if parent in secrets:
                raise ImageError(
                    f"{parent} is both a file and a parent directory of {path}", "remove one of them", subject=subject
                )
            parent = posixpath.dirname(parent)
    return tuple(secrets[path] for path in sorted(secrets))


def signer(node: str, secrets: Sequence[Secret]) -> bytes | None:
    """Return the line by which others verify what the node signs with its SSH host key; None without such a key.

    It has the form of ssh-keygen(1), ALLOWED SIGNERS. OpenSSH's file of a private key has the public key in clear
    (PROTOCOL.key): magic, cipher, key derivation and its options, the number of keys, the public key; each text with
    its length.
    """
    content = next((secret.content for secret in secrets if secret.path == HOST_KEY), "")
    body = content.partition(KEY_BEGIN)[2].partition("-----")[0]
    try:
        data = base64.b64decode("".join(body.split()), validate=True)
        offset = len(KEY_MAGIC)
        for _text in ("cipher", "derivation", "options"):
            offset = _counted(data, offset)[1]
        public = _counted(data, offset + 4)[0]
        kind = _counted(public, 0)[0].decode("ascii")
    except (ValueError, struct.error):
        return None
    if not data.startswith(KEY_MAGIC) or not re.fullmatch("[a-z0-9-]+", kind):
        return None
    return f'{node} namespaces="{SIGNED_NAMESPACES}" {kind} {base64.b64encode(public).decode()}\n'.encode()


def _counted(data: bytes, offset: int) -> tuple[bytes, int]:
    """Return the text at ``offset``, which begins with its length, and its end. Raises ValueError, struct.error."""
    (length,) = struct.unpack_from(">I", data, offset)
    end = offset + 4 + length
    if end > len(data):
        raise ValueError("cut off")
    return data[offset + 4 : end], end


def payload(secrets: Sequence[Secret]) -> bytes:
    """Return the text to be encrypted: one line per file, in their order."""
    lines = []
    for secret in secrets:
        content = base64.b64encode(secret.content.encode()).decode() or "-"
        lines.append(f"{secret.mode} {secret.owner} {secret.group} {secret.path} {content}\n")
    return "".join(lines).encode("ascii")


def digest_key(signature: bytes) -> bytes:
    """Return the key of ``digest``, 32 bytes, from minisign's signature of DIGEST_KEY_MESSAGE.

    An Ed25519 signature is the same each time (RFC 8032 5.1.6), and only the owner of the signing key can make it, so
    there is no other secret to keep.
    """
    return hashlib.sha256(b"sailloft node identity: key of digests\n" + signature).digest()


def digest(key: bytes, node: str, ek: bytes, secrets: Sequence[Secret], policy: bytes = b"") -> str:
    """Return the HMAC-SHA256 of all that a bundle depends on.

    A run compares it to find out whether a bundle is the requested one, without opening the bundle. Without ``key`` it
    reveals nothing, not even about a secret that can be guessed or that two nodes share.
    """
    wanted = {"format": FORMAT, "node": node, "ek": ek_digest(ek), "payload": payload(secrets).decode("ascii")}
    if policy:
        wanted.update(format=BOUND_FORMAT, policy=policy.hex())
    return hmac.new(key, canonical_json(wanted), hashlib.sha256).hexdigest()


def render(bundle: Bundle) -> bytes:
    """Return the lines that are signed."""
    return (
        f"{BOUND_FORMAT if bundle.bound else FORMAT}\nnode: {bundle.node}\nek: {bundle.ek}\ndigest: {bundle.digest}\n"
        f"credential: {base64.b64encode(bundle.credential).decode()}\n"
        f"secrets: {base64.b64encode(bundle.secrets).decode()}\n"
    ).encode("ascii")


def parse(data: bytes, subject: str) -> tuple[Bundle, bytes, bytes]:
    """Return a bundle, its signed lines, and their signature. Raises ImageError, about ``subject``, for other data."""
    broken = ImageError(f"not a bundle of {FORMAT}", "publish it again", subject=subject)
    lines = data.split(b"\n")
    names = [name for name in Bundle.__dataclass_fields__ if name != "bound"]
    header_lines = len(("format", *names))
    formats = (FORMAT.encode(), BOUND_FORMAT.encode())
    if len(lines) != header_lines + SIGNATURE_LINES + 1 or lines[-1] or lines[0] not in formats:
        raise broken
    fields = {}
    for line, name in zip(lines[1:header_lines], names):
        label, _colon, value = line.decode("ascii", "replace").partition(": ")
        if label != name:
            raise broken
        fields[name] = value
    if (
        not NODE.fullmatch(fields["node"])
        or not DIGEST.fullmatch(fields["ek"])
        or not DIGEST.fullmatch(fields["digest"])
    ):
        raise broken
    try:
        credential, secrets = (base64.b64decode(fields[name], validate=True) for name in ("credential", "secrets"))
    except (binascii.Error, ValueError) as error:
        raise broken from error
    signed = b"\n".join(lines[:header_lines]) + b"\n"
    bound = lines[0] == BOUND_FORMAT.encode()
    bundle = Bundle(fields["node"], fields["ek"], fields["digest"], credential, secrets, bound)
    return bundle, signed, data[len(signed) :]


def stated(bundle: Bundle) -> dict[str, str]:
    """Return the fields of a bundle that may be shown."""
    return {"node": bundle.node, "ek": bundle.ek, "digest": bundle.digest}
