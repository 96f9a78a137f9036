# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bundles, keys and HTTP for nodes' identities, for tests/identity; keys with a password."""

from __future__ import annotations

import base64
import getpass
import hashlib
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from boot_logs import event, first_event

from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import measured

SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----\nnobody-else-may-read-this-host-key\n-----END\n"
TOKEN = "K10-a-join-token-of-bm01::server:5ecret"
# The least work of scrypt that libsodium accepts (pickparams in crypto_pwhash_scryptsalsa208sha256.c), as minisign
# stores it in the key, and the parameters that follow from it.
OPERATIONS, MEMORY_BYTES = 32768, 16 << 20
SCRYPT = {"n": 1024, "r": 8, "p": 1}


def make_guarded_pair(public: Path, secret: Path, password: str) -> None:
    """Write a key pair whose secret key has a password, and is opened at once: minisign's own take 3 s and 1 GiB.

    The secret key is minisign's SeckeyStruct: the names of signature, key derivation and checksum (2 bytes each), salt
    (32), operations and memory (8 each), and then, encrypted: number (8), key (64) and checksum (32).
    """
    subprocess.run(["minisign", "-G", "-W", "-p", public, "-s", secret], check=True, capture_output=True)
    comment, encoded = secret.read_text().splitlines()
    plain, salt = base64.b64decode(encoded), os.urandom(32)
    key = plain[54:126] + hashlib.blake2b(plain[:2] + plain[54:126], digest_size=32).digest()
    stream = hashlib.scrypt(password.encode(), salt=salt, dklen=len(key), **SCRYPT)
    work = struct.pack("<QQ", OPERATIONS, MEMORY_BYTES)
    hidden = bytes(left ^ right for left, right in zip(key, stream))
    stored = plain[:2] + b"Sc" + plain[4:6] + salt + work + hidden
    secret.write_text(f"{comment}\n{base64.b64encode(stored).decode()}\n")


def make_keys(folder: Path, name: str) -> Signer:
    secret, public = folder / f"{name}.key", folder / f"{name}.pub"
    subprocess.run(["minisign", "-G", "-W", "-p", public, "-s", secret], check=True, capture_output=True)
    return Signer(str(secret), str(public), None)


def files(**contents: str) -> list[dict[str, str]]:
    """Return files under /etc/site that belong to the current user."""
    me = getpass.getuser()
    row = {"mode": "0600", "owner": me, "group": str(os.getgid())}
    return [{"path": f"/etc/site/{name}", "content": content, **row} for name, content in contents.items()]


# Text for the commands of ``record_arguments``: it kills the script whose process id is in the file "script" before the
# command that changes files whose number is in the file "kill", counted from the command that opens the secrets.
KILL = """
case "{name} $*" in
"openssl enc"*) : >{folder}/counting ;;
"cp "* | "ln "* | "mv "* | "rm "* | "mkdir "*)
    if [ -e {folder}/counting ] && [ -e {folder}/kill ]; then
        left=$(/bin/cat {folder}/kill)
        echo $((left - 1)) >{folder}/kill
        if [ "$left" -eq 1 ]; then kill -9 "$(/bin/cat {folder}/script)"; exit 1; fi
    fi ;;
esac
"""


def record_arguments(folder: Path, log: Path, commands: Iterable[str]) -> Path:
    """Make a directory for PATH whose commands log their arguments to ``log`` and then run the real commands."""
    folder.mkdir()
    for name in commands:
        real = shutil.which(name)
        assert real, f"{name} is not installed"
        kill = KILL.format(name=name, folder=folder.parent)
        (folder / name).write_text(f'#!/bin/sh\nprintf "%s\\n" "{name} $*" >>{log}\n{kill}exec {real} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


# The tasks that run the role's publication.
PUBLISH = [{"ansible.builtin.include_role": {"name": "sailloft.fleet.node_identity", "tasks_from": "publish"}}]


def publisher(site, tmp_path, signer):
    """Return the variables of localhost, which publishes and is the boot server."""
    return {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "boot_server_store_dir": str(tmp_path / "served"),
        "node_image_store_dir": site.store.path,
        "node_image_signing_key": signer.secret_key,
        "node_image_signing_password": signer.password or "",
        "node_image_signing_command": list(signer.command),
        "node_image_public_key": signer.public_key,
    }


ACTION = 0x80000007  # EV_EFI_ACTION


def power_on(tpm, image: str, program: bytes) -> Path:
    """Restart the TPM's machine, which measures a boot of the image's program; return the firmware's log."""
    tpm.stop()
    tpm.start()
    found = measured.predict(image, program)
    log = [measured.TRIES[0], measured.TRIES[2], *found.programs]
    events = [*(("4", digest) for digest in log), ("8", image)]
    events += [("11", digest) for digest in measured.measurements_of(program)]
    tpm.run("tpm2_pcrextend", *(f"{pcr}:sha256={digest}" for pcr, digest in events))
    place = tpm.folder / "log"
    place.write_bytes(first_event() + b"".join(event(4, ACTION, b"", digest) for digest in log))
    return place
