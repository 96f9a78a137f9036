# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The tools that make a bundle: tpm2_makecredential, openssl and minisign.

What is secret reaches them by pipes and by files of a folder in memory, never by arguments, which every user sees.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.image import identity
from ansible_collections.sailloft.fleet.plugins.module_utils.image.error import ImageError

PACKAGES = {"tpm2_makecredential": "tpm2-tools", "openssl": "openssl", "minisign": "minisign"}
KEY_BYTES = 32
# Counter mode adds no padding, and is authenticated by the signature. The key is random, so that one round makes of
# it what is needed. The node's script has the same words.
CIPHER = ("-aes-256-ctr", "-pbkdf2", "-iter", "1", "-md", "sha256")
MEMORY = "/dev/shm"


def wrap(key: bytes, ek: bytes, subject: str) -> bytes:
    """A credential that gives ``key`` to the TPM with this endorsement key, and to no other. Raises ImageError."""
    with _folder() as folder:
        public, credential = os.path.join(folder, "ek.pub"), os.path.join(folder, "credential")
        with open(public, "wb") as stream:
            stream.write(ek)
        name = identity.activated_name()
        # -T none: in software, no TPM is asked.
        argv = ["tpm2_makecredential", "-Q", "-T", "none", "-u", public, "-n", name, "-s", "-", "-o", credential]
        _run(argv, subject, "look at its endorsement key", key)
        with open(credential, "rb") as stream:
            return stream.read()


def encrypt(data: bytes, key: bytes, subject: str) -> bytes:
    """``data`` encrypted with a key that was used for nothing else. Raises ImageError."""
    reading, writing = os.pipe()
    try:
        with open(writing, "wb") as stream:
            stream.write(key.hex().encode() + b"\n")
        argv = ["openssl", "enc", "-e", *CIPHER, "-pass", f"fd:{reading}"]
        return _run(argv, subject, "look at openssl on this machine", data, pass_fds=(reading,))
    finally:
        os.close(reading)


@dataclass(frozen=True)
class Signer:
    """minisign with a pair of keys, files of this machine. ``password`` is the secret key's, None without."""

    secret_key: str
    public_key: str
    password: str | None = field(repr=False)

    def sign(self, messages: Sequence[bytes]) -> list[bytes]:
        """The signature of each, by one call: the same message gives the same bytes. Raises ImageError.

        The first is held against the public key.
        """
        subject = f"signing key {self.secret_key}"
        for path in (self.secret_key, self.public_key):
            if not os.path.isfile(path):
                raise ImageError(f"key {path}", "no such file", "make a pair with minisign -G, or correct the path")
        with _folder() as folder:
            names = [str(at) for at in range(len(messages))]
            for name, message in zip(names, messages):
                with open(os.path.join(folder, name), "wb") as stream:
                    stream.write(message)
            comments = ["-t", identity.TRUSTED_COMMENT, "-c", identity.UNTRUSTED_COMMENT]
            argv = ["minisign", "-S", "-s", os.path.abspath(self.secret_key), *comments, "-m", *names]
            password = b"" if self.password is None else self.password.encode() + b"\n"
            _run(argv, subject, "look at the file and at its password", password, cwd=folder)
            argv = ["minisign", "-V", "-q", "-p", os.path.abspath(self.public_key), "-m", names[0]]
            _run(argv, subject, f"is {self.public_key} of another pair? Nodes would refuse the bundles", cwd=folder)
            signatures = []
            for name in names:
                with open(os.path.join(folder, f"{name}.minisig"), "rb") as stream:
                    signatures.append(stream.read())
        return signatures


def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder in memory that only this user can enter; it goes with the ``with``."""
    return tempfile.TemporaryDirectory(prefix="sailloft-", dir=MEMORY if os.path.isdir(MEMORY) else None)


def _run(
    argv: Sequence[str],
    subject: str,
    mend: str,
    given: bytes = b"",
    cwd: str | None = None,
    pass_fds: Sequence[int] = (),
) -> bytes:
    path = os.environ.get("PATH", os.defpath) + ":/usr/local/bin:/usr/bin:/bin"
    if not shutil.which(argv[0], path=path):
        raise ImageError(f"tool {argv[0]}", "not found on this machine", f"install {PACKAGES[argv[0]]}")
    done = subprocess.run(
        argv,
        input=given,
        check=False,
        capture_output=True,
        env={"PATH": path, "LC_ALL": "C.UTF-8"},
        cwd=cwd,
        pass_fds=pass_fds,
    )
    if done.returncode:
        said = " ".join((done.stdout + b" " + done.stderr).decode("utf-8", "replace").replace("Password:", "").split())
        raise ImageError(subject, f"{argv[0]} failed: {said or 'it gave no reason'}", mend)
    return done.stdout
