# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Small images for tests of the store: blobs are files of known bytes, and nothing is built."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.manifest import (
    FirstStage,
    ImagePackage,
    Kernel,
    Manifest,
    ManifestLayer,
    Verity,
    digest,
    dump,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.statement import FORMAT
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

SIGNATURE = b"untrusted comment: a signature\n"
BOOT_SCRIPT = b"#!ipxe\nboot\n"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Sample:
    """An image whose layers have the given contents: ``Sample("gpu-node", base=b"...", gpu=b"...")``."""

    def __init__(
        self,
        name: str,
        kernel: bytes = b"kernel",
        packages=(),
        arguments=("console=ttyS0",),
        knows=(FORMAT,),
        **layers: bytes,
    ):
        self.contents = {}

        def blob(data: bytes) -> str:
            self.contents[sha256(data)] = data
            return sha256(data)

        self.manifest = Manifest(
            name=name,
            distribution="debian",
            suite="bookworm",
            architecture="amd64",
            kernel=Kernel("6.1.0-31-cloud-amd64", blob(kernel), len(kernel)),
            first_stage=FirstStage(blob(b"first stage"), len(b"first stage"), tuple(knows)),
            kernel_arguments=tuple(arguments),
            writable_mib=1024,
            layers=tuple(
                ManifestLayer(
                    name=layer,
                    key=sha256(b"key of " + data),
                    sha256=blob(data),
                    size_bytes=len(data),
                    listing_sha256=blob(b"listing of " + sha256(data).encode()),
                    verity=Verity(len(data), sha256(b"root of " + data), "00ff"),
                    inputs={"name": layer},
                )
                for layer, data in layers.items()
            ),
            packages=tuple(ImagePackage(*package) for package in packages),
            sbom_sha256=blob(b"sbom of " + sha256(repr(layers).encode()).encode()),
        )
        self.bytes = dump(self.manifest)
        self.digest = digest(self.bytes)

    def files(self, folder: Path) -> dict[str, Path]:
        """Write the blobs as files, as in a builder's cache."""
        folder.mkdir(exist_ok=True)
        for name, data in self.contents.items():
            (folder / name).write_bytes(data)
        return {name: folder / name for name in self.contents}

    def publish(self, store: Store, folder: Path) -> str:
        return store.publish(self.bytes, SIGNATURE, BOOT_SCRIPT, self.files(folder))


def tree(folder: str | Path) -> dict[str, tuple[int, bytes | None]]:
    """Return everything below a directory: {relative path: (mode, bytes, or None for a directory)}."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode & 0o7777, None if path.is_dir() else path.read_bytes())
        for path in sorted(Path(folder).rglob("*"))
    }


def require_whole(store: Store) -> None:
    """Check that everything that a client can find in the store is complete."""
    for image in store.images():
        manifest = store.manifest(image)
        assert store.missing_blobs(manifest) == set()
        assert {path.name for path in Path(store.place("images", image)).iterdir()} >= {
            "manifest.json",
            "manifest.json.minisig",
            "boot.ipxe",
        }
        for blob in manifest.blobs():
            assert sha256(Path(store.place("blobs", blob)).read_bytes()) == blob
    for named in store.currents().values():
        assert named in store.images()


def refusal(call: Callable[..., object], *arguments: object, **named: object) -> ImageError:
    """Return the ImageError that the call raises."""
    with pytest.raises(ImageError) as caught:
        call(*arguments, **named)
    return caught.value


def refused(call: Callable[..., object], *arguments: object, **named: object) -> str:
    """Return the message of the ImageError that the call raises."""
    return str(refusal(call, *arguments, **named))


def refuses(act: Callable[[], object], *words: str) -> None:
    """Expect an ImageError whose message contains all words."""
    message = refused(act)
    assert [word for word in words if word not in message] == [], message
