# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The contents of a store as plain data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.garbage import Garbage
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import (
    BLOBS,
    BOOT_PROGRAM,
    IMAGES,
    Store,
)


def inventory(store: Store, reasons: Mapping[str, list[str]], without: Garbage | None = None) -> dict[str, Any]:
    """Return images, channels and sizes in bytes of a store, as if the garbage ``without`` were removed.

    ``reasons`` as ``garbage.reasons`` returns them. A damaged image has a ``problem``. Raises ImageError.
    """
    collected = set(without.paths if without else ())
    blobs = {sha256: size for sha256, size in store.blobs().items() if os.path.join(BLOBS, sha256) not in collected}
    digests = [digest for digest in store.images() if os.path.join(IMAGES, digest) not in collected]
    return {
        "images": [_image(store, digest, blobs, reasons) for digest in digests],
        "channels": [
            {"name": name, "digest": channel.digest, "history": list(channel.history)}
            for name, channel in channels.read_all(store).items()
        ],
        "missing": [
            {"digest": digest, "kept_for": reason} for digest, reason in reasons.items() if digest not in digests
        ],
        "blobs": len(blobs),
        "size_bytes": sum(blobs.values()),
    }


def _image(store: Store, digest: str, blobs: Mapping[str, int], reasons: Mapping[str, list[str]]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "digest": digest,
        "name": None,
        "layers": [],
        "kernel": None,
        "size_bytes": 0,
        "knows": [],
        "signed_kernel": os.path.exists(store.place(IMAGES, digest, BOOT_PROGRAM)),
        "problem": None,
        "kept_for": list(reasons.get(digest, [])),
    }
    try:
        manifest = store.manifest(digest)
    except ImageError as error:
        return {**row, "problem": f"{error.cause}; {error.remedy}"}
    missing = sorted(store.missing_blobs(manifest))
    return {
        **row,
        "name": manifest.name,
        "knows": list(manifest.first_stage.knows),
        "layers": [layer.name for layer in manifest.layers],
        "kernel": manifest.kernel.version,
        "size_bytes": sum(blobs.get(sha256, 0) for sha256 in manifest.blobs()),
        "problem": f"blob {missing[0]} is missing or truncated; copy or publish the image again" if missing else None,
    }
