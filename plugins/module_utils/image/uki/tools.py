# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""ukify and systemd's stub from a newer suite than the build host's: unpacked in the cache, not installed."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import canonical_json
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Archive, Layer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.room import entered
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import Run
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.registry import family_of

PACKAGES = ("python3-pefile", "systemd-boot-efi", "systemd-ukify")
# The first release that was tried. Those before 254 start the kernel in other ways.
LEAST_VERSION = 257
# Architecture by its names in distributions -> Debian's name, UEFI's name.
ARCHITECTURES = {
    "amd64": ("amd64", "x64"),
    "x86_64": ("amd64", "x64"),
    "arm64": ("arm64", "aa64"),
    "aarch64": ("arm64", "aa64"),
}


@dataclass(frozen=True)
class Tools:
    """The tree of tools for nodes of one architecture; ``key`` is the digest of its inputs."""

    key: str
    tree: Path
    efi_architecture: str

    @property
    def stub(self) -> Path:
        """The stub: a program of the firmware without a kernel."""
        return self.tree / "usr/lib/systemd/boot/efi" / f"linux{self.efi_architecture}.efi.stub"

    def ukify(self, run: Run, *arguments: str, readable: tuple[Path, ...] = (), writable: tuple[Path, ...] = ()) -> str:
        """Run ukify in a room, with the build host's Python; return its output. Raises ToolError."""
        command = ["/usr/bin/python3", f"{self.tree}/usr/bin/ukify", *arguments]
        modules = {"PYTHONPATH": f"{self.tree}/usr/lib/python3/dist-packages", "PYTHONDONTWRITEBYTECODE": "1"}
        return run(entered(self.tree, command, readable=readable, writable=writable), env=modules)


def unpacked(
    architecture: str, archive: Archive, cache: Path, work: Path, fetch: Callable[[str], bytes], run: Run
) -> Tools:
    """Return the tools for images of the architecture; unpack them unless the cache has them. Raises ImageError.

    ``fetch`` returns the bytes at a URL. apt verifies what it fetches by the archive's release, whose digest may be
    pinned.
    """
    debian, efi = ARCHITECTURES[architecture]
    layer = Layer("tools of Secure Boot", None, "debian", archive.suites[0], debian, (archive,))
    family = family_of(layer.distribution)
    digests = family.release_digests(layer, fetch)
    key = hashlib.sha256(canonical_json([debian, PACKAGES, sorted(digests.items())])).hexdigest()
    boot_tools = Tools(key, cache / "boot-tools" / key, efi)
    if boot_tools.tree.exists():
        os.utime(boot_tools.tree)  # records the last use
        return boot_tools
    run.progress(f"{run.subject}: unpacking {', '.join(PACKAGES)}")
    tree = work / f"boot-tools-{debian}"
    tree.mkdir()
    family.unpack_alone(tree, layer, digests, run, cache / "apt" / f"lists-{key}", PACKAGES)
    _require_version(Tools(key, tree, efi), run)
    boot_tools.tree.parent.mkdir(exist_ok=True)
    os.replace(tree, boot_tools.tree)
    return boot_tools


def _require_version(boot_tools: Tools, run: Run) -> None:
    """Raise ImageError for a ukify that was never tried, and without a stub."""
    text = boot_tools.ukify(run, "--version")
    match = re.match(r"ukify (\d+)", text)
    if not match or int(match[1]) < LEAST_VERSION:
        raise ImageError(
            f"ukify is {text.strip()!r}, version {LEAST_VERSION} or later is needed",
            "use an archive that has it in node_image_secure_boot.archive, such as Debian 13",
            subject=run.subject,
        )
    if not boot_tools.stub.is_file():
        raise ImageError(
            f"its systemd-boot-efi has no {boot_tools.stub.name}", "use an archive that has it", subject=run.subject
        )
