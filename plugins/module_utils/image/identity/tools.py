# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The tools that make a bundle besides the signer: tpm2_makecredential and openssl.

Secrets are passed to them in pipes and in unnamed files in memory, never in arguments, which every user can see.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import (
    fd_content,
    fd_path,
    unnamed_files,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import search_path

PACKAGES = {"tpm2_makecredential": "tpm2-tools", "openssl": "openssl", "minisign": "minisign"}
KEY_BYTES = 32
# Counter mode adds no padding, and the signature authenticates the data. The key is random, so one round of derivation
# is enough. The node's script has the same options.
CIPHER = ("-aes-256-ctr", "-pbkdf2", "-iter", "1", "-md", "sha256")


def wrap(key: bytes, ek: bytes, name: str, subject: str) -> bytes:
    """Return a credential from which only the TPM with this endorsement key gets ``key``.

    That TPM must also have the key with this hexadecimal Name. Raises ImageError.
    """
    with unnamed_files(ek, b"") as (public, credential):
        # -T none: in software, without a TPM.
        argv = ["tpm2_makecredential", "-Q", "-T", "none", "-u", fd_path(public), "-n", name]
        argv += ["-s", "-", "-o", fd_path(credential)]
        _run(argv, subject, "check its endorsement key", key, [public, credential])
        return fd_content(credential)


def encrypt(data: bytes, key: bytes, subject: str) -> bytes:
    """Encrypt ``data`` with a key that was used for nothing else. Raises ImageError."""
    reading, writing = os.pipe()
    try:
        with open(writing, "wb") as stream:
            stream.write(key.hex().encode() + b"\n")
        argv = ["openssl", "enc", "-e", *CIPHER, "-pass", f"fd:{reading}"]
        return _run(argv, subject, "check openssl on this machine", data, pass_fds=(reading,))
    finally:
        os.close(reading)


def verify(certificate: bytes, authorities: Sequence[str]) -> str | None:
    """Return the problem of a DER certificate, or None: its chain ends at a root among the ``authorities``.

    The authorities are files of PEM certificates, roots and intermediates; the system's own are ignored. Raises
    ImageError for a file that cannot be read or has no certificate.
    """
    chain = b"".join(_pem(path) for path in authorities)
    require("openssl")
    with unnamed_files(chain, certificate, b"") as files:
        trusted, encoded, signed = map(fd_path, files)
        for argv in (
            ("openssl", "x509", "-inform", "DER", "-in", encoded, "-out", signed),
            # The system's certificate authorities are ignored: those of the web do not certify TPMs.
            ("openssl", "verify", "-no-CApath", "-no-CAstore", "-CAfile", trusted, signed),
        ):
            environment = {"PATH": search_path(), "LC_ALL": "C.UTF-8"}
            process = subprocess.run(argv, check=False, capture_output=True, env=environment, pass_fds=files)
            if process.returncode:
                lines = process.stderr.decode("utf-8", "replace").splitlines()
                return next((line for line in lines if line.startswith("error ")), " ".join(lines))
    return None


def _pem(path: str) -> bytes:
    subject = f"node_identity_tpm_ca {path}"
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ImageError(str(error.strerror), "give a file that exists", subject=subject) from error
    if b"-----BEGIN CERTIFICATE-----" not in data:
        raise ImageError("it has no certificate in PEM", "convert it to PEM", subject=subject)
    return data.rstrip(b"\n") + b"\n"


def require(tool: str) -> None:
    """Raise ImageError if this machine lacks one of the tools that make identities."""
    if not shutil.which(tool, path=search_path()):
        raise ImageError("not found on this machine", f"install {PACKAGES[tool]}", subject=f"tool {tool}")


def _run(
    argv: Sequence[str],
    subject: str,
    remedy: str,
    stdin: bytes = b"",
    pass_fds: Sequence[int] = (),
) -> bytes:
    require(argv[0])
    process = subprocess.run(
        argv,
        input=stdin,
        check=False,
        capture_output=True,
        env={"PATH": search_path(), "LC_ALL": "C.UTF-8"},
        pass_fds=pass_fds,
    )
    if process.returncode:
        output = " ".join((process.stdout + b" " + process.stderr).decode("utf-8", "replace").split())
        raise ImageError(f"{argv[0]} failed: {output or 'it gave no reason'}", remedy, subject=subject)
    return process.stdout
