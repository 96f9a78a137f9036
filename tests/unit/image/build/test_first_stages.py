# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The first stage of an image, built with real mounts from a cached layer, in its own mount namespace."""

from __future__ import annotations

import concurrent.futures
import json
import os
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
from image_samples import sha256
from kernel_trees import VERSION, kernel
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import first_stages
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layers import LayerRequest
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.setting import BuildEnvironment
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import tools
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Archive, Layer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.namespace import isolated
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.manifest import Kernel, ManifestLayer, Verity

PROGRAMS = ("mount", "umount", "mksquashfs", "unsquashfs", "busybox", "minisign", "dmsetup")
KEY = "RW" + "A" * 54
# For this family the builder uses the build host's own programs and downloads nothing.
LAYER = Layer("base", None, "rocky", "9", "x86_64", (Archive("http://a/rocky", (), (), "/keys.gpg"),))
REQUEST = LayerRequest(LAYER, "0" * 64, {}, {}, 1_700_000_000)

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, PROGRAMS)),
    reason="not root, or the builder's tools are not on this machine (bindep.txt)",
)


@pytest.fixture
def setting(tmp_path):
    """A builder whose cache has a layer with a kernel."""
    tree = kernel(tmp_path / "tree", config="CONFIG_RD_ZSTD=y\n")
    folder = tmp_path / "cache/layers" / REQUEST.key
    folder.mkdir(parents=True)
    squashfs = folder / "layer.squashfs"
    subprocess.run(["mksquashfs", tree, squashfs, "-quiet", "-no-progress"], check=True, stdout=subprocess.DEVNULL)
    size = squashfs.stat().st_size
    entry = ManifestLayer("base", REQUEST.key, "0" * 64, size, "0" * 64, Verity(size, "0" * 64, ""), {})
    (folder / "vmlinuz").write_bytes(b"kernel")
    brought = Kernel(VERSION, sha256(b"kernel"), 6)
    record = {"entry": asdict(entry), "kernel": asdict(brought), "packages": []}
    (folder / "layer.json").write_text(json.dumps(record))
    (folder / "listing.json").write_text("{}")
    none = tmp_path / "none"
    return BuildEnvironment(tmp_path / "store", tmp_path / "cache", none, none, None, "#!/bin/sh\n", False, print)


def made(setting, work, log):
    """Build the stage as the builder does and return its bytes; append lines of progress to the file ``log``."""

    def progress(line):
        with log.open("a") as file:
            file.write(f"{line}\n")

    def apart():
        with concurrent.futures.ThreadPoolExecutor() as pool:
            userlands = first_stages.Userlands(setting.cache, work, pool)
            userlands.start(REQUEST, tools.Run("image node", progress))
            userlands.start(REQUEST, tools.Run("image node", progress))  # another image on the same layer
            place = work / "image"
            place.mkdir()
            first_stages.make_stage("node", setting, [REQUEST], KEY, place, userlands, progress)

    work.mkdir()
    isolated(apart)
    return first_stages.stage_place(setting, KEY, [REQUEST], REQUEST).read_bytes()


def test_the_first_stage_is_built_once_and_is_reproducible(setting, tmp_path):
    log = tmp_path / "log"
    assert not first_stages.has_stage(setting, KEY, [REQUEST])
    data = made(setting, tmp_path / "one", log)
    assert data[:4] == b"\x28\xb5\x2f\xfd"  # the magic number of zstd, which this kernel can unpack
    assert log.read_text().splitlines()[0] == f"image node: first stage for kernel {VERSION}"
    assert first_stages.has_stage(setting, KEY, [REQUEST])
    log.unlink()
    assert made(setting, tmp_path / "again", log) == data
    assert not log.exists()
    first_stages.stage_place(setting, KEY, [REQUEST], REQUEST).unlink()
    assert made(setting, tmp_path / "two", log) == data
    # The mounts disappeared with the namespace.
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()


def test_errors_in_the_namespace_are_reported_outside(setting, tmp_path):
    def refused():
        raise ImageError("it is broken", "mend it", subject="layer base")

    with pytest.raises(ImageError) as told:
        isolated(refused)
    assert (told.value.subject, told.value.cause, told.value.remedy) == ("layer base", "it is broken", "mend it")
    with raises(ImageError, f"{tmp_path}/absent", "No such file or directory"):
        isolated((tmp_path / "absent").read_bytes)
    with pytest.raises(ImageError, match=r"internal error in the builder:\n(.|\n)*ZeroDivisionError"):
        isolated(lambda: print(1 // 0))
    with raises(ImageError, "terminated"):
        isolated(lambda: os._exit(3))
    assert isolated(lambda: None) is None
