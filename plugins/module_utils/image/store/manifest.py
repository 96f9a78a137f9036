# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An image's manifest: its parts by digest. The sha256 of the manifest's bytes is the image's digest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import DIGEST, canonical_json
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import NAME

FORMAT = "sailloft-image/1"
AGAIN = "build the image again with this version of the collection"
# dm-verity supports up to 256 bytes of salt (table line in Linux' include/uapi/linux/dm-ioctl.h; cryptsetup's limit).
SALT = re.compile(r"([0-9a-f]{2}){0,256}")


@dataclass(frozen=True)
class Kernel:
    """The kernel, a blob of ``size_bytes`` bytes; ``version`` as ``uname -r`` prints it."""

    version: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class FirstStage:
    """The initramfs, a blob of ``size_bytes`` bytes; ``knows`` are the formats by which it boots, besides manifests."""

    sha256: str
    size_bytes: int
    knows: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verity:
    """The layer's dm-verity tree: it begins after ``data_bytes`` bytes of squashfs; ``salt`` is hexadecimal."""

    data_bytes: int
    root_sha256: str
    salt: str


@dataclass(frozen=True)
class ManifestLayer:
    """One layer: a blob of ``size_bytes`` bytes, its listing (a blob too), and its inputs."""

    name: str
    key: str
    sha256: str
    size_bytes: int
    listing_sha256: str
    verity: Verity
    inputs: dict[str, Any]


@dataclass(frozen=True)
class ImagePackage:
    """A package of the image; ``layer`` names the layer that brought this version of it."""

    name: str
    version: str
    architecture: str
    layer: str


@dataclass(frozen=True)
class Manifest:
    """An image. ``layers`` are lowest first; ``kernel_arguments`` are all of them, in their order."""

    name: str
    distribution: str
    suite: str
    architecture: str
    kernel: Kernel
    first_stage: FirstStage
    kernel_arguments: tuple[str, ...]
    writable_mib: int
    layers: tuple[ManifestLayer, ...]
    packages: tuple[ImagePackage, ...]
    sbom_sha256: str

    def blobs(self) -> set[str]:
        """Return the sha256 of every blob that the image needs."""
        digests = {self.kernel.sha256, self.first_stage.sha256, self.sbom_sha256}
        for layer in self.layers:
            digests |= {layer.sha256, layer.listing_sha256}
        return digests

    def boot_blobs(self) -> dict[str, int]:
        """Return sha256 -> bytes of the blobs that a node fetches to boot: kernel, first stage, layers."""
        parts: list[Kernel | FirstStage | ManifestLayer] = [self.kernel, self.first_stage, *self.layers]
        return {part.sha256: part.size_bytes for part in parts}


def dump(manifest: Manifest) -> bytes:
    """Return the bytes of manifest.json; ``load`` is the inverse."""
    return canonical_json({"format": FORMAT, **asdict(manifest)})


def digest(data: bytes) -> str:
    """Return the image's digest from the bytes of its manifest."""
    return hashlib.sha256(data).hexdigest()


def load(data: bytes, subject: str) -> Manifest:
    """Parse the manifest. Raises ImageError, about ``subject``, if the bytes are not a manifest in our form."""

    def refuse(cause: str) -> ImageError:
        return ImageError(cause, AGAIN, subject=subject)

    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise refuse(f"not a manifest: {error}") from error
    try:
        manifest = stored.load(Manifest, parsed, FORMAT, "manifest", AGAIN)
    except StoredError as error:
        raise ImageError(error.cause, error.remedy, subject=subject) from error
    if canonical_json(parsed) != data:
        raise refuse("the manifest is not in canonical form, so its digest does not identify its content")
    for contradiction in _contradictions(manifest):
        raise refuse(contradiction)
    return manifest


def _contradictions(manifest: Manifest) -> Iterator[str]:
    """Yield what is wrong in a manifest whose values have the types of their fields."""
    yield from _invalid_fields(manifest, "manifest")
    if not all(manifest.kernel_arguments):
        yield "one of its kernel_arguments is empty"
    if not manifest.layers:
        yield "it has no layers"
    names = [layer.name for layer in manifest.layers]
    for name in [manifest.name, *names]:
        if not NAME.fullmatch(name):
            yield f"{name!r} is not a name of an image or a layer"
    if len(set(names)) != len(names):
        yield "two layers have the same name"
    for layer in manifest.layers:
        if layer.verity.data_bytes > layer.size_bytes:
            bytes_of_data = layer.verity.data_bytes
            yield f"layer {layer.name} has {bytes_of_data} bytes of data, but a size of {layer.size_bytes} bytes"
    for package in manifest.packages:
        if package.layer not in names:
            yield f"package {package.name} belongs to layer {package.layer}, which does not exist"


def _invalid_fields(part: Any, path: str) -> Iterator[str]:
    """Yield the fields of ``part`` and of its parts that are empty, not positive, or no sha256."""
    for item in fields(part):
        value = getattr(part, item.name)
        if is_dataclass(value):
            yield from _invalid_fields(value, f"{path}.{item.name}")
        elif isinstance(value, tuple):
            for number, member in enumerate(value):
                if is_dataclass(member):
                    yield from _invalid_fields(member, f"{path}.{item.name}[{number}]")
        elif item.name == "salt":
            if not SALT.fullmatch(value):
                yield f"{path}: salt {value!r} is not hexadecimal of at most 256 bytes"
        elif item.name.endswith("sha256") or item.name == "key":
            if not DIGEST.fullmatch(value):
                yield f"{path}: {item.name} {value!r} is not a sha256"
        elif value == "":
            yield f"{path}: {item.name} is empty"
        elif isinstance(value, int) and value < 1:
            yield f"{path}: {item.name} {value!r} is not a whole number of at least 1"
