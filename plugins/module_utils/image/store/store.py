# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A store: a directory of images by digest, in the form that a web server serves. Nothing in it is ever incomplete.

    blobs/SHA256                    layers, kernels, first stages, listings, SBOMs
    images/DIGEST/                  manifest.json, its .minisig, boot.ipxe; with Secure Boot boot.efi, pcrs.json
    current/NAME                    the digest of the last build of image NAME
    channels/, nodes/, identity/    of a boot server: see channels, and the roles
    holds/NAME.json                 of a boot server: the run that changes something now, see holds

A run that is killed at any point leaves at most hidden files, and blobs that no image names. The next ``publish``
removes the former, and ``garbage.collect`` removes both.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.common.disk import (
    sync_directory,
    temporary_of,
    write_atomic,
    write_synced,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import (
    CHUNK_BYTES,
    DIGEST,
    make_folder,
    remove_if_there,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.names import checked_digest, checked_name
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import manifest as manifests

BLOBS, IMAGES, CURRENT, CHANNELS, NODES, IDENTITY = "blobs", "images", "current", "channels", "nodes", "identity"
HOLDS = "holds"
MANIFEST, SIGNATURE, BOOT_SCRIPT = "manifest.json", "manifest.json.minisig", "boot.ipxe"
BOOT_PROGRAM, PREDICTION = "boot.efi", "pcrs.json"
# The names in a store. It may be a separate file system, which has lost+found.
ITS_OWN = {BLOBS, IMAGES, CURRENT, CHANNELS, NODES, IDENTITY, HOLDS, "lost+found"}
# The names that files.temporary_of makes.
LEFT_BEHIND = re.compile(r"\..+\.new")
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
REBUILD = "build the image again"
MAKE_ROOM = "free some space there, or remove unused images: node_image_store with collected: true"
# Most file systems allocate space in blocks of 4 KiB; directories and the file system's own tables take some more.
BLOCK_BYTES = 4096
MARGIN_BYTES = 1 << 20
LOCK_WAIT_S = 30.0
LOCK_LOOK_S = 0.1


@dataclass(frozen=True)
class Store:
    """The store at ``path``. All methods raise ImageError, also for errors of the system."""

    path: str

    @property
    def subject(self) -> str:
        """The name of the store in error messages."""
        return f"store {self.path}"

    def place(self, *names: str) -> str:
        """Return the path of something in the store."""
        return os.path.join(self.path, *names)

    def require(self) -> None:
        """Raise ImageError if the path is no store."""
        for name in (BLOBS, IMAGES):
            if not os.path.isdir(self.place(name)):
                raise ImageError(
                    f"not a store, it has no directory {name}",
                    "give the path of a store, or build an image",
                    subject=self.subject,
                )

    def images(self) -> list[str]:
        """Return the digests of all images, sorted."""
        self.require()
        return [name for name in self.entries(IMAGES) if DIGEST.fullmatch(name)]

    def blobs(self) -> dict[str, int]:
        """Return sha256 -> bytes of all blobs, sorted."""
        self.require()
        with self.reported():
            return {
                name: os.stat(self.place(BLOBS, name)).st_size for name in self.entries(BLOBS) if DIGEST.fullmatch(name)
            }

    def manifest(self, digest: str) -> manifests.Manifest:
        """Return the manifest of the image with this digest; the digest is checked."""
        data = self.read(digest, MANIFEST)
        actual = manifests.digest(data)
        if actual != digest:
            raise ImageError(
                f"its manifest was changed, the digest is {actual}",
                "remove the image's directory, and publish or copy it again",
                subject=f"{self.subject}: image {digest}",
            )
        return manifests.load(data, f"{self.subject}: image {digest}")

    def read(self, digest: str, name: str) -> bytes:
        """Return the bytes of one of an image's files: MANIFEST, SIGNATURE or BOOT_SCRIPT."""
        self.require()
        checked_digest(digest, self.subject)
        if not os.path.isdir(self.place(IMAGES, digest)):
            raise ImageError(
                f"has no image {digest}", "build or copy it, or use an image that the store has", subject=self.subject
            )
        data = self.contents(IMAGES, digest, name)
        if data is None:
            raise ImageError(
                f"has no {name}", "publish or copy the image again", subject=f"{self.subject}: image {digest}"
            )
        return data

    def missing_blobs(self, manifest: manifests.Manifest) -> set[str]:
        """Return the sha256 of the image's blobs that are missing or have a wrong size."""
        sizes = manifest.boot_blobs()
        present = self.blobs()
        return {
            sha256 for sha256 in manifest.blobs() if present.get(sha256) != sizes.get(sha256, present.get(sha256, -1))
        }

    def current(self, name: str) -> str | None:
        """Return the digest of the last build of the image ``name``; None before the first."""
        checked_name(name, "image")
        data = self.contents(CURRENT, name)
        if data is None:
            return None
        return checked_digest(data.decode("ascii", "replace").rstrip("\n"), f"{self.subject}: {CURRENT}/{name}")

    def currents(self) -> dict[str, str]:
        """Return image name -> digest of its last build."""
        digests = {name: self.current(name) for name in self.entries(CURRENT) if not name.startswith(".")}
        return {name: digest for name, digest in digests.items() if digest is not None}

    def publish(
        self,
        manifest_bytes: bytes,
        signature_bytes: bytes,
        boot_script: bytes,
        blobs: Mapping[str, str | os.PathLike[str]],
        boot_program: bytes = b"",
        prediction: bytes = b"",
    ) -> str:
        """Put an image into the store and make it its name's current one; return its digest.

        ``boot_program`` is the image's signed UKI, and ``prediction`` what its boot measures; both are empty without
        Secure Boot, and those that are there stay then.

        ``blobs``: sha256 -> file, for at least the blobs that the store does not have. They are copied, and their
        digests are compared with their names. If anything is refused or fails, the store stays as it was.
        """
        manifest = manifests.load(manifest_bytes, "manifest to publish")
        digest = manifests.digest(manifest_bytes)
        subject = f"{self.subject}: image {manifest.name} {digest[:12]}"
        if not signature_bytes or not boot_script:
            raise ImageError("no signature or no boot script", "give both", subject=subject)
        unlisted = sorted(set(blobs) - manifest.blobs())
        if unlisted:
            raise ImageError(
                f"blob {unlisted[0]} does not belong to this image",
                "give those that its manifest names",
                subject=subject,
            )
        files = {MANIFEST: manifest_bytes, SIGNATURE: signature_bytes, BOOT_SCRIPT: boot_script}
        files.update({name: data for name, data in ((BOOT_PROGRAM, boot_program), (PREDICTION, prediction)) if data})
        self._require_ours()
        if not os.path.isdir(self.path):
            self._require_room(subject, {sha256: _size(source, subject) for sha256, source in blobs.items()}, files)
        with self._folders(), self.locked():
            self.sweep()
            missing = self.missing_blobs(manifest)
            absent = sorted(missing - set(blobs))
            if absent:
                raise ImageError(f"blob {absent[0]} is neither in the store nor given", REBUILD, subject=subject)
            sizes = {sha256: _size(blobs[sha256], subject) for sha256 in sorted(missing)}
            for sha256, size in manifest.boot_blobs().items():
                if sizes.get(sha256, size) != size:
                    cause = f"{blobs[sha256]} has {sizes[sha256]} bytes, the manifest says {size}"
                    raise ImageError(cause, REBUILD, subject=subject)
            self._require_room(subject, sizes, files)
            self._put(subject, manifest.name, digest, files, {sha256: blobs[sha256] for sha256 in sizes})
        return digest

    @contextlib.contextmanager
    def _folders(self) -> Iterator[None]:
        """Make the directories of a store; remove those made here if the ``with`` block fails."""
        created = []
        with self.reported():
            os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
            for folder in (self.path, self.place(BLOBS), self.place(IMAGES), self.place(CURRENT)):
                if not os.path.isdir(folder):
                    make_folder(folder)
                    created.append(folder)
        try:
            yield
        except BaseException:
            for folder in reversed(created):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
            raise

    def _put(
        self,
        subject: str,
        name: str,
        digest: str,
        files: Mapping[str, bytes],
        blobs: Mapping[str, str | os.PathLike[str]],
    ) -> None:
        """Write new files under temporary names, then rename them: blobs, the image's directory, ``current/NAME``."""
        image, current = self.place(IMAGES, digest), self.place(CURRENT, name)
        exists = os.path.isdir(image)
        written: list[str] = []
        try:
            with self.reported():
                for sha256, source in blobs.items():
                    _copy(source, temporary_of(self.place(BLOBS, sha256)), sha256, subject)
                if not exists:
                    make_folder(temporary_of(image))
                    for file, data in files.items():
                        write_synced(os.path.join(temporary_of(image), file), data)
                    sync_directory(temporary_of(image))
                write_synced(temporary_of(current), f"{digest}\n".encode())
                for sha256 in blobs:
                    blob = self.place(BLOBS, sha256)
                    if not os.path.lexists(blob):
                        written.append(blob)
                    os.replace(temporary_of(blob), blob)
                sync_directory(self.place(BLOBS))
                if exists:
                    for file, data in files.items():
                        if not _holds(os.path.join(image, file), data):
                            write_atomic(os.path.join(image, file), data)
                else:
                    os.rename(temporary_of(image), image)
                    sync_directory(self.place(IMAGES))
                if _holds(current, f"{digest}\n".encode()):
                    os.remove(temporary_of(current))
                else:
                    os.replace(temporary_of(current), current)
                    sync_directory(self.place(CURRENT))
        except BaseException:
            if not os.path.isdir(image):
                for blob in written:
                    remove_if_there(blob)
            self.sweep()
            raise

    def sweep(self) -> None:
        """Remove the files that killed runs left behind. Call it only under ``locked``."""
        with self.reported():
            for path in self.left_behind():
                if os.path.isdir(self.place(path)):
                    shutil.rmtree(self.place(path))
                else:
                    os.remove(self.place(path))

    def left_behind(self) -> list[str]:
        """Return the paths in the store of files that killed runs left behind."""
        folders = [BLOBS, CHANNELS, CURRENT, HOLDS, IMAGES, NODES]
        folders += [os.path.join(IMAGES, digest) for digest in self.images()]
        return [
            os.path.join(folder, name)
            for folder in folders
            for name in self.entries(folder)
            if LEFT_BEHIND.fullmatch(name)
        ]

    def entries(self, folder: str) -> list[str]:
        """Return the names in one of the store's directories, sorted; none if the directory does not exist."""
        with self.reported():
            try:
                return sorted(os.listdir(self.place(folder)))
            except FileNotFoundError:
                return []

    def contents(self, *names: str) -> bytes | None:
        """Return the bytes of a file of the store; None if there is none."""
        with self.reported():
            try:
                with open(self.place(*names), "rb") as stream:
                    return stream.read()
            except FileNotFoundError:
                return None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the store for changes; wait up to LOCK_WAIT_S seconds for another run to finish."""
        with self.reported():
            folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            until = time.monotonic() + LOCK_WAIT_S
            while True:
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= until:
                        raise ImageError(
                            "another run is changing it", "run again when that has finished", subject=self.subject
                        ) from None
                    time.sleep(LOCK_LOOK_S)
            yield
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def reported(self) -> Iterator[None]:
        """Turn an OSError into an ImageError."""
        try:
            yield
        except OSError as error:
            reason = f"{error.strerror}: {error.filename}" if error.filename else f"{error.strerror}"
            remedy = MAKE_ROOM if error.errno in NO_ROOM else "run as the user who owns it, and check the disk"
            raise ImageError(reason, remedy, subject=self.subject) from error

    def _require_ours(self) -> None:
        """Raise ImageError for a directory with other files in it; a missing or empty one becomes a store."""
        if os.path.isdir(self.path):
            foreign = sorted(set(self.entries("")) - ITS_OWN)
            if foreign and not os.path.isdir(self.place(IMAGES)):
                raise ImageError(
                    f"not a store, it contains {foreign[0]}",
                    "give the path of a store or an empty directory",
                    subject=self.subject,
                )
        elif os.path.lexists(self.path):
            raise ImageError("not a directory", "give the path of a store or an empty directory", subject=self.subject)

    def _require_room(self, subject: str, sizes: Mapping[str, int], files: Mapping[str, bytes]) -> None:
        """Raise ImageError if the data does not fit; ``sizes`` in bytes."""
        needed = MARGIN_BYTES
        for size in [*sizes.values(), *(len(data) for data in files.values())]:
            needed += -(-size // BLOCK_BYTES) * BLOCK_BYTES
        folder = os.path.abspath(self.path)
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        with self.reported():
            usage = os.statvfs(folder)
        free = usage.f_bavail * usage.f_frsize
        if needed > free:
            raise ImageError(f"needs {needed} bytes, but {free} are free", MAKE_ROOM, subject=subject)


def _size(path: str | os.PathLike[str], subject: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise ImageError(f"cannot read {path}: {error.strerror}", REBUILD, subject=subject) from error


def _copy(source: str | os.PathLike[str], path: str, sha256: str, subject: str) -> None:
    digest = hashlib.sha256()
    with open(source, "rb") as stream, open(path, "wb") as copy:
        for chunk in iter(lambda: stream.read(CHUNK_BYTES), b""):
            digest.update(chunk)
            copy.write(chunk)
        copy.flush()
        os.fchmod(copy.fileno(), 0o644)
        os.fsync(copy.fileno())
    if digest.hexdigest() != sha256:
        cause = f"{source} has sha256 {digest.hexdigest()}, the manifest says {sha256}"
        raise ImageError(cause, "check the disk, remove this file, and build the image again", subject=subject)


def _holds(path: str, data: bytes) -> bool:
    try:
        with open(path, "rb") as stream:
            return stream.read() == data
    except FileNotFoundError:
        return False
