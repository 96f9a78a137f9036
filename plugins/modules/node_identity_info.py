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
  challenge:
    description: >-
      A challenge of M(sailloft.fleet.node_identity_quote), base64. With it, the TPM quotes its registers. It fails if
      the challenge was made for another TPM.
    type: str
  firmware_log:
    description: The file with the log of what the firmware has measured.
    type: path
    default: /sys/kernel/security/tpm0/binary_bios_measurements
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
ak:
  description: >-
    The public part of the key with which the TPM signs quotes, base64 of a TPM2B_PUBLIC. It is the same at each boot.
  returned: success
  type: str
quote:
  description: The quote, its signature, the registers and the firmware's log of PCR 4; null without O(challenge).
  returned: success
  type: dict
certificate:
  description: The endorsement key's certificate in the TPM, base64 of DER; null if there is none.
  returned: success
  type: str
certificate_is_of_ek:
  description: Whether the certificate is of this key; null without a certificate.
  returned: success
  type: bool
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
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identity
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.measurements import LOG, PCRS, read_log

# The index of the manufacturer's certificate for an endorsement key of template L-1 (TCG, "EK Credential Profile",
# 2.2.1.4).
CERTIFICATE_INDEX = "0x01c00002"
MAKE_OBJECTS = ("tpm2_createek", "tpm2_createprimary", "tpm2_readpublic", "tpm2_activatecredential", "tpm2_quote")
REPORT = "/run/sailloft/identity.json"


def text_of(data: bytes) -> str:
    """Return the data in base64."""
    return base64.b64encode(data).decode()


class TpmTools:
    """The tools of tpm2-tools, run in a directory for their files; TPM is the node's."""

    def __init__(self, module: AnsibleModule, folder: str) -> None:
        self.module, self.folder = module, folder

    def status(self, *argv: str) -> tuple[int, str]:
        """Run a tool and return its exit status and output."""
        path = self.module.get_bin_path(argv[0])
        if not path:
            raise ImageError("not found on this node", "install tpm2-tools", subject=f"tool {argv[0]}")
        environment = {"TPM2TOOLS_TCTI": self.module.params["tcti"]}
        status, output, err = self.module.run_command([path, *argv[1:]], environ_update=environment, cwd=self.folder)
        # The kernel's resource manager removes objects from the TPM. Without it they remain, and a TPM has only three
        # slots.
        flush = self.module.get_bin_path("tpm2_flushcontext")
        if flush and argv[0] in MAKE_OBJECTS:
            self.module.run_command([flush, "-t"], environ_update=environment)
        return status, " ".join(f"{output} {err}".split())

    def run(self, remedy: str, *argv: str) -> None:
        """Run a tool. Raises ImageError with the remedy if it fails."""
        status, output = self.status(*argv)
        if status:
            raise ImageError(output or f"{argv[0]} failed", remedy, subject=f"TPM {self.module.params['tcti']}")

    def content(self, name: str) -> bytes:
        """Return the content of a file in the directory."""
        with open(os.path.join(self.folder, name), "rb") as stream:
            return stream.read()


def read_keys(tpm: TpmTools) -> tuple[bytes, bytes, bytes]:
    """Return the public parts of endorsement and attestation key, and the TPM's certificate (empty: none)."""
    remedy = "check that the machine has a TPM 2.0 and that it is switched on"
    tpm.run(remedy, "tpm2_createek", "-G", "rsa", "-u", "ek.pub", "-c", "ek.ctx")
    make = ("tpm2_createprimary", "-Q", "-C", "e", "-G", identity.AK_TYPE, "-a", identity.AK_ATTRIBUTES, "-c", "ak.ctx")
    tpm.run("check that its endorsement hierarchy has no password", *make)
    tpm.run(remedy, "tpm2_readpublic", "-Q", "-c", "ak.ctx", "-o", "ak.pub")
    status, _output = tpm.status("tpm2_nvread", CERTIFICATE_INDEX, "-o", "certificate")
    return tpm.content("ek.pub"), tpm.content("ak.pub"), b"" if status else tpm.content("certificate")


def read_quote(tpm: TpmTools, challenge: str) -> dict[str, Any]:
    """Return the TPM's answer to a challenge, after ``read_keys``. Raises ImageError if it is for another TPM."""
    with open(os.path.join(tpm.folder, "challenge"), "wb") as stream:
        stream.write(base64.b64decode(challenge))
    remedy = "run playbooks/node_identities.yml again"
    tpm.run(remedy, "tpm2_startauthsession", "--policy-session", "-S", "session")
    tpm.run(remedy, "tpm2_policysecret", "-Q", "-S", "session", "-c", "e")
    opened = ("-i", "challenge", "-o", "nonce", "-P", "session:session")
    hint = "the challenge is for another TPM than this node's: if its board was replaced, approve its TPM"
    tpm.run(hint, "tpm2_activatecredential", "-Q", "-c", "ak.ctx", "-C", "ek.ctx", *opened)
    tpm.status("tpm2_flushcontext", "session")
    selection = f"sha256:{','.join(PCRS)}"
    options = ("-q", tpm.content("nonce").hex(), "-m", "message", "-s", "signature", "-f", "plain", "-g", "sha256")
    tpm.run(remedy, "tpm2_quote", "-Q", "-c", "ak.ctx", "-l", selection, *options)
    tpm.run(remedy, "tpm2_pcrread", "-Q", selection, "-o", "pcrs")
    parts = {name: text_of(tpm.content(name)) for name in ("message", "signature", "pcrs")}
    return {**parts, "log": read_log(tpm.module.params["firmware_log"])}


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
        argument_spec={
            "tcti": {"type": "str", "default": "device:/dev/tpmrm0"},
            "challenge": {"type": "str"},
            "firmware_log": {"type": "path", "default": f"/{LOG}"},
        },
        supports_check_mode=True,
    )

    def work() -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="sailloft-") as folder:
            tpm = TpmTools(module, folder)
            data, ak, stored = read_keys(tpm)
            quote = read_quote(tpm, module.params["challenge"]) if module.params["challenge"] else None
        text = text_of(data)
        ek = identity.read_ek(text, f"TPM {module.params['tcti']}")
        certificate = identity.certificate_of(stored)
        return {
            "ek": text,
            "ek_digest": identity.ek_digest(ek),
            "ak": text_of(ak),
            "quote": quote,
            "certificate": None if certificate is None else text_of(certificate),
            "certificate_is_of_ek": None if certificate is None else identity.certificate_is_of(certificate, ek),
            **read_report(),
        }

    finish(module, work)


if __name__ == "__main__":
    main()
