# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A store at its limits: room, the wait for the lock, durable order of writing, errors of the system, refusals."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from image_samples import BOOT_SCRIPT, SIGNATURE, Sample, refused, sha256, tree
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import store as stores
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

IMAGE = Sample("gpu-node", base=b"b" * 4096, gpu=b"g" * 4097)
OTHER = Sample("gpu-node", base=b"b" * 4096, gpu=b"other")
SHORT = f"image gpu-node {IMAGE.digest[:12]}"


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "store"))


def needed_bytes(sample):
    """Return the bytes for a new image: each file in blocks of 4 KiB, and 1 MiB."""
    files = [*sample.contents.values(), sample.bytes, SIGNATURE, BOOT_SCRIPT]
    return (1 << 20) + sum((len(data) + 4095) // 4096 * 4096 for data in files)


@pytest.mark.parametrize("there", [True, False], ids=["empty directory", "no directory"])
def test_an_image_that_fits_exactly_is_published(store, tmp_path, monkeypatch, there):
    if there:
        os.mkdir(store.path)
    asked = []
    free = needed_bytes(IMAGE)

    def statvfs(path):
        asked.append(path)
        return SimpleNamespace(f_bavail=free // 1024, f_frsize=1024)

    monkeypatch.setattr(os, "statvfs", statvfs)
    free -= 1024
    told = refused(lambda: IMAGE.publish(store, tmp_path / "cache"))
    assert told == Mentions(store.path, SHORT, needed_bytes(IMAGE), free)
    assert asked == [store.path if there else str(tmp_path)]
    assert os.path.exists(store.path) is there
    free += 1024
    assert IMAGE.publish(store, tmp_path / "cache") == IMAGE.digest


def test_only_missing_blobs_need_room(store, tmp_path, monkeypatch):
    IMAGE.publish(store, tmp_path / "cache")
    new = [data for name, data in OTHER.contents.items() if name not in IMAGE.contents]
    free = (1 << 20) + 4096 * (len(new) + 3)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=free // 4096, f_frsize=4096))
    assert OTHER.publish(store, tmp_path / "cache") == OTHER.digest


def test_the_lock_is_awaited_for_half_a_minute(store, monkeypatch):
    os.mkdir(store.path)
    slept = []
    monkeypatch.setattr(stores.time, "monotonic", lambda: 100 + len(slept) / 8)
    monkeypatch.setattr(stores.time, "sleep", slept.append)
    before = len(os.listdir("/proc/self/fd"))
    with store.locked():
        assert refused(lambda: store.locked().__enter__()) == Mentions(store.path, "another run")
    assert slept == [0.1] * 240
    with store.locked():
        pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_lock_is_taken_as_soon_as_it_is_free(store, monkeypatch):
    os.mkdir(store.path)
    first = store.locked()
    first.__enter__()
    monkeypatch.setattr(stores.time, "sleep", lambda seconds: first.__exit__(None, None, None))
    with store.locked():
        pass


def test_each_directory_is_synced_after_its_entries(store, tmp_path, disk_calls):
    for name in ("", "blobs", "images", "current"):
        os.mkdir(store.place(name))
    Sample("a", base=b"1").publish(store, tmp_path / "cache")
    image = Sample("a", base=b"1")
    calls = [
        f"{call} {path[len(store.path) + 1 :]}" + (f" {other[len(store.path) + 1 :]}" if call == "replace" else "")
        for call, path, other in disk_calls
    ]
    names = list(image.contents)
    assert sorted(calls[: len(names)]) == sorted(f"fsync blobs/.{name}.new" for name in names)
    folder = f"images/.{image.digest}.new"
    rest = calls[len(names) :]
    assert rest[:5] == [
        *(f"fsync {folder}/{name}" for name in ("manifest.json", "manifest.json.minisig", "boot.ipxe")),
        f"fsync {folder}",
        "fsync current/.a.new",
    ]
    assert sorted(rest[5:-4]) == sorted(f"replace blobs/.{name}.new blobs/{name}" for name in names)
    assert rest[-4:] == ["fsync blobs", "fsync images", "replace current/.a.new current/a", "fsync current"]


def test_the_whole_blob_is_written_before_it_is_synced(store, tmp_path, monkeypatch):
    sizes, fsync = {}, os.fsync

    def measured(handle):
        sizes[os.path.basename(os.readlink(f"/proc/self/fd/{handle}"))] = os.fstat(handle).st_size
        fsync(handle)

    monkeypatch.setattr(os, "fsync", measured)
    IMAGE.publish(store, tmp_path / "cache")
    assert all(sizes[f".{name}.new"] == len(data) for name, data in IMAGE.contents.items())


@pytest.mark.parametrize("failing", ["images", "current"])
def test_blobs_of_a_failed_publication_stay_only_if_the_image_is_there(store, tmp_path, monkeypatch, failing):
    IMAGE.publish(store, tmp_path / "cache")
    folder, sync_directory = store.place(failing), stores.sync_directory

    def fail(path):
        if path == folder:
            raise OSError(errno.EIO, "Input/output error")
        sync_directory(path)

    def fail_rename(source, target):
        raise OSError(errno.EIO, "Input/output error")

    if failing == "images":
        monkeypatch.setattr(os, "rename", fail_rename)
    else:
        monkeypatch.setattr(stores, "sync_directory", fail)
    assert "Input/output error" in refused(lambda: OTHER.publish(store, tmp_path / "cache"))
    new = {name for name in OTHER.contents if name not in IMAGE.contents}
    assert new & set(os.listdir(store.place("blobs"))) == (set() if failing == "images" else new)
    assert (OTHER.digest in store.images()) == (failing == "current")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.EACCES, "Permission denied", "/x"), "Permission denied: /x; run as the user who owns it, and"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error; run as the user who owns it, and check the "),
        (OSError(errno.ENOSPC, "No space", "/x"), "No space: /x; free some space there, or remove unused images: "),
        (OSError(errno.EDQUOT, "Quota"), "Quota; free some space there, or remove unused images: node_image_store "),
    ],
)
def test_an_error_of_the_system_is_reported_with_its_remedy(error, told):
    def fail():
        with Store("/store").reported():
            raise error

    assert refused(fail).startswith(f"store /store: {told}")


def test_a_refused_publication_names_the_image_and_the_blob(store, tmp_path):
    files = IMAGE.files(tmp_path / "cache")
    layer = IMAGE.manifest.layers[1].sha256
    start = f"store {store.path}: {SHORT}: "

    def publish(blobs, signature=SIGNATURE, script=BOOT_SCRIPT):
        return refused(lambda: store.publish(IMAGE.bytes, signature, script, blobs))

    both = f"{start}no signature or no boot script; give both"
    assert publish(files, signature=b"") == publish(files, script=b"") == both
    assert publish({**files, "0" * 64: files[layer]}) == (
        f"{start}blob {'0' * 64} does not belong to this image; give those that its manifest names"
    )
    less = {name: path for name, path in files.items() if name != layer}
    assert publish(less) == f"{start}blob {layer} is neither in the store nor given; build the image again"
    assert publish({**files, layer: "/none"}) == (
        f"{start}cannot read /none: No such file or directory; build the image again"
    )
    (tmp_path / "longer").write_bytes(b"g" * 4098)
    assert publish({**files, layer: tmp_path / "longer"}) == (
        f"{start}{tmp_path}/longer has 4098 bytes, the manifest says 4097; build the image again"
    )
    (tmp_path / "same size").write_bytes(b"x" * 4097)
    assert publish({**files, layer: tmp_path / "same size"}) == (
        f"{start}{tmp_path}/same size has sha256 {sha256(b'x' * 4097)}, the manifest says {layer}; "
        "check the disk, remove this file, and build the image again"
    )
    assert not os.path.exists(store.path)


def test_directories_above_a_new_store_are_made(tmp_path):
    store = Store(str(tmp_path / "a/b/store"))
    assert IMAGE.publish(store, tmp_path / "cache") == IMAGE.digest


def test_missing_and_truncated_blobs_are_found(store, tmp_path):
    IMAGE.publish(store, tmp_path / "cache")
    assert store.missing_blobs(IMAGE.manifest) == set()
    layer = IMAGE.manifest.layers[0]
    os.remove(store.place("blobs", IMAGE.manifest.sbom_sha256))
    os.remove(store.place("blobs", layer.listing_sha256))
    os.truncate(store.place("blobs", layer.sha256), 4095)
    assert store.missing_blobs(IMAGE.manifest) == {IMAGE.manifest.sbom_sha256, layer.listing_sha256, layer.sha256}


def test_other_names_in_a_store_are_no_images_blobs_or_builds(store, tmp_path):
    IMAGE.publish(store, tmp_path / "cache")
    for path in (f"images/.{'1' * 64}.new", "images/x", "blobs/.x.new", f"blobs/{'A' * 64}", "current/.x.new"):
        Path(store.place(path)).write_text("x")
    assert store.images() == [IMAGE.digest]
    assert store.blobs() == {name: len(IMAGE.contents[name]) for name in sorted(IMAGE.contents)}
    assert store.currents() == {"gpu-node": IMAGE.digest}
    assert store.entries("none") == []
    assert store.contents("images", "none") is None


def test_leftovers_are_found_in_every_directory_and_removed(store, tmp_path):
    IMAGE.publish(store, tmp_path / "cache")
    for name in ("channels", "holds", "nodes", f"images/.{'1' * 64}.new"):
        os.mkdir(store.place(name))
    left = [
        *(f"{folder}/.x.new" for folder in ("blobs", "channels", "current", "holds")),
        f"images/.{'1' * 64}.new",
        "nodes/.x.new",
        f"images/{IMAGE.digest}/.boot.ipxe.new",
    ]
    kept = tree(store.path)
    del kept[left[4]]
    for path in left:
        if path != left[4]:
            Path(store.place(path)).write_text("x")
    Path(store.place(left[4], "manifest.json")).write_text("x")
    assert store.left_behind() == left
    store.sweep()
    assert tree(store.path) == kept


@pytest.mark.parametrize("text", ["", "x\n", "\xff", "0" * 63 + "\n"])
def test_a_damaged_name_of_a_build_is_refused(store, tmp_path, text):
    IMAGE.publish(store, tmp_path / "cache")
    Path(store.place("current/gpu-node")).write_text(text)
    assert refused(lambda: store.current("gpu-node")).startswith(f"store {store.path}: current/gpu-node: ")


def test_files_of_an_image_that_are_missing_or_damaged_are_refused(store, tmp_path):
    IMAGE.publish(store, tmp_path / "cache")
    assert refused(lambda: store.read("0" * 64, "boot.ipxe")) == Mentions(store.path, "0" * 64)
    folder = Path(store.place("images", IMAGE.digest))
    (folder / "boot.ipxe").unlink()
    assert refused(lambda: store.read(IMAGE.digest, "boot.ipxe")) == Mentions(store.path, IMAGE.digest, "boot.ipxe")
    (folder / "manifest.json").write_bytes(OTHER.bytes)
    assert refused(lambda: store.manifest(IMAGE.digest)) == Mentions(store.path, IMAGE.digest, OTHER.digest)


def test_a_store_with_images_may_have_other_files(store, tmp_path):
    IMAGE.publish(store, tmp_path / "cache")
    Path(store.place("index.html")).write_text("hello")
    assert OTHER.publish(store, tmp_path / "cache") == OTHER.digest


@pytest.mark.parametrize(("kind", "cause"), [("file", "not a directory"), ("folder", "not a store, it contains a")])
def test_a_path_that_cannot_become_a_store_is_refused(store, tmp_path, kind, cause):
    if kind == "file":
        Path(store.path).write_text("x")
    else:
        os.makedirs(store.place("b"))
        os.mkdir(store.place("a"))
    assert refused(lambda: IMAGE.publish(store, tmp_path / "cache")) == Mentions(store.path, cause)
