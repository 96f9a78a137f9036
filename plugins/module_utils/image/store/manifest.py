# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An image's manifest: its parts by digest. The sha256 of the manifest's bytes is the image's digest."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.given.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import DIGEST, canonical_json
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import NAME

FORMAT = "sailloft-image/1"
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
    """The initramfs, a blob of ``size_bytes`` bytes."""

    sha256: str
    size_bytes: int


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
class Package:
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
    packages: tuple[Package, ...]
    sbom_sha256: str

    def blobs(self) -> set[str]:
        """Return the sha256 of every blob that the image needs."""
        found = {self.kernel.sha256, self.first_stage.sha256, self.sbom_sha256}
        for layer in self.layers:
            found |= {layer.sha256, layer.listing_sha256}
        return found

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

    def refuse(why: str) -> ImageError:
        return ImageError(subject, why, "build the image again with this version of the collection")

    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise refuse(f"not a manifest: {error}") from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        there = raw.get("format") if isinstance(raw, dict) else None
        raise refuse(f"not a manifest of format {FORMAT}, but {there!r}")
    del raw["format"]
    try:
        manifest = _manifest(raw)
    except _ManifestError as error:
        raise refuse(str(error)) from error
    if dump(manifest) != data:
        raise refuse("the manifest is not in canonical form, so its digest does not identify its content")
    return manifest


class _ManifestError(SailloftError):
    """A problem of a manifest, as text."""


def _manifest(raw: dict[str, Any]) -> Manifest:
    kernel = _build(Kernel, raw.get("kernel"), "kernel")
    first_stage = _build(FirstStage, raw.get("first_stage"), "first_stage")
    layers = []
    for at, item in enumerate(_list(raw.get("layers"), "layers")):
        if not isinstance(item, dict):
            raise _ManifestError(f"layers[{at}] is not an object")
        verity = _build(Verity, item.get("verity"), f"layers[{at}].verity")
        layers.append(_build(ManifestLayer, {**item, "verity": verity}, f"layers[{at}]"))
    packages = [
        _build(Package, item, f"packages[{at}]") for at, item in enumerate(_list(raw.get("packages"), "packages"))
    ]
    arguments = _list(raw.get("kernel_arguments"), "kernel_arguments")
    for at, argument in enumerate(arguments):
        if not isinstance(argument, str) or not argument:
            raise _ManifestError(f"kernel_arguments[{at}] {argument!r} is not text")
    manifest = _build(
        Manifest,
        {
            **raw,
            "kernel": kernel,
            "first_stage": first_stage,
            "layers": tuple(layers),
            "packages": tuple(packages),
            "kernel_arguments": tuple(arguments),
        },
        "manifest",
    )
    if not layers:
        raise _ManifestError("it has no layers")
    names = [layer.name for layer in layers]
    for name in [manifest.name, *names]:
        if not NAME.fullmatch(name):
            raise _ManifestError(f"{name!r} is not a name of an image or a layer")
    if len(set(names)) != len(names):
        raise _ManifestError("two layers have the same name")
    for layer in layers:
        if layer.verity.data_bytes > layer.size_bytes:
            raise _ManifestError(
                f"layer {layer.name} has {layer.verity.data_bytes} bytes of data, but a size of {layer.size_bytes} "
                "bytes"
            )
    for package in packages:
        if package.layer not in names:
            raise _ManifestError(f"package {package.name} belongs to layer {package.layer}, which does not exist")
    return manifest


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _ManifestError(f"{where} is not a list")
    return value


def _build(kind: type, data: Any, where: str) -> Any:
    """Return the dataclass with exactly these fields, each checked by its name and annotation."""
    if not isinstance(data, dict):
        raise _ManifestError(f"{where} is not an object")
    names = [item.name for item in fields(kind)]
    for name in names:
        if name not in data:
            raise _ManifestError(f"{where} has no {name}")
    for name in sorted(data):
        if name not in names:
            raise _ManifestError(f"{where} has the unknown key {name!r}")
    for item in fields(kind):
        value = data[item.name]
        if item.type == "str" and (not isinstance(value, str) or (not value and item.name != "salt")):
            raise _ManifestError(f"{where}: {item.name} {value!r} is not text")
        if item.type == "int" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise _ManifestError(f"{where}: {item.name} {value!r} is not a whole number of at least 1")
        if item.type.startswith("dict") and not isinstance(value, dict):
            raise _ManifestError(f"{where}: {item.name} is not an object")
        if (item.name.endswith("sha256") or item.name == "key") and not DIGEST.fullmatch(value):
            raise _ManifestError(f"{where}: {item.name} {value!r} is not a sha256")
        if item.name == "salt" and not SALT.fullmatch(value):
            raise _ManifestError(f"{where}: salt {value!r} is not hexadecimal of at most 256 bytes")
    return kind(**data)
