# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read an OCI image layout: manifest, time and layers.

Formats: github.com/opencontainers/image-spec, image-layout.md, manifest.md, image-index.md, config.md.
"""

from __future__ import annotations

import datetime
import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Layer

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# The name in the layout: umoci finds an image by name only.
NAME = "base"
REF_NAME = "org.opencontainers.image.ref.name"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
# Those that umoci 0.4.7 unpacks. Foreign (non-distributable), encrypted and zstd layers have other types.
LAYERS = ("application/vnd.oci.image.layer.v1.tar", "application/vnd.oci.image.layer.v1.tar+gzip")
# Go's names, which images use, of the distributions' architectures.
ARCHITECTURES = {"amd64": "amd64", "x86_64": "amd64", "arm64": "arm64", "aarch64": "arm64"}
# RFC 3339.
TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)")


class Layout(NamedTuple):
    """An image in a layout directory: the files of its layers, lowest first, each named by the sha256 of its bytes."""

    folder: Path
    layers: tuple[Path, ...]
    created_s: int  # since 1970


def subject_of(layer: Layer) -> str:
    """Return the subject of an error about the layer's container image."""
    return f"{layer.subject}: {layer.oci.reference if layer.oci else 'no image'}"


def read(folder: Path, layer: Layer) -> Layout:
    """Return the layer's container image in a layout with the right digests. Raises ImageError if it can be no base."""
    subject = subject_of(layer)
    try:
        (descriptor,) = json.loads((folder / "index.json").read_bytes())["manifests"]
        manifest = _document(folder, descriptor["digest"])
        kinds = {"manifest": manifest.get("mediaType", MANIFEST), "configuration": manifest["config"]["mediaType"]}
        for name, kind in kinds.items():
            if kind not in (MANIFEST, CONFIG):
                raise ImageError(
                    f"its {name} is of the type {str(kind)[:80]}, not of an OCI image",
                    "copy it with skopeo copy --format oci, and give the digest of the copy",
                    subject=subject,
                )
        config = _document(folder, manifest["config"]["digest"])
        layers = [(str(item["mediaType"]), checked(item["digest"])) for item in manifest["layers"]]
        platform = f"{config['os']}/{config['architecture']}"
        created_s = _seconds(config.get("created"))
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        raise ImageError(
            f"it is no OCI image: {type(error).__name__} {str(error)[:200]}",
            "look at it with skopeo inspect --raw, and use an image of a Linux distribution",
            subject=subject,
        ) from error
    for kind, digest in layers:
        if kind not in LAYERS:
            raise ImageError(
                f"its layer {digest} is of the type {kind[:80]}, which cannot be unpacked",
                "copy it with skopeo copy --dest-compress-format gzip to a directory or registry, and give the copy's "
                "digest; foreign and encrypted layers cannot be used",
                subject=subject,
            )
    wanted = f"linux/{ARCHITECTURES[layer.architecture]}"
    if platform != wanted:
        raise ImageError(
            f"it is for {platform[:80]}, the layer for {wanted}",
            "give the digest of this architecture's manifest or of the list of all, or correct architecture",
            subject=subject,
        )
    if created_s > time.time():
        raise ImageError(
            f"it was made in the future ({config['created']})",
            "correct the clock of this host, or of the one that makes the image",
            subject=subject,
        )
    return Layout(folder, tuple(folder / "blobs/sha256" / digest[7:] for _kind, digest in layers), created_s)


def checked(digest: Any) -> str:
    """Return a digest that may be a file's name. Raises ValueError."""
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise ValueError(f"{digest!r} is no sha256 digest")
    return digest


def manifest_of(digest: str, architecture: str, blob: Callable[[str], bytes]) -> str:
    """Return the digest of the architecture's manifest: ``digest`` itself unless it is that of a list.

    ``blob``: digest -> bytes. Raises LookupError if the list has none, and the errors of JSON.
    """
    document = json.loads(blob(digest))
    if "manifests" not in document:
        return digest
    wanted = {"os": "linux", "architecture": ARCHITECTURES[architecture]}
    for item in document["manifests"]:
        platform: Mapping[str, Any] = item.get("platform", {})
        if {name: platform.get(name) for name in wanted} == wanted:
            return checked(item["digest"])
    raise LookupError(f"its list has no manifest for linux/{ARCHITECTURES[architecture]}")


def _document(folder: Path, digest: Any) -> Any:
    return json.loads((folder / "blobs/sha256" / checked(digest)[7:]).read_bytes())


def _seconds(created: Any) -> int:
    """Return a time of RFC 3339 in s since 1970; 0 for one before, as some tools write, and for none."""
    if created is None:
        return 0
    match = TIME.fullmatch(created)
    if not match:
        raise ValueError(f"{created!r} is no time")
    moment = datetime.datetime.fromisoformat(match[1] + match[2].replace("Z", "+00:00"))
    return max(0, int(moment.timestamp()))
