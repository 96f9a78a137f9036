# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Get container images into the cache, by digest: skopeo copies from registries, in a room with the network.

Archives are read here: skopeo finds an image in one by its name only, and these may have several or none.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import CHUNK_BYTES
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Layer, OciImage
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.room import entered
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import Run, ToolError, tail
from ansible_collections.sailloft.fleet.plugins.module_utils.image.oci import layout

TOOLS = ("skopeo", "umoci")
# The limit of containers/image, and of registries, for a manifest.
MOST_BYTES = 4 << 20
# As for the downloads of packages (families/downloads.py).
LEAST_BYTES_PER_S = 65536
WINDOW_S = 60
# What the message of skopeo, or of its room, says -> the next step.
REMEDIES = {
    "Can't find source path": "write auth_file on the build host with skopeo login --authfile FILE",
    "x509|tls: ": "have the build host trust the registry's CA (update-ca-certificates); verify_tls: false accepts any",
    "unauthorized|authentication required|denied": "give credentials in auth_file (skopeo login --authfile FILE)",
    "manifest unknown|not found|name unknown": "correct the name or the digest; a registry may have removed it",
    "Digest did not match|does not match provided manifest digest|unexpected EOF": "the registry or a proxy sent other "
    "bytes: run again, or use another registry",
    "no image found in manifest list": "use an image for the layer's architecture, or correct architecture",
    "server gave HTTP response to HTTPS": "give the registry a certificate; verify_tls: false also accepts HTTP",
    "(?i)no space left": "free some space where node_image_cache_dir is",
}
# The message of skopeo's last line (logrus).
MESSAGE = re.compile(r'level=fatal msg="((?:[^"\\]|\\.)*)"')
# The parameters of a URL may be a permission to read a blob for some minutes.
PARAMETERS = re.compile(r"\?[^\s\"']+")


def cached(layer: Layer, cache: Path) -> layout.Layout:
    """Return the layer's container image, which ``fetch`` has put into the cache. Raises ImageError."""
    return layout.read(_place(layer, cache), layer)


def fetch(layer: Layer, cache: Path, work: Path, run: Run) -> None:
    """Get the layer's container image into the cache, unless it is there, completely or not at all.

    ``work`` is an empty directory on the same file system. Raises ImageError.
    """
    place = _place(layer, cache)
    if place.exists():
        os.utime(place)  # records the last use
        return
    partial = work / "layout"
    partial.mkdir()
    oci = _oci(layer)
    if oci.archive:
        _read_archive(oci.archive, oci.digest, layer, partial)
    else:
        run.progress(f"{layer.subject}: fetching {oci.reference}")
        _copy(oci, layer, partial, work, run)
    layout.read(partial, layer)
    os.sync()
    place.parent.mkdir(exist_ok=True)
    os.rename(partial, place)


def _oci(layer: Layer) -> OciImage:
    if layer.oci is None:
        raise ImageError("it begins with no container image", "set oci", subject=layer.subject)
    return layer.oci


def _place(layer: Layer, cache: Path) -> Path:
    # A list of manifests has one for each architecture.
    return cache / "oci" / f"{_oci(layer).digest[7:]}-{layout.ARCHITECTURES[layer.architecture]}"


def _copy(oci: OciImage, layer: Layer, partial: Path, work: Path, run: Run) -> None:
    """Have skopeo copy an image of a registry, whose digests it verifies, into a layout. Raises ImageError."""
    subject = layout.subject_of(layer)
    command = [
        # The digest says more than a policy of signatures on the build host.
        *("skopeo", "--insecure-policy"),
        *("--override-os", "linux", "--override-arch", layout.ARCHITECTURES[layer.architecture]),
        *("--tmpdir", f"{partial}", "copy", "--quiet", "--retry-times", "3", "--dest-oci-accept-uncompressed-layers"),
        f"--src-tls-verify={str(oci.verify_tls).lower()}",
        *(["--src-authfile", oci.auth_file] if oci.auth_file else ["--src-no-creds"]),
        *(f"docker://{oci.reference}", f"oci:{partial}:{layout.NAME}"),
    ]
    room = work / "room"
    room.mkdir()
    readable = [Path(oci.auth_file)] if oci.auth_file else []
    try:
        run(entered(room, command, True, readable, [partial]), fault=too_slow(partial, subject))
    except ToolError as error:
        match = MESSAGE.search(error.output)
        message = match[1].replace('\\"', '"') if match else tail(error.output)
        cause = PARAMETERS.sub("?...", message.rpartition(f"docker://{oci.reference}: ")[2])
        remedies = (remedy for pattern, remedy in REMEDIES.items() if re.search(pattern, cause))
        raise ImageError(
            f"skopeo cannot copy it: {cause}",
            next(remedies, "check the name, and the network and the proxy of the build host"),
            subject=subject,
        ) from error


def too_slow(folder: Path, subject: str) -> Callable[[], ImageError | None]:
    """Return a function that returns an error once ``folder`` grows too slowly: skopeo waits for ever."""
    began_s, old_bytes = time.monotonic(), 0

    def fault() -> ImageError | None:
        nonlocal began_s, old_bytes
        passed_s = time.monotonic() - began_s
        if passed_s < WINDOW_S:
            return None
        try:
            new_bytes = sum(path.stat().st_size for path in folder.rglob("*"))
        except FileNotFoundError:
            return None  # a blob was just complete and moved
        grown_bytes = new_bytes - old_bytes
        began_s, old_bytes = time.monotonic(), new_bytes
        # Less than before: skopeo tries again, without what it had of a blob.
        if not 0 <= grown_bytes < LEAST_BYTES_PER_S * passed_s:
            return None
        return ImageError(
            f"it was received at {grown_bytes / passed_s:.0f} bytes/s for {passed_s:.0f} s, "
            f"less than the minimum of {LEAST_BYTES_PER_S} bytes/s",
            "check the registry and the network, and run again",
            subject=subject,
        )

    return fault


def _read_archive(path: str, digest: str, layer: Layer, partial: Path) -> None:
    """Copy the image with this digest from an archive of a layout into a layout. Raises ImageError."""
    subject = layout.subject_of(layer)
    blobs = partial / "blobs/sha256"
    blobs.mkdir(parents=True)
    try:
        with tarfile.open(path, "r:") as archive:
            files = {member.name.removeprefix("./"): member for member in archive}

            def copy(blob: str) -> Path:
                target = blobs / layout.checked(blob)[7:]
                member = files.get(f"blobs/sha256/{target.name}")
                stream = archive.extractfile(member) if member else None
                if stream is None:
                    raise LookupError(f"it has no blob {blob}")
                sha256 = hashlib.sha256()
                with target.open("wb") as file:
                    while chunk := stream.read(CHUNK_BYTES):
                        sha256.update(chunk)
                        file.write(chunk)
                if sha256.hexdigest() != target.name:
                    raise ImageError(
                        f"its blob {blob} has other bytes than its digest says",
                        "copy the archive again",
                        subject=subject,
                    )
                return target

            def document(blob: str) -> bytes:
                with copy(blob).open("rb") as file:
                    return file.read(MOST_BYTES)

            manifest_digest = layout.manifest_of(digest, layer.architecture, document)
            manifest = document(manifest_digest)
            parts = json.loads(manifest)
            for item in [parts["config"], *parts["layers"]]:
                copy(item["digest"])
    except OSError as error:
        raise ImageError(
            f"it cannot be copied into the cache: {error.strerror or error}",
            "make it a file of the build host, or free some space where node_image_cache_dir is",
            subject=subject,
        ) from error
    except (LookupError, TypeError, ValueError, AttributeError, EOFError, tarfile.TarError) as error:
        reason = error.args[0] if isinstance(error, LookupError) and error.args else error
        raise ImageError(
            f"the archive does not have it: {str(reason)[:200]}",
            "save the image with skopeo copy SOURCE oci-archive:FILE, and give the digest that "
            "skopeo inspect prints of FILE",
            subject=subject,
        ) from error
    descriptor = {
        "mediaType": layout.MANIFEST,
        "digest": manifest_digest,
        "size": len(manifest),
        "annotations": {layout.REF_NAME: layout.NAME},
    }
    (partial / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [descriptor]}))
    (partial / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
