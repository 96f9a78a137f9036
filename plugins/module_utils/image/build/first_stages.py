# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build the first stage of each image in the cache, for the kernel of a layer, with programs of the lowest layer."""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import layers
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layer_keys import BUILD_FORMAT
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layers import Built, LayerRequest
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.setting import BuildEnvironment
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.squashfs import mount_overlay
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import tools
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.caches import Caches
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import canonical_json
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.registry import family_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.first_stage import initramfs
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.manifest import Kernel


class Brought(NamedTuple):
    """A kernel and the layer that brings it; the layer's files are in ``folder``."""

    request: LayerRequest
    folder: Path
    kernel: Kernel


def has_stage(setting: BuildEnvironment, public_key: str, chain: list[LayerRequest]) -> bool:
    """Return whether the cache has the first stage; False until all layers of the chain are built."""
    parts = [(request, built) for request in chain if (built := layers.find(setting.cache, request.key))]
    brought = _highest_kernel(parts) if len(parts) == len(chain) else None
    return brought is not None and stage_place(setting, public_key, chain, brought.request).exists()


def stage_place(setting: BuildEnvironment, public_key: str, chain: list[LayerRequest], request: LayerRequest) -> Path:
    """Return the cache's path of the first stage for the kernel that ``request``, a layer of the chain, brings."""
    programs = family_of(request.layer.distribution).first_stage_digest()
    text = canonical_json(
        [BUILD_FORMAT, request.key, chain[0].key, public_key, setting.init, programs, _drivers(chain)]
    )
    return setting.cache / "first-stages" / hashlib.sha256(text).hexdigest()


def _drivers(chain: list[LayerRequest]) -> list[str]:
    """Return the drivers that the layers ask for; they are no part of a layer, so its key does not cover them."""
    return sorted({driver for request in chain for driver in request.layer.drivers})


def kernel_of(name: str, cache: Path, chain: list[LayerRequest]) -> Brought:
    """Return the kernel of the chain. Raises ImageError if no layer brings one."""
    brought = _highest_kernel([(request, layers.built(cache, request)) for request in chain])
    if brought is None:
        raise ImageError(
            f"none of its layers ({', '.join(request.layer.name for request in chain)}) has a kernel",
            "add a kernel to the packages of a layer, such as linux-image-amd64 or kernel",
            subject=f"image {name}",
        )
    return brought


def _highest_kernel(parts: list[tuple[LayerRequest, Built]]) -> Brought | None:
    brought = [Brought(request, built.folder, built.kernel) for request, built in parts if built.kernel]
    return brought[-1] if brought else None


class Userlands:
    """The trees of the first stages' programs, one for each lowest layer, unpacked in the background."""

    def __init__(self, cache: Path, work: Path, pool: concurrent.futures.Executor) -> None:
        self._cache, self._work, self._pool = cache, work, pool
        self._found: dict[str, concurrent.futures.Future[Path]] = {}

    def start(self, lowest: LayerRequest, run: tools.Run) -> None:
        """Start to unpack the tree for this layer."""
        if lowest.key not in self._found:
            self._found[lowest.key] = self._pool.submit(self._unpack, lowest, run)

    def tree(self, lowest: LayerRequest) -> Path:
        """Wait for the tree and return its path. Raises ImageError."""
        return self._found[lowest.key].result()

    def _unpack(self, lowest: LayerRequest, run: tools.Run) -> Path:
        family = family_of(lowest.layer.distribution)
        tree = self._work / f"userland-{lowest.key}"
        tree.mkdir()
        names = family.first_stage_caches(lowest.layer, lowest.digests)
        caches = Caches({name: self._cache / path for name, path in names.items()}, self._work)
        userland: Path = family.first_stage_tree(tree, lowest.layer, lowest.digests, run, caches)
        return userland


def make_stage(
    name: str,
    setting: BuildEnvironment,
    chain: list[LayerRequest],
    public_key: str,
    work: Path,
    userlands: Userlands,
    progress: Callable[[str], object],
) -> None:
    """Build the first stage of an image into the cache, unless it is there. ``work`` is an empty directory."""
    request, _folder, kernel = kernel_of(name, setting.cache, chain)
    place = stage_place(setting, public_key, chain, request)
    if place.exists():
        return
    subject = f"image {name}"
    progress(f"{subject}: first stage for kernel {kernel.version}")
    run = tools.Run(subject, progress, {"SOURCE_DATE_EPOCH": str(request.epoch)})
    built_layers = [layers.built(setting.cache, layer_request) for layer_request in chain[: chain.index(request) + 1]]
    root = work / "root"
    mount_overlay(layers.mount_chain(work, built_layers, run), None, root, work, run)
    tree = userlands.tree(chain[0])
    stage_file = work / "first-stage"
    initramfs.build(root, kernel.version, tree, public_key, setting.init, request.epoch, stage_file, _drivers(chain))
    place.parent.mkdir(exist_ok=True)
    os.replace(stage_file, place)
