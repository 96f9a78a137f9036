# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build images as requested: find the layers in the cache, build those that are missing, publish what is new."""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import hashlib
import http.client
import json
import os
import platform
import shutil
import sys
import time
import urllib.error
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import debian, dnf, layers, sbom
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layer_keys import BUILD_FORMAT, layer_key
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layers import Built, Wish, builder_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.squashfs import mount_overlay
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import tools
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import canonical_json, sha256_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.namespace import isolated
from ansible_collections.sailloft.fleet.plugins.module_utils.image.first_stage import initramfs, userland
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.spec import Image
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import boot_script
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import changes, manifest, sign
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.manifest import (
    FirstStage,
    Kernel,
    Manifest,
    Package,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import BLOBS, SIGNATURE, Store

TOOLS = ("mount", "umount", "unshare", "mksquashfs", "veritysetup", "systemctl", "chroot", "minisign", "zstd")
TOOLS_OF = {debian: debian.TOOLS, dnf: ("dnf", "rpm", "busybox", "dmsetup")}
# RPM archives have none of the first stage's programs: those of the build host are used.
OWN_PROGRAMS = Path("/")
FETCH_TIMEOUT_S = 60
# The whole of such a file, which has some hundred kilobytes.
FETCH_DEADLINE_S = 120
UNUSED_S = 30 * 86400  # what no build has used for this long is removed from the cache


@dataclass(frozen=True)
class Setting:
    """The places where images are built and published.

    ``init`` is the text of the first stage's script, ``open_url`` opens a URL as Ansible's function of that name does.
    """

    store: Path
    cache: Path
    secret_key: Path
    public_key: Path
    password: str | None
    init: str
    check: bool
    open_url: Callable[..., Any]


@dataclass(frozen=True)
class Outcome:
    """The result for one image: ``built`` names the layers that were not in the cache."""

    name: str
    digest: str
    changed: bool
    built: tuple[str, ...]
    diff: tuple[str, ...]
    size_bytes: int


def build(images: Mapping[str, Image], setting: Setting, progress: Callable[[str], object]) -> list[Outcome]:
    """Bring the store to the requested images.

    Raises ImageError; the store then has the images that were complete before.

    With ``setting.check``, new layers are built into the cache, and the store stays as it is.
    """
    if os.geteuid() != 0:
        raise ImageError(
            "the build",
            "needs root, for files' owners and overlay mounts",
            "run it with become: true on the build host",
        )
    tools.require(*TOOLS)
    for image in images.values():
        tools.require(*TOOLS_OF[builder_of(image.layers[0])])
    # ansible-playbook, for roles, lies beside the Python that runs this.
    os.environ["PATH"] = f"{os.path.dirname(sys.executable)}:{tools.search_path()}"
    public_key = sign.read_public_key(setting.public_key)
    with _locked(setting.cache, ", ".join(images)):
        work = setting.cache / "work"
        _remove(work)
        work.mkdir()
        try:
            return _build_all(images, setting, public_key, work, progress)
        finally:
            _remove(work)
            _sweep(setting.cache)


def _build_all(
    images: Mapping[str, Image], setting: Setting, public_key: str, work: Path, progress: Callable[[str], object]
) -> list[Outcome]:
    fetch = _Fetcher(setting.open_url)
    wishes = _wishes(images, fetch)
    chains = {name: [wishes[layer.name] for layer in image.layers] for name, image in images.items()}
    missing = [wish for wish in wishes.values() if not layers.find(setting.cache, wish.key)]
    stageless = {name for name, chain in chains.items() if not _has_stage(setting, public_key, chain)}

    def work_apart() -> None:
        # The parts of the first stages are fetched while the first layer is installed, which leaves cores idle.
        with concurrent.futures.ThreadPoolExecutor() as pool:
            userlands = _Userlands(setting.cache, work, pool)
            for name, chain in chains.items():
                if name in stageless:
                    userlands.start(chain[0], tools.Run(f"image {name}", progress))
            build_missing(userlands)

    def build_missing(userlands: _Userlands) -> None:
        for number, wish in enumerate(missing):
            chain = next(chain for chain in chains.values() if wish in chain)
            below = [layers.built(setting.cache, other) for other in chain[: chain.index(wish)]]
            place = work / f"layer-{number}"
            place.mkdir()
            layers.build(setting.cache, place, wish, below, progress)
        for name, chain in chains.items():
            place = work / f"first-stage-{name}"
            place.mkdir()
            _make_stage(name, setting, chain, public_key, place, userlands, progress)

    if missing or stageless:
        if not setting.check:
            # A key that cannot sign is reported before a long build, not after it.
            sign.sign(b"", setting.secret_key, public_key, setting.password)
        isolated(work_apart)
    outcomes = []
    for name, image in images.items():
        built = tuple(wish.layer.name for wish in chains[name] if wish in missing)
        outcomes.append(_publish(image, chains[name], built, setting, public_key, work, progress))
    return outcomes


def _wishes(images: Mapping[str, Image], fetch: _Fetcher) -> dict[str, Wish]:
    """Return layer name -> requested layer; a layer follows those below it."""
    found: dict[str, Wish] = {}
    for image in images.values():
        parent = None
        for layer in image.layers:
            if layer.name not in found:
                builder = builder_of(layer)
                digests = builder.release_digests(layer, fetch)
                content = layers.content_digests(layer)
                key = layer_key(layer, parent.key if parent else None, digests, content)
                epoch = builder.source_date_epoch(layer, fetch)
                found[layer.name] = Wish(layer, key, digests, layer.inputs(content), epoch)
            parent = found[layer.name]
    return found


class _Brought(NamedTuple):
    """A kernel and the layer that brings it, whose files lie in ``folder``."""

    wish: Wish
    folder: Path
    kernel: Kernel


def _has_stage(setting: Setting, public_key: str, chain: list[Wish]) -> bool:
    """Return whether the cache has the first stage; it is unknown until the layer that brings the kernel is built."""
    parts = [(wish, built) for wish in chain if (built := layers.find(setting.cache, wish.key))]
    brought = _highest_kernel(parts) if len(parts) == len(chain) else None
    return brought is not None and _stage_place(setting, public_key, chain, brought.wish).exists()


def _stage_place(setting: Setting, public_key: str, chain: list[Wish], wish: Wish) -> Path:
    """Return where the cache has the first stage for the kernel that ``wish``, a layer of the chain, brings."""
    # A layer's key says which of Debian's packages they are of.
    programs = "" if builder_of(wish.layer) is debian else userland.digest(OWN_PROGRAMS)
    text = canonical_json([BUILD_FORMAT, wish.key, chain[0].key, public_key, setting.init, programs])
    return setting.cache / "first-stages" / hashlib.sha256(text).hexdigest()


def _kernel_of(name: str, cache: Path, chain: list[Wish]) -> _Brought:
    brought = _highest_kernel([(wish, layers.built(cache, wish)) for wish in chain])
    if brought is None:
        raise ImageError(
            f"image {name}",
            f"no layer of it ({', '.join(wish.layer.name for wish in chain)}) has a kernel",
            "add a kernel to the packages of one, such as linux-image-amd64 or kernel",
        )
    return brought


def _highest_kernel(parts: list[tuple[Wish, Built]]) -> _Brought | None:
    brought = [_Brought(wish, built.folder, built.kernel) for wish, built in parts if built.kernel]
    return brought[-1] if brought else None


class _Userlands:
    """The trees of the first stages' programs, one for each lowest layer, unpacked in the background."""

    def __init__(self, cache: Path, work: Path, pool: concurrent.futures.Executor) -> None:
        self._cache, self._work, self._pool = cache, work, pool
        self._found: dict[str, concurrent.futures.Future[Path]] = {}

    def start(self, lowest: Wish, run: tools.Run) -> None:
        """Start to unpack the tree for this layer."""
        if lowest.key not in self._found:
            self._found[lowest.key] = self._pool.submit(self._unpack, lowest, run)

    def tree(self, lowest: Wish) -> Path:
        """Wait for the tree and return its path. Raises ImageError."""
        return self._found[lowest.key].result()

    def _unpack(self, lowest: Wish, run: tools.Run) -> Path:
        if builder_of(lowest.layer) is not debian:
            return OWN_PROGRAMS
        tree = self._work / f"userland-{lowest.key}"
        tree.mkdir()
        # apt locks its folders: others than the layers'.
        folders = debian.caches(lowest.layer, lowest.digests)
        folders = {name: f"{folder}-first-stage" for name, folder in folders.items()}
        with layers.mounted_caches(self._cache, tree, folders, run):
            debian.unpack(tree, userland.PACKAGES, lowest.layer, lowest.digests, run)
        return tree


def _make_stage(
    name: str,
    setting: Setting,
    chain: list[Wish],
    public_key: str,
    work: Path,
    userlands: _Userlands,
    progress: Callable[[str], object],
) -> None:
    wish, _folder, kernel = _kernel_of(name, setting.cache, chain)
    place = _stage_place(setting, public_key, chain, wish)
    if place.exists():
        return
    subject = f"image {name}"
    progress(f"{subject}: first stage for kernel {kernel.version}")
    run = tools.Run(subject, progress, {"SOURCE_DATE_EPOCH": str(wish.epoch)})
    below = [layers.built(setting.cache, other) for other in chain[: chain.index(wish) + 1]]
    root = work / "root"
    mount_overlay(layers.mount_chain(work, below, run), None, root, work, run)
    tree = userlands.tree(chain[0])
    out = work / "first-stage"
    initramfs.build(root, kernel.version, tree, public_key, setting.init, wish.epoch, out)
    place.parent.mkdir(exist_ok=True)
    os.replace(out, place)


def _publish(
    image: Image,
    chain: list[Wish],
    built_now: tuple[str, ...],
    setting: Setting,
    public_key: str,
    work: Path,
    progress: Callable[[str], object],
) -> Outcome:
    parts = [layers.built(setting.cache, wish) for wish in chain]
    brought = _kernel_of(image.name, setting.cache, chain)
    stage = _stage_place(setting, public_key, chain, brought.wish)
    packages = _packages(parts)
    lowest = image.layers[0]
    bill = work / f"sbom-{image.name}"
    bill.write_bytes(
        sbom.sbom(
            image.name,
            lowest.distribution,
            lowest.suite,
            {wish.layer.name: wish.key for wish in chain},
            packages,
            max(wish.epoch for wish in chain),
        )
    )
    new = Manifest(
        name=image.name,
        distribution=lowest.distribution,
        suite=lowest.suite,
        architecture=lowest.architecture,
        kernel=brought.kernel,
        first_stage=FirstStage(sha256_of(stage), stage.stat().st_size),
        kernel_arguments=image.kernel_arguments,
        writable_mib=image.writable_mib,
        layers=tuple(part.entry for part in parts),
        packages=packages,
        sbom_sha256=sha256_of(bill),
    )
    data = manifest.dump(new)
    digest = manifest.digest(data)
    store = Store(os.fspath(setting.store))
    size_bytes = sum(new.boot_blobs().values())
    current = store.current(image.name)
    if current == digest and _whole(store, digest, new, data, public_key):
        progress(f"image {image.name}: unchanged, {digest[:12]}")
        return Outcome(image.name, digest, False, built_now, (), size_bytes)
    old, old_listings = _current(store, current)
    lines = changes.text(changes.changes(old, new, old_listings, {part.entry.name: _listing(part) for part in parts}))
    if not setting.check:
        blobs = {
            new.kernel.sha256: brought.folder / layers.VMLINUZ,
            new.first_stage.sha256: stage,
            new.sbom_sha256: bill,
        }
        for part in parts:
            blobs[part.entry.sha256] = part.folder / layers.SQUASHFS
            blobs[part.entry.listing_sha256] = part.folder / layers.LISTING
        signature = sign.sign(data, setting.secret_key, public_key, setting.password)
        store.publish(data, signature, boot_script.image_script(new, digest).encode(), blobs)
        progress(f"image {image.name}: published, {digest[:12]}, {size_bytes / 1e6:.1f} MB")
    return Outcome(image.name, digest, True, built_now, tuple(lines), size_bytes)


def _packages(parts: list[Built]) -> tuple[Package, ...]:
    """Return the packages of the highest layer's list, each with the layer that brought this version of it."""
    brought: dict[tuple[str, str, str], str] = {}
    for part in parts:
        there = {(item["name"], item["version"], item["architecture"]) for item in part.packages}
        brought = {item: layer for item, layer in brought.items() if item in there}
        for item in there:
            brought.setdefault(item, part.entry.name)
    return tuple(Package(*item, brought[item]) for item in sorted(brought))


def _whole(store: Store, digest: str, new: Manifest, data: bytes, public_key: str) -> bool:
    """Return whether the store has all of the image, signed by the key that is requested now."""
    try:
        return not store.missing_blobs(new) and sign.verifies(data, store.read(digest, SIGNATURE), public_key)
    except ImageError:
        return False


def _current(store: Store, digest: str | None) -> tuple[Manifest | None, dict[str, Any]]:
    """Return the image that the store has, with its listings; None if it can no longer be read."""
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


def _listing(part: Built) -> Any:
    return json.loads((part.folder / layers.LISTING).read_bytes())


class _Fetcher:
    """A cache of the bytes at URLs, each fetched once.

    Raises ImageError, and FileNotFoundError for what the server does not have.
    """

    def __init__(self, open_url: Callable[..., Any], deadline_s: float = FETCH_DEADLINE_S) -> None:
        self._open_url = open_url
        self._deadline_s = deadline_s
        self._found: dict[str, bytes] = {}

    def __call__(self, url: str) -> bytes:
        if url not in self._found:
            self._found[url] = self._fetch(url)
        return self._found[url]

    def _fetch(self, url: str) -> bytes:
        try:
            answer = self._open_url(url, timeout=FETCH_TIMEOUT_S)
            with contextlib.closing(answer):
                return self._whole(url, answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise FileNotFoundError(url) from error
            raise _no_answer(url, f"the server answers {error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, FileNotFoundError) or "No such file" in str(reason):
                raise FileNotFoundError(url) from error
            raise _no_answer(url, f"cannot be reached: {reason}") from error
        except http.client.HTTPException as error:
            raise _no_answer(url, f"cannot be read: {error or type(error).__name__}") from error

    def _whole(self, url: str, answer: Any) -> bytes:
        """Read the answer to its end. The time-out covers silence only; the deadline ends a server that is too slow."""
        deadline = time.monotonic() + self._deadline_s
        parts: list[bytes] = []
        while True:
            part: bytes = answer.read1(1 << 16)
            if not part:
                # The length that http.client still waits for; other answers have no such attribute.
                if getattr(answer, "length", None):
                    raise http.client.IncompleteRead(b"".join(parts), answer.length)
                return b"".join(parts)
            parts.append(part)
            if time.monotonic() > deadline:
                raise _no_answer(url, f"sent {sum(map(len, parts))} bytes in {self._deadline_s:g} s, and not all")


def _no_answer(url: str, why: str) -> ImageError:
    return ImageError(f"archive {url}", why, "correct its url, or look at the network and the proxy of the build host")


@contextlib.contextmanager
def _locked(cache: Path, names: str) -> Iterator[None]:
    """Lock the cache for this build; another build's error names who builds."""
    cache.mkdir(parents=True, exist_ok=True)
    handle = os.open(cache / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.read(handle, 1000).decode(errors="replace").strip() or "another process"
            raise ImageError(f"cache {cache}", f"{who} builds in it", "wait until it has finished, or end it") from None
        os.ftruncate(handle, 0)
        started = time.strftime("%Y-%m-%d %H:%M:%S")
        os.write(handle, f"process {os.getpid()} on {platform.node()} ({names}, since {started})\n".encode())
        yield
    finally:
        os.close(handle)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _sweep(cache: Path) -> None:
    """Remove from the cache what no build has used for UNUSED_S seconds."""
    oldest = time.time() - UNUSED_S
    for pattern in ("layers/*", "apt/lists-*", "dnf/*", "first-stages/*"):
        for path in cache.glob(pattern):
            if path.stat().st_mtime < oldest:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
