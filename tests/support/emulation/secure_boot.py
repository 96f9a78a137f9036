# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Signed kernels of images, and firmware that has a site's keys."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from ansible.module_utils.urls import open_url
from boot_images import EPOCH, REPOSITORY, Image
from boot_network import OVMF

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.fetch import Fetcher
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.namespace import isolated
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import Run, search_path
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.secure_boot import read_secure_boot
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import tools
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki.kernel import Programs, SecureBoot

# The tools are unpacked once.
CACHE = REPOSITORY / ".cache" / "secure_boot"
OWNER = "5a11f700-0000-4000-8000-000000000001"
PAGE = REPOSITORY / "docs/how-to/secure-boot.md"


def run_documented(command: str, place: Path) -> None:
    """Run the page's command that this pattern matches, on ``place`` without its suffix instead of the site's boot."""
    (text,) = re.findall(command, PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    text = text.replace("/etc/sailloft/boot", str(place)).replace("SITE", place.name)
    subprocess.run(["sh", "-c", text], check=True, capture_output=True)


def make_pair(folder: Path, name: str) -> SecureBoot:
    """Make a key and its certificate, by the page's command; return the signer."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.crt"
    run_documented(r"^ {4}(openssl req .*\\\n.*)$", folder / name)
    found = read_secure_boot({"certificate": str(certificate), "key": str(key)})
    assert found
    return found


def enrolled(variables: Path, *trusted: SecureBoot, revoked: tuple[SecureBoot, ...] = ()) -> None:
    """Write the variables of a firmware with Secure Boot that trusts these, in db, and refuses those in dbx.

    The firmware gets the files that the page lets people enrol in its setup.
    """
    command = ["virt-fw-vars", "--input", OVMF / "OVMF_VARS_4M.fd", "--output", variables, "--secure-boot"]
    for word, signers in (("--set-pk", trusted[:1]), ("--add-kek", trusted[:1]), ("--add-db", trusted)):
        command += [part for signer in signers for part in (word, OWNER, _for_setup(signer))]
    command += [part for signer in revoked for part in ("--add-dbx-cert", OWNER, _for_setup(signer))]
    subprocess.run(command, check=True, capture_output=True)


def _for_setup(signer: SecureBoot) -> Path:
    place = Path(signer.certificate).with_suffix("")
    run_documented(r"`(openssl x509 [^`]*)`", place)
    return place.with_suffix(".cer")


def unsigned(image: Image, signer: SecureBoot, work: Path) -> bytes:
    """Return the image's kernel, first stage and command line in one program."""
    run, fetch = Run("Secure Boot", print), Fetcher(open_url)
    os.environ["PATH"] = search_path()
    folder = CACHE / "work"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    def unpack() -> tools.Tools:
        return tools.unpacked("amd64", signer.archive, CACHE, folder, fetch, run)

    isolated(unpack)
    programs = Programs(signer, {"amd64": unpack()}, work, work)
    kernel, stage = (image.blob(part.sha256) for part in (image.manifest.kernel, image.manifest.first_stage))
    return programs.unsigned(image.manifest, image.digest, kernel, stage, run)


def publish(image: Image, program: bytes) -> None:
    """Put the program into the store, as the image's."""
    image.file("boot.efi").write_bytes(program)


def signed(image: Image, signer: SecureBoot, work: Path) -> bytes:
    """Return the image's program with the signature."""
    return signer.sign(unsigned(image, signer, work), EPOCH)
