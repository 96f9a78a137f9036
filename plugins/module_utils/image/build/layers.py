# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build one layer from its parents and its request, and keep it in the cache."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import (
    role_digest,
    roles_in,
    squashfs,
    tree_contents,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layer_inputs import layer_inputs
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.caches import Caches
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import canonical_json, sha256_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Layer, Role
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.process import without_credentials
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import (
    LOG_NAMED,
    Run,
    file_inside,
    inside,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.registry import family_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.formats.listing import listing
from ansible_collections.sailloft.fleet.plugins.module_utils.image.oci.layout import Layout
from ansible_collections.sailloft.fleet.plugins.module_utils.image.oci.unpack import unpack
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request import forbidden, private_keys
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.manifest import Kernel, ManifestLayer

SQUASHFS, LISTING, RECORD, VMLINUZ = "layer.squashfs", "listing.json", "layer.json", "vmlinuz"
# A published layer has no kernel in /boot, but packages' scripts look for its files: the postinst of Ubuntu's signed
# modules runs depmod with this one.
SYMBOLS = "System.map"
MOST_LOG_BYTES = 1 << 20  # of a log in the tree; the log of a whole build of the kernel has some 100 kB
# dkms(8) reads its settings as bash code; the last file by name has precedence.
DKMS_FILE = "etc/dkms/framework.conf.d/zz-sailloft-build.conf"
# Without a key, DKMS would make a random one and sign modules with it: each build would have other bytes, and no
# firmware knows the key. The two paths are those where dkms 3 looks for a key (Debian and EL; Ubuntu).
DKMS_TEXT = """\
[ -n "$mok_signing_key" ] || [ -f /var/lib/dkms/mok.key ] || [ -f /var/lib/shim-signed/mok/MOK.priv ] ||
    sign_file=/nonexistent
"""


@dataclass(frozen=True)
class LayerRequest:
    """A requested layer with everything that its bytes depend on. ``epoch`` is in s since 1970."""

    layer: Layer
    key: str
    digests: Mapping[str, str]
    inputs: Mapping[str, Any]
    epoch: int
    base_image: Layout | None = None


@dataclass(frozen=True)
class Built:
    """A layer in the cache: its files are in ``folder``. ``kernel`` is None if the layer brings none."""

    folder: Path
    entry: ManifestLayer
    packages: tuple[dict[str, str], ...]  # of this layer and those below
    kernel: Kernel | None


def content_digests(layer: Layer) -> dict[str, str]:
    """Return the sha256 of files by path and of roles by name, as ``layer_inputs`` takes them.

    Raises ImageError for a file that cannot be read, and for a private key.
    """
    digests = {}
    keys = {file.path: private_keys.kind_of(file.content.encode()) for file in layer.files if file.content is not None}
    for path, source in layer.sources().items():
        try:
            digests[path] = sha256_of(source)
            keys[path] = private_keys.kind_of_file(source)
        except OSError as error:
            raise ImageError(
                f"cannot read {source}: {error.strerror}",
                "give a file on the build host",
                subject=f"layer {layer.name}: file {path}",
            ) from error
    private_keys.refuse(
        f"layer {layer.name}: files", {path: kind for path, kind in keys.items() if kind}, layer.published_keys
    )
    for role in layer.roles:
        digests[role.name] = _role_digest(role)
    return digests


def _role_digest(role: Role) -> str:
    """Return the digest of the role's files and of the build host's files that its variables name by absolute path."""
    digest = role_digest.content_digest(role.name)
    digests_by_path = {name: sha256_of(name) for name in roles_in.named_files(role)}
    return hashlib.sha256(canonical_json([digest, digests_by_path])).hexdigest() if digests_by_path else digest


def require_unchanged(request: LayerRequest) -> None:
    """Raise ImageError if the layer's files or roles differ from those that its key was computed from."""
    now = layer_inputs(request.layer, content_digests(request.layer))
    for kind, name in (("files", "path"), ("roles", "name")):
        for old, new in zip(request.inputs[kind], now[kind]):
            if old != new:
                raise ImageError(
                    f"its {kind[:-1]} {old[name]} was changed while the layer was built",
                    "run again",
                    subject=f"layer {request.layer.name}",
                )


def find(cache: Path, key: str) -> Built | None:
    """Return the layer with this key; None if it was not built before, or one of its files is missing or truncated."""
    folder = cache / "layers" / key
    try:
        record = json.loads((folder / RECORD).read_text())
        entry: ManifestLayer = stored.build(ManifestLayer, record["entry"])
        kernel: Kernel | None = stored.build(Kernel, record["kernel"]) if record["kernel"] else None
        sizes = {SQUASHFS: entry.size_bytes, **({VMLINUZ: kernel.size_bytes} if kernel else {})}
        if any((folder / name).stat().st_size != size for name, size in sizes.items()):
            return None
        (folder / LISTING).stat()
    except (FileNotFoundError, ValueError, KeyError, TypeError, StoredError):
        return None
    os.utime(folder)  # records the last use
    return Built(folder, entry, tuple(record["packages"]), kernel)


def built(cache: Path, request: LayerRequest) -> Built:
    """Return a layer that this build found in the cache or put there. Raises ImageError if it is not there any more."""
    folder = find(cache, request.key)
    if folder is None:
        raise ImageError(
            f"{cache / 'layers' / request.key} was removed or truncated while the image was built",
            "do not change node_image_cache_dir during a build, and run again",
            subject=f"layer {request.layer.name}",
        )
    return folder


def build(
    cache: Path, work: Path, request: LayerRequest, lower_layers: list[Built], progress: Callable[[str], object]
) -> Built:
    """Build the layer on top of ``lower_layers`` (lowest first) and put it into the cache, completely or not at all.

    ``work`` is an empty directory; the caller must remove it. Raises ImageError.
    """
    root = work / "root"
    with _kept_log(cache, request.layer, root) as log:
        run = Run(f"layer {request.layer.name}", progress, {"SOURCE_DATE_EPOCH": str(request.epoch)}, log)
        return _build(cache, work, root, request, lower_layers, run)


@contextlib.contextmanager
def _kept_log(cache: Path, layer: Layer, root: Path) -> Iterator[Path]:
    """Yield the file for the output of the layer's tools. An error names it; the next build of the layer removes it.

    The logs in ``root`` that the output names are added to it, since the tree is removed.
    """
    log = cache / "logs" / f"{layer.name}.log"
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    try:
        yield log
    except ImageError as error:
        if not log.exists():
            raise
        with contextlib.suppress(OSError), log.open("a", encoding="utf-8") as stream:
            for name in dict.fromkeys(LOG_NAMED.findall(log.read_text(encoding="utf-8", errors="replace"))):
                path = file_inside(root, name)
                text = path.read_bytes()[-MOST_LOG_BYTES:].decode(errors="replace") if path else ""
                stream.write(f"\n{name}:\n{without_credentials(text)}")
        raise ImageError(error.cause, f"{error.remedy}; the whole output is in {log}", subject=error.subject) from error
    log.unlink(missing_ok=True)


def _build(cache: Path, work: Path, root: Path, request: LayerRequest, lower_layers: list[Built], run: Run) -> Built:
    layer, subject, progress = request.layer, run.subject, run.progress
    os.environ["SOURCE_DATE_EPOCH"] = str(request.epoch)
    family = family_of(layer.distribution)
    parent = work / "parent"
    if lower_layers:
        lower = mount_chain(work, lower_layers, run)
        squashfs.mount_overlay(lower, None, parent, work, run)
        squashfs.mount_overlay(lower, work / "upper", root, work / "overlay", run)
        tree = work / "upper"
    else:
        if request.base_image:
            unpack(request.base_image, root, work, layer, run)
        else:
            root.mkdir(mode=0o755)
        tree = root
    lent = {**lend_kernel(root, lower_layers), **lend_dkms_setting(root)}
    if layer.packages:
        progress(f"{subject}: installing {_count(len(layer.packages), 'package')} and dependencies")
    caches = Caches({name: cache / path for name, path in family.caches(layer, request.digests).items()}, work)
    family.install(root, layer, run, request.digests, caches)
    if layer.users or layer.files or any(asdict(layer.services).values()):
        progress(f"{subject}: users, files, services")
    tree_contents.apply(root, layer, run)
    if layer.roles:
        # Variables of roles may be secret: this tmpfs ends with the build's namespace, even if the build is killed.
        memory = work / "memory"
        memory.mkdir()
        run(["mount", "-t", "tmpfs", "-o", "mode=0700,nosuid,nodev", "tmpfs", memory])
    for role in layer.roles:
        progress(f"{subject}: role {role.name}")
        # A role that installs packages has the archives' lists, and what it downloads is no part of the layer.
        with caches.lent(root, run) if layer.network else contextlib.nullcontext():
            roles_in.apply(
                root,
                [role],
                run.process,
                layer.name,
                script_failure=family.script_failure,
                memory=memory,
                network=layer.network,
            )
    require_unchanged(request)
    packages = family.packages(root, run)
    output = work / "out"
    output.mkdir()
    for name, digest in lent.items():
        # A package may have brought another kernel of the same version, or links in the place of directories.
        path = inside(root, name)
        if path.is_file() and not path.is_symlink() and sha256_of(path) == digest:
            path.unlink()
    if not inside(root, "etc/dkms/framework.conf").exists():
        for name in ("etc/dkms/framework.conf.d", "etc/dkms"):
            with contextlib.suppress(OSError):
                inside(root, name).rmdir()
    kernel = take_kernel(root, output, subject)
    family.clean(root, run)
    forbidden.normalise(root, request.epoch)
    if lower_layers:
        run(["umount", root])
        forbidden.prune(tree, parent, request.epoch)
        run(["umount", parent])
    else:
        os.utime(tree, (request.epoch, request.epoch))
    keys = private_keys.keys_in(tree)
    if keys:
        # A key that comes unchanged from a package's archive is known to all.
        packaged = family.packaged_files(tree, keys, run)
        private_keys.refuse(subject, {path: keys[path] for path in keys if path not in packaged}, layer.published_keys)
    progress(f"{subject}: writing the squashfs")
    file = output / SQUASHFS
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        listed = pool.submit(listing, tree)
        squashfs.pack(tree, file, request.epoch, run)
    # The salt is derived from the key, so that an attacker cannot prepare blocks for many layers at once, and so that
    # two builds have the same salt.
    verity = squashfs.append_verity(file, hashlib.sha256(f"sailloft-verity {request.key}".encode()).hexdigest(), run)
    data = canonical_json(listed.result())
    (output / LISTING).write_bytes(data)
    entry = ManifestLayer(
        name=layer.name,
        key=request.key,
        sha256=sha256_of(file),
        size_bytes=file.stat().st_size,
        listing_sha256=hashlib.sha256(data).hexdigest(),
        verity=verity,
        inputs={**request.inputs, "release_digests": dict(request.digests), "source_date_epoch": request.epoch},
    )
    record = {"entry": asdict(entry), "packages": packages, "kernel": asdict(kernel) if kernel else None}
    (output / RECORD).write_bytes(canonical_json(record))
    keep(output, cache / "layers" / request.key)
    progress(f"{subject}: {entry.size_bytes / 1e6:.1f} MB, {entry.sha256[:12]}")
    return built(cache, request)


def keep(output: Path, place: Path) -> None:
    """Move a complete layer to its place in the cache, and replace a damaged one there."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        shutil.rmtree(place)
    _synced(output)
    os.rename(output, place)


def mount_chain(work: Path, chain: list[Built], run: Run) -> list[Path]:
    """Mount the squashfs of each layer (lowest first) under ``work``; return the mount points, highest first."""
    places: list[Path] = []
    for index, part in enumerate(chain):
        place = work / f"lower-{index}"
        squashfs.mount_read_only(part.folder / SQUASHFS, place, run)
        places.insert(0, place)
    return places


def lend_kernel(root: Path, lower_layers: list[Built]) -> dict[str, str]:
    """Put the files of the kernels below into ``root``'s /boot while a layer is built; return their digests."""
    lent = {}
    for part in lower_layers:
        if part.kernel is None:
            continue
        for source in filter(Path.exists, (part.folder / VMLINUZ, part.folder / SYMBOLS)):
            name = f"boot/{source.name}-{part.kernel.version}"
            lent[name] = _lend(root, name, source.read_bytes())
    return lent


def lend_dkms_setting(root: Path) -> dict[str, str]:
    """Make DKMS sign modules with the site's key or not at all while a layer is built; return the file's digest."""
    return {DKMS_FILE: _lend(root, DKMS_FILE, DKMS_TEXT.encode())}


def _lend(root: Path, name: str, data: bytes) -> str:
    """Write a file into the tree, in the place of a link of that name; return its digest."""
    path = inside(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def take_kernel(root: Path, output: Path, subject: str) -> Kernel | None:
    """Copy the tree's kernel to ``output``. The trees of layers below no longer have one."""
    files: dict[str, Path] = {}
    boot, modules = (inside(root, name, follow=True) for name in ("boot", "lib/modules"))
    places = [(path.name[len("vmlinuz-") :], f"boot/{path.name}") for path in boot.glob("vmlinuz-*")]
    places += [(path.name, f"lib/modules/{path.name}/vmlinuz") for path in modules.glob("*")]
    for version, name in places:
        path = file_inside(root, name)
        if path and inside(root, f"lib/modules/{version}", follow=True).is_dir():
            files[version] = path
    if len(files) > 1:
        raise ImageError(
            f"has {len(files)} kernels: {', '.join(sorted(files))}",
            "an image boots one kernel; list one kernel package in packages",
            subject=subject,
        )
    for version, path in files.items():
        shutil.copyfile(path, output / VMLINUZ)
        symbols = file_inside(root, f"boot/{SYMBOLS}-{version}")
        if symbols:
            shutil.copyfile(symbols, output / SYMBOLS)
        return Kernel(version, sha256_of(output / VMLINUZ), path.stat().st_size)
    return None


def _synced(folder: Path) -> None:
    """Wait until all files are on the disk, so that the cache has only complete layers after a power loss."""
    for path in [*folder.iterdir(), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
