# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The boot report of a node: /run/sailloft/boot.json, which the first stage wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import DIGEST

FORMAT = "sailloft-boot/1"
PATH = "/run/sailloft/boot.json"
REBOOT = "boot the node with its image's boot.ipxe"


@dataclass(frozen=True)
class BootedLayer:
    """A layer as it was mounted; ``verity``: whether every read of it is verified, against ``root_sha256``."""

    name: str
    sha256: str
    verity: bool
    root_sha256: str = ""


@dataclass(frozen=True)
class Phase:
    """A part of the boot, in seconds since the kernel started."""

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class BootReport:
    """The report of a boot. ``image`` is the digest and ``name`` the image's name; ``layers`` are lowest first.

    ``server`` is the one from which the last layer was fetched.

    ``arguments`` is the kernel's whole command line; ``host_keys`` are the public SSH host keys that the first stage
    made; ``warnings`` are sentences.

    ``statement`` is the sequence of the statement that named the image, 0 if the first stage knows none. From it are
    ``node``, ``servers``, ``caches`` (None if the first stage knows none), ``report_url`` and ``nics`` (lines as in
    ``boot_script.nic_lines``); ``mac`` is the address that booted. ``rollback`` is what protects against older
    statements, "TPM" or "expiry"; ``clock`` is a sentence about a wrong clock, or empty. ``files`` is the digest of the
    node's own files that it wrote, empty for none.
    """

    node: str
    image: str
    name: str
    kernel: str
    arguments: str
    layers: tuple[BootedLayer, ...]
    server: str
    writable_bytes: int
    phases: tuple[Phase, ...]
    warnings: tuple[str, ...]
    host_keys: tuple[str, ...] = ()
    mac: str = ""
    statement: int = 0
    rollback: str = ""
    clock: str = ""
    report_url: str = ""
    servers: tuple[str, ...] = ()
    caches: tuple[str, ...] | None = None
    nics: tuple[str, ...] = ()
    files: str = ""


def load(text: str, subject: str) -> BootReport:
    """Parse the report. Raises ImageError, about ``subject``, if the text is not a report in our form."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ImageError(f"not a boot report: {error}", REBOOT, subject=subject) from error
    try:
        report: BootReport = stored.load(BootReport, data, FORMAT, "boot report", REBOOT)
    except StoredError as error:
        raise ImageError(error.cause, error.remedy, subject=subject) from error
    if not report.layers or not all(
        DIGEST.fullmatch(digest) for digest in (report.image, *(layer.sha256 for layer in report.layers))
    ):
        raise ImageError("not a boot report: an image's or a layer's digest is missing", REBOOT, subject=subject)
    return report
