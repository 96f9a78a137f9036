# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The boot report of a node: /run/sailloft/boot.json, which the first stage wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import DIGEST

FORMAT = "sailloft-boot/1"
PATH = "/run/sailloft/boot.json"
REBOOT = "boot the node with its image's boot.ipxe"


@dataclass(frozen=True)
class BootedLayer:
    """A layer as it was mounted; ``verity``: whether every read of it is verified."""

    name: str
    sha256: str
    verity: bool


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


def load(text: str, subject: str) -> BootReport:
    """Parse the report. Raises ImageError, about ``subject``, if the text is not a report in our form."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ImageError(subject, f"not a boot report: {error}", REBOOT) from error
    try:
        if data["format"] != FORMAT:
            raise ImageError(subject, f"its format is {data['format']!r}, not {FORMAT}", REBOOT)
        report = BootReport(
            node=_of(str, data, "node"),
            image=_of(str, data, "image"),
            name=_of(str, data, "name"),
            kernel=_of(str, data, "kernel"),
            arguments=_of(str, data, "arguments"),
            layers=tuple(
                BootedLayer(_of(str, item, "name"), _of(str, item, "sha256"), _of(bool, item, "verity"))
                for item in data["layers"]
            ),
            server=_of(str, data, "server"),
            writable_bytes=_of(int, data, "writable_bytes"),
            phases=tuple(
                Phase(_of(str, item, "name"), float(item["start_s"]), float(item["end_s"])) for item in data["phases"]
            ),
            warnings=tuple(str(item) for item in data["warnings"]),
            # Images of earlier versions report none.
            host_keys=tuple(str(item) for item in data.get("host_keys", ())),
        )
        if not report.layers or not all(DIGEST.fullmatch(digest) for digest in (report.image, *_digests(report))):
            raise ValueError("an image's or a layer's digest is missing")
    except KeyError as error:
        raise ImageError(subject, f"the boot report has no {error.args[0]}", REBOOT) from error
    except (TypeError, ValueError) as error:
        raise ImageError(subject, f"not a boot report: {error}", REBOOT) from error
    return report


def _digests(report: BootReport) -> list[str]:
    return [layer.sha256 for layer in report.layers]


def _of(kind: type, data: Any, name: str) -> Any:
    value = data[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{name} is {value!r}")
    return value
