# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Publish a built image in the store, unless it is there already."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import first_stages, layers, sbom
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layers import Built, LayerRequest
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.setting import BuildEnvironment, BuiltImage
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import sha256_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Image
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import Run
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import boot_script
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import (
    changes,
    manifest,
    node_files,
    sign,
    statement,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.manifest import (
    FirstStage,
    ImagePackage,
    Kernel,
    Manifest,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import (
    BLOBS,
    BOOT_PROGRAM,
    IMAGES,
    PREDICTION,
    SIGNATURE,
    Store,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki.kernel import Programs

# /sbin/init where /sbin is a directory, a link to /usr/sbin, and where that is a link to /usr/bin (Fedora 42).
INIT = ("/sbin/init", "/usr/sbin/init", "/usr/bin/init")


def publish(
    image: Image,
    chain: list[LayerRequest],
    setting: BuildEnvironment,
    work: Path,
    programs: Programs | None,
    progress: Callable[[str], object],
) -> BuiltImage:
    """Publish the image of a chain of built layers, unless the store has it. Raises ImageError."""
    parts = [layers.built(setting.cache, request) for request in chain]
    brought = first_stages.kernel_of(image.name, setting.cache, chain)
    stage = first_stages.stage_place(setting, setting.signer.key, chain, brought.request)
    bill = work / f"sbom-{image.name}"
    bill.write_bytes(_bill(image, chain, parts))
    new = _manifest(image, parts, brought.kernel, stage, bill)
    data = manifest.dump(new)
    digest = manifest.digest(data)
    store = Store(os.fspath(setting.store))
    size_bytes = sum(new.boot_blobs().values())
    current = store.current(image.name)
    unsigned = signed = prediction = old_prediction = b""
    if programs:
        run = Run(f"image {image.name}", progress)
        unsigned = programs.unsigned(new, digest, brought.folder / layers.VMLINUZ, stage, run)
        signed = store.contents(IMAGES, digest, BOOT_PROGRAM) or b""
        old_prediction = store.contents(IMAGES, digest, PREDICTION) or b""
        prediction = programs.secure_boot.predict(digest, unsigned, old_prediction)
    has_program = programs is None or programs.secure_boot.has_signed(signed, unsigned)
    has_prediction = prediction == old_prediction
    complete = has_program and has_prediction and is_complete(store, digest, new, data, setting.signer.key)
    if current == digest and complete:
        progress(f"image {image.name}: unchanged, {digest[:12]}")
        return BuiltImage(image.name, digest, False, (), size_bytes)
    old, old_listings = stored_image(store, current)
    listings = {part.entry.name: _listing(part) for part in parts}
    _require_init(image, listings)
    lines = changes.text(changes.changes(old, new, old_listings, listings))
    if not has_program:
        lines = [*lines, f"{BOOT_PROGRAM}: signed for Secure Boot"]
    if not has_prediction:
        lines = [*lines, f"{PREDICTION}: what a boot of it measures"]
    if not setting.check:
        if programs and not has_program:
            signed = programs.secure_boot.sign(unsigned, _epoch(chain))
        blobs = {
            new.kernel.sha256: brought.folder / layers.VMLINUZ,
            new.first_stage.sha256: stage,
            new.sbom_sha256: bill,
        }
        for part in parts:
            blobs[part.entry.sha256] = part.folder / layers.SQUASHFS
            blobs[part.entry.listing_sha256] = part.folder / layers.LISTING
        script = boot_script.image_script(new, digest).encode()
        store.publish(data, setting.sign(data), script, blobs, signed, prediction)
        progress(f"image {image.name}: published, {digest[:12]}, {size_bytes / 1e6:.1f} MB")
    return BuiltImage(image.name, digest, True, tuple(lines), size_bytes)


def _manifest(image: Image, parts: list[Built], kernel: Kernel, stage: Path, bill: Path) -> Manifest:
    lowest = image.layers[0]
    return Manifest(
        name=image.name,
        distribution=lowest.distribution,
        suite=lowest.suite,
        architecture=lowest.architecture,
        kernel=kernel,
        first_stage=FirstStage(sha256_of(stage), stage.stat().st_size, (statement.FORMAT, node_files.FORMAT)),
        kernel_arguments=image.kernel_arguments,
        writable_mib=image.writable_mib,
        layers=tuple(part.entry for part in parts),
        packages=packages_by_layer(parts),
        sbom_sha256=sha256_of(bill),
    )


def _bill(image: Image, chain: list[LayerRequest], parts: list[Built]) -> bytes:
    lowest, keys = image.layers[0], {request.layer.name: request.key for request in chain}
    packages, oci_digest = packages_by_layer(parts), lowest.oci.digest if lowest.oci else None
    return sbom.sbom(image.name, lowest.distribution, lowest.suite, keys, packages, _epoch(chain), oci_digest)


def _epoch(chain: list[LayerRequest]) -> int:
    """Return the time of the image, s since 1970: the latest of its layers."""
    return max(request.epoch for request in chain)


def packages_by_layer(parts: list[Built]) -> tuple[ImagePackage, ...]:
    """Return the packages of the highest layer's list, each with the layer that brought this version of it."""
    brought: dict[tuple[str, str, str], str] = {}
    for part in parts:
        installed = {(item["name"], item["version"], item["architecture"]) for item in part.packages}
        brought = {item: layer for item, layer in brought.items() if item in installed}
        for item in installed:
            brought.setdefault(item, part.entry.name)
    return tuple(ImagePackage(*item, brought[item]) for item in sorted(brought))


def is_complete(store: Store, digest: str, new: Manifest, data: bytes, public_key: str) -> bool:
    """Return whether the store has the whole image, signed with the key that is requested now."""
    try:
        return not store.missing_blobs(new) and sign.verifies(data, store.read(digest, SIGNATURE), public_key)
    except ImageError:
        return False


def stored_image(store: Store, digest: str | None) -> tuple[Manifest | None, dict[str, Any]]:
    """Return the manifest of the store's image, with its listings; None if it can no longer be read."""
    if digest is None:
        return None, {}
    try:
        old = store.manifest(digest)
    except ImageError:
        return None, {}
    listings = {}
    for layer in old.layers:
        data = store.contents(BLOBS, layer.listing_sha256)
        if data is None or hashlib.sha256(data).hexdigest() != layer.listing_sha256:
            return None, {}
        listings[layer.name] = json.loads(data)
    return old, listings


def _require_init(image: Image, listings: Mapping[str, Any]) -> None:
    """Raise ImageError for an image that no node can start: containers, and the images of them, often have no init."""
    entries = [listings[layer.name].get(path) for layer in reversed(image.layers) for path in INIT]
    highest = next((entry for entry in entries if entry), {"type": "whiteout"})
    if highest["type"] == "whiteout":
        raise ImageError(
            f"none of its layers ({', '.join(listings)}) has /sbin/init, which a node starts",
            "add systemd-sysv (Debian, Ubuntu) or systemd to the packages of a layer",
            subject=f"image {image.name}",
        )


def _listing(part: Built) -> Any:
    return json.loads((part.folder / layers.LISTING).read_bytes())
