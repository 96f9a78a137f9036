# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Boots of an image that has only BusyBox, and shows on the console what a proof reads of a node.

They take a third of the time of a boot to systemd, and the proof is that of node_image_proof.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import secure_boot
from boot_images import Image, Parts, follow, made_image
from boot_network import MAC, NODE, HttpServer

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import boot_report, measurements, node_state
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_claims import NodePlan
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.claims import ExpectedImage, SeenNode, prove
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import measured
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki.kernel import SecureBoot

UP = "THE IMAGE IS UP"
FILES = " ".join(
    (
        "proc/cmdline proc/sys/kernel/osrelease proc/uptime proc/sys/kernel/random/boot_id",
        boot_report.PATH.lstrip("/"),
        node_state.SECURE_BOOT.lstrip("/"),
        f"{measurements.TPM}/pcr-sha256/*",
        measurements.LOG,
    )
)
# The first stage calls it with --help, to see whether it can be started.
INIT = f"""#!/bin/sh
[ "$1" != --help ] || exit 0
/bin/busybox --install -s /bin
PATH=/bin
insmod /efivarfs.ko && mount -t efivarfs efivarfs /sys/firmware/efi/efivars
mount -t securityfs securityfs /sys/kernel/security
cd /
for file in {FILES}; do
    [ ! -e "$file" ] || echo "SHOWN $file $(base64 -w 0 "$file")"
done
echo {UP}
exec sleep 2147483647
"""
# The node's own arguments, as Secure Boot knows none.
OWN = ("from_the_node=1",)


@dataclass(frozen=True)
class SignedImage:
    """An image with its signed program, what its boot measures, and the signer."""

    image: Image
    program: bytes
    prediction: measured.Prediction
    signer: SecureBoot

    def copied(self, folder: Path) -> SignedImage:
        """Return the same image in a store of its own: files of the two are the same until one is replaced."""
        shutil.copytree(self.image.store.path, folder, copy_function=os.link, symlinks=True)
        return replace(self, image=replace(self.image, store=Store(str(folder))))

    def follow(self, server: HttpServer, secure_boot: bool) -> int:
        """Let the node boot this image from the server; return the sequence of the new statement."""
        arguments = [] if secure_boot else [*OWN]
        follow(self.image.store, self.image.keys, [server.url], kernel_arguments=arguments, secure_boot=secure_boot)
        return statement.sequence_in(self.image.store)


def made(parts: Parts, stage: Path, folder: Path, name: str = "test-node") -> SignedImage:
    """Make such an image with this name."""
    tree, base = folder / "tree", folder / "busybox"
    for place in ("bin", "etc", "sbin", "usr/lib/systemd"):
        (tree / place).mkdir(parents=True)
    shutil.copy(str(shutil.which("busybox")), tree / "bin")
    (tree / "bin/sh").symlink_to("busybox")
    (tree / "sbin/init").write_text(INIT)
    (tree / "sbin/init").chmod(0o755)
    # The first stage warns of an image without a network service.
    (tree / "usr/lib/systemd/systemd-networkd").touch()
    shutil.copy(parts.folder / "lib/modules" / parts.kernel_version / "kernel/fs/efivarfs/efivarfs.ko", tree)
    squash = ["mksquashfs", tree, base, "-quiet", "-no-progress", "-all-root", "-comp", "zstd"]
    subprocess.run(squash, check=True)
    # On a busy host, a node that is refused one file after the other would reboot.
    image = made_image(parts, stage, folder, parts.folder / "top", base, ("sailloft.reboot_after_s=7200",), name)
    signer = secure_boot.make_pair(folder, "site")
    program = secure_boot.signed(image, signer, folder)
    secure_boot.publish(image, program)
    return SignedImage(image, program, measured.load(signer.predict(image.digest, program), image.digest), signer)


def shown(console: str, folder: Path) -> Path:
    """Write the files that the console shows below a new directory; return it."""
    shutil.rmtree(folder, ignore_errors=True)
    for line in console.splitlines():
        if line.startswith("SHOWN "):
            _word, name, *content = line.split()
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(base64.b64decode("".join(content)))
    return folder


def _systemd(words: list[str]) -> tuple[int, str, str]:
    return 0, "SystemState=running\n" if "show" in words else "", ""


def failures(console: str, signed: SignedImage, server: HttpServer, secure_boot: bool = True) -> list[str]:
    """Return the claims that do not hold in the proof of the node, by the run that has booted it from this server.

    Services are not compared, as the image starts none.
    """
    folder = shown(console, server.network.folder / "shown")
    image = signed.image
    state = node_state.read(f"node {NODE}", _systemd, str(folder))
    prediction = signed.prediction if secure_boot else None
    plan = NodePlan(MAC, (server.url,), f"{server.url}/report", (f"{MAC} dhcp",))
    plan = replace(plan, sequence=statement.sequence_in(image.store), booted=True)
    plan = replace(plan, secure_boot=secure_boot, prediction=prediction)
    manifest = image.file("manifest.json").read_text()
    own = [] if secure_boot else [*OWN]
    expected = ExpectedImage.of_text(image.digest, manifest, plan, "stable", own, [])
    claims = prove(NODE, expected, SeenNode(state)).claims
    return [f"{claim.claim}: {claim.seen}" for claim in claims if claim.holds is False]
