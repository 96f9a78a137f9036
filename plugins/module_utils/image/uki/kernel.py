# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An image's unified kernel image (UKI): kernel, first stage and command line in one program of the firmware.

Its command line names the image's digest, so that one signature covers all that a node runs. What differs by node is
not in it: the first stage gets the servers from DHCP, for they are not trusted, and name, NICs and the URL for reports
from the signed statement. Signed addons would need a file system beside the program, which a boot by network has not.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import canonical_json
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Archive
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import Run
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.boot_script import sealed_words
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.manifest import Manifest
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import authenticode, measured, policy
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki.tools import Tools

FORMAT = 1


@dataclass(frozen=True)
class SecureBoot:
    """The site's signer for firmware: the certificate that nodes have in db, and its key or a command.

    ``archive`` has the tools. ``policy_command`` signs policies of TPMs with the same key; a key file signs them too.
    """

    certificate: Path
    key: Path | None
    command: tuple[str, ...]
    archive: Archive
    policy_command: tuple[str, ...] = ()

    def sign(self, program: bytes, time_s: int) -> bytes:
        """Return the signed program; ``time_s``, s since 1970, is written into a key's signature. Raises ImageError."""
        if self.command or self.key is None:
            return authenticode.sign_by_command(program, self.command, self.certificate)
        return authenticode.sign_by_key(program, self.key, self.certificate, time_s)

    def predict(self, digest: str, program: bytes, stored: bytes = b"") -> bytes:
        """Return the prediction of a boot of the image's program, with policies if the site signs them.

        Signatures of ``stored``, the prediction that the store has, are kept. Raises ImageError.
        """
        prediction = measured.predict(digest, program)
        if self._signs_policies():
            try:
                signed = measured.load(stored, digest).policies
            except ImageError:
                signed = {}
            prediction = policy.with_policies(prediction, self._sign_policy, self.certificate, signed)
        return measured.dump(prediction)

    def try_signer(self, program: bytes) -> None:
        """Sign what is never used. Raises ImageError if that cannot be done."""
        self.sign(program, 0)
        if self._signs_policies():
            policy.signature(bytes(32), self._sign_policy, policy.public_key(self.certificate), self.certificate)

    def _signs_policies(self) -> bool:
        """Return whether the site signs policies: by its command, or by a key of the kind that all TPMs know."""
        return bool(self.policy_command or (self.key and policy.rsa_2048_key(self.certificate)))

    def _sign_policy(self, data: bytes) -> bytes:
        if self.policy_command or self.key is None:
            return sign.printed_by(self.policy_command, data)
        return policy.sign_by_key(data, self.key)

    def has_signed(self, signed: bytes, program: bytes) -> bool:
        """Return whether ``signed`` is the program with a signature of this site."""
        return authenticode.is_signed(signed, program, self.certificate)


@dataclass(frozen=True)
class Programs:
    """The maker of images' UKIs: tools by architecture, and directories for its files, on one file system."""

    secure_boot: SecureBoot
    tools: Mapping[str, Tools]
    cache: Path
    work: Path

    def try_signer(self) -> None:
        """Sign a program that is never used. Raises ImageError if that cannot be done."""
        self.secure_boot.try_signer(next(iter(self.tools.values())).stub.read_bytes())

    def unsigned(self, manifest: Manifest, digest: str, kernel: Path, stage: Path, run: Run) -> bytes:
        """Return the image's UKI without a signature: the same inputs give the same bytes. Raises ImageError.

        ``kernel`` and ``stage`` are the files that the manifest names. What has been made is in the cache.
        """
        tools = self.tools[manifest.architecture]
        text = canonical_json([FORMAT, digest, tools.key])
        place = self.cache / "ukis" / hashlib.sha256(text).hexdigest()
        if place.exists():
            os.utime(place)  # records the last use
            return place.read_bytes()
        folder = self.work / f"uki-{digest}"
        folder.mkdir()
        program = folder / "uki"
        system = f'ID={manifest.distribution}\nPRETTY_NAME="{manifest.name} {digest[:12]}"\n'
        tools.ukify(
            run,
            *("build", f"--linux={kernel}", f"--initrd={stage}", f"--uname={manifest.kernel.version}"),
            *(
                f"--cmdline={' '.join((*manifest.kernel_arguments, *sealed_words(digest, manifest.name)))}",
                f"--os-release={system}",
            ),
            *(f"--stub={tools.stub}", f"--efi-arch={tools.efi_architecture}", f"--output={program}"),
            readable=(kernel, stage),
            writable=(folder,),
        )
        place.parent.mkdir(exist_ok=True)
        os.replace(program, place)
        return place.read_bytes()
