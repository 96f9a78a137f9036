#!/usr/bin/python
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Read a node's endorsement key, and whether the node has its secrets."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_identity_info
short_description: Read the endorsement key of a node's TPM, and whether the node decrypted its secrets
version_added: 0.1.0
description:
  - Reads, on a node, the public part of its TPM's endorsement key (RSA 2048, the TCG's template L-1), which is the same
    at each boot, and compares it with the certificate that the manufacturer stored in the TPM.
  - The signature of the certificate is not checked, because that needs the certificates of the manufacturers. Without
    this check, an attacker between the controller and the node can supply another key during enrolment.
  - The unit of the role P(sailloft.fleet.node_identity#role) records in a file whether the secrets were decrypted.
requirements:
  - tpm2-tools on the node
extends_documentation_fragment: [sailloft.fleet.attributes.reads]
options:
  tcti:
    description: The interface to the TPM (TCTI), as for tpm2-tools.
    type: str
    default: device:/dev/tpmrm0
seealso:
  - module: sailloft.fleet.node_identity
"""

EXAMPLES = r"""
- name: Read the node's endorsement key
  sailloft.fleet.node_identity_info:
  register: identity

- name: Check that the node has its secrets
  ansible.builtin.assert:
    that: identity.opened
"""

RETURN = r"""
ek:
  description: The public part of the endorsement key, base64 of a TPM2B_PUBLIC, for the variable C(node_identity_ek).
  returned: success
  type: str
ek_digest:
  description: Its sha256, hexadecimal, as bundles name it.
  returned: success
  type: str
certificate:
  description: The endorsement key's certificate in the TPM, base64 of DER; null if there is none.
  returned: success
  type: str
certificate_is_of_ek:
  description: Whether the certificate is of this key; null without a certificate.
  returned: success
  type: bool
checked:
  description: The checks of the key, and those that were not made.
  returned: success
  type: str
opened:
  description: Whether the node decrypted its secrets at this boot; null if it has not tried.
  returned: success
  type: bool
digest:
  description: The digest of the bundle that it decrypted, as M(sailloft.fleet.node_identity) returns it; else null.
  returned: success
  type: str
reason:
  description: Why it did not decrypt its secrets; else null.
  returned: success
  type: str
"""

import base64
import json
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identity

# The index of the manufacturer's certificate for an endorsement key of template L-1 (TCG, "EK Credential Profile",
# 2.2.1.4).
CERTIFICATE_INDEX = "0x01c00002"
REPORT = "/run/sailloft/identity.json"
NO_CERTIFICATE = (
    "the TPM has no certificate for it: it was not checked that it is a key of a TPM, and of this machine's TPM"
)
IS_OF_EK = "the TPM's certificate is for it; who signed the certificate was not checked"
IS_NOT_OF_EK = "the TPM's certificate is for another key"


def tool(module: AnsibleModule, environment: Mapping[str, str], folder: str, *argv: str) -> tuple[int, str]:
    """Run one of tpm2-tools and return its exit status and output."""
    path = module.get_bin_path(argv[0])
    if not path:
        raise ImageError("not found on this node", "install tpm2-tools", subject=f"tool {argv[0]}")
    status, output, err = module.run_command([path, *argv[1:]], environ_update=environment, cwd=folder)
    return status, " ".join(f"{output} {err}".split())


def read(module: AnsibleModule) -> tuple[bytes, bytes]:
    """Return the endorsement key's public part, and the certificate that the TPM stores (empty: none)."""
    environment = {"TPM2TOOLS_TCTI": module.params["tcti"]}
    with tempfile.TemporaryDirectory(prefix="sailloft-") as folder:
        status, output = tool(module, environment, folder, "tpm2_createek", "-G", "rsa", "-u", "ek.pub", "-c", "ek.ctx")
        if status:
            raise ImageError(
                output,
                "check that the machine has a TPM 2.0 and that it is switched on",
                subject=f"TPM {module.params['tcti']}",
            )
        # The kernel's resource manager removes objects from the TPM. Without it they remain, and a TPM has only three
        # slots.
        tool(module, environment, folder, "tpm2_flushcontext", "-t")
        with open(os.path.join(folder, "ek.pub"), "rb") as stream:
            ek = stream.read()
        status, output = tool(module, environment, folder, "tpm2_nvread", CERTIFICATE_INDEX, "-o", "certificate")
        if status:
            return ek, b""
        with open(os.path.join(folder, "certificate"), "rb") as stream:
            return ek, stream.read()


def read_report() -> dict[str, Any]:
    """Return the report of the node's unit: opened, digest, reason. Raises ImageError if it cannot be read."""
    try:
        with open(REPORT, encoding="ascii") as stream:
            report = json.load(stream)
        return {
            "opened": bool(report["opened"]),
            "digest": report["digest"] or None if report["opened"] else None,
            "reason": report["reason"] or None,
        }
    except FileNotFoundError:
        return {"opened": None, "digest": None, "reason": None}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ImageError(
            f"cannot be read, {error}", "systemctl restart sailloft-identity writes it again", subject=REPORT
        ) from error


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={"tcti": {"type": "str", "default": "device:/dev/tpmrm0"}}, supports_check_mode=True
    )

    def work() -> dict[str, Any]:
        data, stored = read(module)
        text = base64.b64encode(data).decode()
        ek = identity.read_ek(text, f"TPM {module.params['tcti']}")
        certificate = identity.certificate_of(stored)
        is_of_ek = None if certificate is None else identity.certificate_is_of(certificate, ek)
        return {
            "ek": text,
            "ek_digest": identity.ek_digest(ek),
            "certificate": None if certificate is None else base64.b64encode(certificate).decode(),
            "certificate_is_of_ek": is_of_ek,
            "checked": {None: NO_CERTIFICATE, True: IS_OF_EK, False: IS_NOT_OF_EK}[is_of_ek],
            **read_report(),
        }

    finish(module, work)


if __name__ == "__main__":
    main()
