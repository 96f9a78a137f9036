# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The order of a build's steps: layers, first stages, publication. The steps are recorded, not made."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import build
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layers import LayerRequest
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.setting import BuildEnvironment
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Image, Layer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki.kernel import SecureBoot

BASE = Layer("base", None, "debian", "bookworm", "amd64", ())
GPU = replace(BASE, name="gpu", parent="base")
SITE = replace(BASE, name="site", parent="gpu")
IMAGES = {
    "plain": Image("plain", (BASE,), (), 1024),
    "node": Image("node", (BASE, GPU, SITE), (), 1024),
}


class Steps:
    """A builder whose steps are recorded as lines; ``cached`` are the layers, ``staged`` the images with a stage."""

    def __init__(self, tmp_path, monkeypatch):
        self.lines, self.cached, self.staged = [], [], []
        self.at_work = None
        self.setting = BuildEnvironment(
            tmp_path / "store", tmp_path / "cache", Path("/key"), Path("/pub"), None, "", False, None
        )
        monkeypatch.setenv("PATH", "/opt/bin")
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        family = SimpleNamespace(
            TOOLS=("apt-get",),
            release_digests=lambda layer, fetch: {"a": "1"},
            source_date_epoch=lambda layer, fetch: 17,
        )
        parts = {
            (build.tools, "require"): lambda *names: self.lines.append(f"require {' '.join(names)}"),
            (build, "family_of"): lambda distribution: family,
            (build, "isolated"): self.isolated,
            (build, "publish"): self.publish,
            (build, "layer_inputs"): lambda layer, content: {"name": layer.name},
            (build, "layer_key"): lambda layer, parent, digests, content: f"{parent or ''}/{layer.name}",
            (build.sign, "read_public_key"): lambda path: f"key of {path}",
            (build, "require_namespaces"): lambda: None,
            (BuildEnvironment, "sign"): lambda setting, data, public_key: self.lines.append(
                f"sign {data} {public_key}"
            ),
            (build.layers, "content_digests"): lambda layer: {},
            (build.layers, "find"): lambda cache, key: key.rpartition("/")[2] in self.cached,
            (build.layers, "built"): lambda cache, request: request.layer.name,
            (build.layers, "build"): self.build_layer,
            (build, "unpacked"): lambda name, archive, *rest: self.lines.append(f"tools {name} {archive}"),
            (build.Programs, "try_signer"): lambda programs: self.lines.append("sign a program"),
            (build.first_stages, "has_stage"): lambda setting, key, chain: len(chain) in self.staged,
            (build.first_stages, "make_stage"): self.make_stage,
            (build.first_stages, "Userlands"): lambda cache, work, pool: SimpleNamespace(
                start=lambda lowest, run: self.lines.append(f"userland {lowest.layer.name} for {run.subject}")
            ),
        }
        for (place, name), part in parts.items():
            monkeypatch.setattr(place, name, part)

    def isolated(self, work):
        self.lines.append("isolated")
        work()

    def build_layer(self, cache, work, request, below, progress):
        assert work.is_dir()
        self.lines.append(f"build {request.layer.name} on {' '.join(below) or 'nothing'} in {work.name}")
        self.cached.append(request.layer.name)

    def make_stage(self, name, setting, chain, public_key, place, userlands, progress):
        assert place.is_dir()
        assert all(request.layer.name in self.cached for request in chain)
        with self.one_stage(name):
            time.sleep(0.05)
        self.lines.append(f"stage {name} of {' '.join(request.layer.name for request in chain)} in {place.name}")

    @contextmanager
    def one_stage(self, name):
        """Fail if another stage is made at the same time: images may share it."""
        assert self.at_work is None, f"{name} beside {self.at_work}"
        self.at_work = name
        yield
        self.at_work = None

    def publish(self, image, chain, built, setting, public_key, work, programs, progress):
        self.lines.append(f"publish {image.name} {built} {public_key}{' signed' if programs else ''}")
        return f"{image.name} is published"

    def run(self, **changes):
        return build.build(IMAGES, replace(self.setting, **changes), print)


@pytest.fixture
def steps(tmp_path, monkeypatch):
    return Steps(tmp_path, monkeypatch)


TOOLS = [
    "require mount umount unshare nsenter bwrap mksquashfs veritysetup systemctl chroot minisign zstd",
    *["require apt-get"] * 2,
]
SIGNED = f"sign {b''} key of /pub"


def test_missing_layers_are_built_from_the_lowest_and_then_all_images_are_published(steps):
    assert steps.run() == ["plain is published", "node is published"]
    begin = [*TOOLS, SIGNED, "isolated", "userland base for image plain", "userland base for image node"]
    assert steps.lines[: len(begin)] == begin
    built = [line for line in steps.lines if line.startswith("build ")]
    assert built == [
        "build base on nothing in layer-0",
        "build gpu on base in layer-1",
        "build site on base gpu in layer-2",
    ]
    assert [line for line in steps.lines if line.startswith("stage ")] == [
        "stage plain of base in first-stage-plain",
        "stage node of base gpu site in first-stage-node",
    ]
    assert steps.lines[-2:] == [
        "publish plain ('base',) key of /pub",
        "publish node ('base', 'gpu', 'site') key of /pub",
    ]
    assert os.listdir(steps.setting.cache) == ["lock"]
    assert os.environ["PATH"] == (
        f"{os.path.dirname(sys.executable)}:/opt/bin:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
    )


def test_only_what_the_cache_lacks_is_built(steps):
    steps.cached, steps.staged = ["base", "gpu"], [1]
    steps.run()
    assert [line for line in steps.lines[4:] if not line.startswith("stage plain")] == [
        "isolated",
        "userland base for image node",
        "build site on base gpu in layer-0",
        "stage node of base gpu site in first-stage-node",
        "publish plain () key of /pub",
        "publish node ('site',) key of /pub",
    ]


def test_a_missing_first_stage_of_built_layers_is_made(steps):
    steps.cached, steps.staged = ["base", "gpu", "site"], [1]
    steps.run()
    assert SIGNED in steps.lines
    assert "stage node of base gpu site in first-stage-node" in steps.lines


def test_first_stages_are_made_one_after_the_other(steps):
    steps.cached = ["base", "gpu", "site"]
    steps.run()
    assert [line.split()[1] for line in steps.lines if line.startswith("stage ")] == ["plain", "node"]


def test_nothing_is_built_or_signed_if_the_cache_has_everything(steps):
    steps.cached, steps.staged = ["base", "gpu", "site"], [1, 3]
    steps.run()
    assert steps.lines == [*TOOLS, "publish plain () key of /pub", "publish node () key of /pub"]


def test_check_mode_builds_without_the_signing_key(steps):
    steps.run(check=True)
    assert SIGNED not in steps.lines
    assert "build base on nothing in layer-0" in steps.lines


def test_a_failed_first_stage_fails_the_build_and_the_work_is_removed(steps, monkeypatch):
    def fail(*_given):
        raise ImageError("broken", "mend it", subject="image node")

    monkeypatch.setattr(build.first_stages, "make_stage", fail)
    with pytest.raises(ImageError, match="image node: broken; mend it"):
        steps.run()
    assert not [line for line in steps.lines if line.startswith("publish")]
    assert os.listdir(steps.setting.cache) == ["lock"]


def test_old_entries_of_the_cache_are_removed_after_the_build(steps):
    old = steps.setting.cache / "layers/old"
    old.mkdir(parents=True)
    os.utime(old, (0, 0))
    steps.run()
    assert not old.exists()


def test_a_build_without_root_is_refused(steps, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with raises(ImageError, "root", "become: true"):
        steps.run()
    assert steps.lines == []


def test_a_layer_that_images_share_is_requested_once(steps):
    found = build.layer_requests(IMAGES, None)
    assert found == {
        "base": LayerRequest(BASE, "/base", {"a": "1"}, {"name": "base"}, 17),
        "gpu": LayerRequest(GPU, "/base/gpu", {"a": "1"}, {"name": "gpu"}, 17),
        "site": LayerRequest(SITE, "/base/gpu/site", {"a": "1"}, {"name": "site"}, 17),
    }


def test_with_secure_boot_the_signer_is_tried_before_the_build(steps):
    steps.run(secure_boot=SecureBoot(Path("/crt"), Path("/key"), (), "trixie"))
    lines = steps.lines
    order = [lines.index(line) for line in ("tools amd64 trixie", "sign a program", "build base on nothing in layer-0")]
    assert order == sorted(order)
    published = [line for line in lines if line.startswith("publish")]
    assert len(published) == len(IMAGES)
    assert all(line.endswith(" signed") for line in published)
