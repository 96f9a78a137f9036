# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build images as requested: find the layers in the cache, build those that are missing, publish what is new."""

from __future__ import annotations

import concurrent.futures
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import first_stages, layers
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.cache import locked, remove, sweep
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.fetch import Fetcher
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layer_inputs import layer_inputs
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layer_keys import layer_key
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layers import LayerRequest
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.publish import publish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.setting import BuildEnvironment, BuiltImage
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import tools
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Image
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.namespace import isolated
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.room import require_namespaces
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.registry import family_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.oci import download
from ansible_collections.sailloft.fleet.plugins.module_utils.image.oci.layout import Layout
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki.kernel import Programs
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki.tools import Tools, unpacked

TOOLS = (
    *("mount", "umount", "unshare", "nsenter", "bwrap", "mksquashfs", "veritysetup", "systemctl", "chroot"),
    *("minisign", "zstd"),
)


def build(
    images: Mapping[str, Image], setting: BuildEnvironment, progress: Callable[[str], object]
) -> list[BuiltImage]:
    """Build the requested images and publish them in the store.

    Raises ImageError; the store then keeps the images that were complete before.

    With ``setting.check``, new layers are built into the cache, and the store stays as it is.
    """
    if os.geteuid() != 0:
        raise ImageError(
            "needs root for file ownership and overlay mounts",
            "run it with become: true on the build host",
            subject="the build",
        )
    tools.require(*TOOLS)
    for image in images.values():
        tools.require(*family_of(image.layers[0].distribution).TOOLS)
        if image.layers[0].oci:
            tools.require(*download.TOOLS)
    # ansible-playbook, which applies roles, is in the directory of the Python that runs this.
    os.environ["PATH"] = f"{os.path.dirname(sys.executable)}:{tools.search_path()}"
    require_namespaces()
    public_key = setting.signer.key
    with locked(setting.cache, ", ".join(images)):
        work = setting.cache / "work"
        remove(work)
        # A layer may have programs that run as root for every user of the build host who can reach them.
        work.mkdir(mode=0o700)
        try:
            return _build_all(images, setting, public_key, work, progress)
        finally:
            remove(work)
            sweep(setting.cache)


def _build_all(
    images: Mapping[str, Image],
    setting: BuildEnvironment,
    public_key: str,
    work: Path,
    progress: Callable[[str], object],
) -> list[BuiltImage]:
    fetch = Fetcher(setting.open_url)
    programs = _programs(images, setting, fetch, work, progress)
    requests = layer_requests(images, fetch, _base_images(images, setting.cache, work, progress))
    chains = {name: [requests[layer.name] for layer in image.layers] for name, image in images.items()}
    missing = [request for request in requests.values() if not layers.find(setting.cache, request.key)]
    stageless = {name for name, chain in chains.items() if not first_stages.has_stage(setting, public_key, chain)}

    def work_apart() -> None:
        # Installing packages leaves cores idle. Meanwhile, the parts of the first stages are fetched, and the first
        # stage of each image whose layers are all built is made. Only one is made at a time, since images may share it.
        with concurrent.futures.ThreadPoolExecutor() as pool, concurrent.futures.ThreadPoolExecutor(1) as stage_pool:
            userlands = first_stages.Userlands(setting.cache, work, pool)
            for name, chain in chains.items():
                if name in stageless:
                    userlands.start(chain[0], tools.Run(f"image {name}", progress))
            unbuilt, stages = dict(chains), []
            for built in range(len(missing) + 1):
                for name, chain in list(unbuilt.items()):
                    if not any(request in missing[built:] for request in chain):
                        place = work / f"first-stage-{name}"
                        place.mkdir()
                        arguments = (name, setting, unbuilt.pop(name), public_key, place, userlands, progress)
                        stages.append(stage_pool.submit(first_stages.make_stage, *arguments))
                if built < len(missing):
                    build_layer(built, missing[built])
            for stage in stages:
                stage.result()

    def build_layer(number: int, request: LayerRequest) -> None:
        chain = next(chain for chain in chains.values() if request in chain)
        lower_layers = [layers.built(setting.cache, lower) for lower in chain[: chain.index(request)]]
        place = work / f"layer-{number}"
        place.mkdir()
        layers.build(setting.cache, place, request, lower_layers, progress)

    if missing or stageless:
        if not setting.check:
            # A key that cannot sign is reported before a long build, not after it.
            setting.sign(b"")
            if programs:
                programs.try_signer()
        isolated(work_apart)
    outcomes = []
    for name, image in images.items():
        built = tuple(request.layer.name for request in chains[name] if request in missing)
        outcome = publish(image, chains[name], setting, work, programs, progress)
        outcomes.append(replace(outcome, built=built))
    return outcomes


def _programs(
    images: Mapping[str, Image],
    setting: BuildEnvironment,
    fetch: Fetcher,
    work: Path,
    progress: Callable[[str], object],
) -> Programs | None:
    """Return the maker of programs that firmware with Secure Boot starts, None without Secure Boot."""
    secure_boot = setting.secure_boot
    if secure_boot is None or not images:
        return None
    run = tools.Run("Secure Boot", progress)

    def unpack() -> dict[str, Tools]:
        architectures = sorted({image.layers[0].architecture for image in images.values()})
        return {name: unpacked(name, secure_boot.archive, setting.cache, work, fetch, run) for name in architectures}

    # The process that unpacks them has mounts of its own, and cannot return them.
    isolated(unpack)
    return Programs(secure_boot, unpack(), setting.cache, work)


def _base_images(
    images: Mapping[str, Image], cache: Path, work: Path, progress: Callable[[str], object]
) -> dict[str, Layout]:
    """Return layer name -> the container image with which it begins; those that the cache lacks are downloaded."""
    bases = {image.layers[0].name: image.layers[0] for image in images.values() if image.layers[0].oci}

    def fetch() -> None:
        for name, layer in bases.items():
            place = work / f"download-{name}"
            place.mkdir()
            download.fetch(layer, cache, place, tools.Run(layer.subject, progress))

    if bases:
        isolated(fetch)
    return {name: download.cached(layer, cache) for name, layer in bases.items()}


def layer_requests(
    images: Mapping[str, Image], fetch: Fetcher, base_images: Mapping[str, Layout] = MappingProxyType({})
) -> dict[str, LayerRequest]:
    """Return layer name -> requested layer, in an order in which a layer comes after those below it.

    ``base_images``: layer name -> the container image with which it begins.
    """
    requests: dict[str, LayerRequest] = {}
    for image in images.values():
        parent = None
        for layer in image.layers:
            if layer.name not in requests:
                family = family_of(layer.distribution)
                digests = family.release_digests(layer, fetch)
                content = layers.content_digests(layer)
                key = layer_key(layer, parent.key if parent else None, digests, content)
                base_image = base_images.get(layer.name)
                times = [parent.epoch if parent else 0, base_image.created_s if base_image else 0]
                epoch = max(family.source_date_epoch(layer, fetch), *times)
                inputs = layer_inputs(layer, content)
                requests[layer.name] = LayerRequest(layer, key, digests, inputs, epoch, base_image)
            parent = requests[layer.name]
    return requests
