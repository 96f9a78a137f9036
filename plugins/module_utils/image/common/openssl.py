# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Verify signatures with openssl, whose keys and signatures are given in memory."""

from __future__ import annotations

import subprocess

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import fd_path, unnamed_files
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import require, search_path


def has_signed(public_key: bytes, data: bytes, signature: bytes) -> bool:
    """Return whether the owner of the public key (DER) has signed the data, by SHA-256 and RSA (PKCS #1 v1.5) or ECDSA.

    A signature by ECDSA is in DER.
    """
    require("openssl")
    with unnamed_files(public_key, signature) as files:
        key, signed = map(fd_path, files)
        argv = ["openssl", "dgst", "-sha256", "-keyform", "DER", "-verify", key, "-signature", signed]
        environment = {"PATH": search_path(), "LC_ALL": "C.UTF-8"}
        process = subprocess.run(argv, input=data, check=False, capture_output=True, env=environment, pass_fds=files)
    return process.returncode == 0
