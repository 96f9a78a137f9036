# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A store: an image is published completely or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from image_samples import BOOT_SCRIPT, SIGNATURE, Sample, refuses, require_whole, sha256, tree
from kills import fail_while_writing, kill_while_writing, kills

from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import garbage
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import store as stores
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

OLD = Sample("gpu-node", base=b"base " * 1000, gpu=b"driver 1")
NEW = Sample("gpu-node", base=b"base " * 1000, gpu=b"driver 2" * 50000)


@pytest.fixture
def store(tmp_path):
    """A store with one image."""
    store = Store(str(tmp_path / "store"))
    OLD.publish(store, tmp_path / "cache")
    return store


def test_a_published_image_is_in_the_store(store, tmp_path):
    assert store.images() == [OLD.digest]
    assert store.current("gpu-node") == OLD.digest
    assert store.current("other") is None
    assert store.manifest(OLD.digest) == OLD.manifest
    assert store.read(OLD.digest, stores.SIGNATURE) == SIGNATURE
    assert NEW.publish(store, tmp_path / "cache") == NEW.digest
    assert store.images() == sorted([OLD.digest, NEW.digest])
    assert store.current("gpu-node") == NEW.digest
    # The base is stored once.
    assert set(store.blobs()) == set(OLD.contents) | set(NEW.contents)
    require_whole(store)


def test_each_blob_is_on_the_disk_before_its_name_is(tmp_path, disk_calls):
    store = Store(str(tmp_path / "store"))
    OLD.publish(store, tmp_path / "cache")
    synced = {path for call, path, _content in disk_calls if call == "fsync"}
    named = [source for call, source, target in disk_calls if call == "replace" and "/blobs/" in target]
    assert len(named) == len(store.blobs())
    assert synced.issuperset(named)


def test_publishing_an_image_again_changes_nothing(store, tmp_path):
    before = tree(store.path)
    stamps = {path: path.stat().st_mtime_ns for path in Path(store.path).rglob("*") if path.is_file()}
    OLD.publish(store, tmp_path / "cache")
    assert tree(store.path) == before
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


def test_blobs_that_are_in_the_store_need_not_be_given(store, tmp_path):
    files = NEW.files(tmp_path / "cache")
    store.publish(NEW.bytes, SIGNATURE, BOOT_SCRIPT, {name: files[name] for name in set(files) - set(OLD.contents)})
    require_whole(store)


def test_a_new_signature_of_the_same_image_replaces_the_old_one(store):
    store.publish(OLD.bytes, b"by another key", BOOT_SCRIPT, {})
    assert store.read(OLD.digest, stores.SIGNATURE) == b"by another key"


def test_a_truncated_blob_is_replaced(store, tmp_path):
    whole = tree(store.path)
    layer = OLD.manifest.layers[0].sha256
    os.truncate(store.place("blobs", layer), 10)
    assert store.missing_blobs(OLD.manifest) == {layer}
    OLD.publish(store, tmp_path / "cache")
    assert tree(store.path) == whole


def test_a_web_server_can_read_all_files_of_the_store(tmp_path):
    umask = os.umask(0o077)
    try:
        store = Store(str(tmp_path / "store"))
        OLD.publish(store, tmp_path / "cache")
    finally:
        os.umask(umask)
    assert {mode for mode, data in tree(store.path).values() if data is None} == {0o755}
    assert {mode for mode, data in tree(store.path).values() if data is not None} == {0o644}


def spoiled(files, name):
    files[name].write_bytes(bytes(files[name].stat().st_size))
    return files


@pytest.mark.parametrize("there", [True, False], ids=["store", "no store yet"])
def test_a_refused_image_leaves_the_store_unchanged(tmp_path, there):
    store = Store(str(tmp_path / "store"))
    if there:
        OLD.publish(store, tmp_path / "cache")
    before = tree(tmp_path / "store")
    layer = NEW.manifest.layers[1].sha256

    def publish(files, manifest=NEW.bytes, signature=SIGNATURE):
        return lambda: store.publish(manifest, signature, BOOT_SCRIPT, files)

    files = NEW.files(tmp_path / "cache")
    less = {name: path for name, path in files.items() if name != layer}
    refuses(publish(less), layer, "neither in the store nor given")
    refuses(publish({**files, "0" * 64: files[layer]}), "0" * 64, "does not belong to this image")
    refuses(publish({**files, layer: tmp_path / "missing"}), "missing", "No such file")
    refuses(publish(files, signature=b""), "signature")
    refuses(publish(files, manifest=b"{}\n"), "sailloft-image/1")
    short = tmp_path / "short"
    short.write_bytes(b"x")
    refuses(publish({**files, layer: short}), "has 1 bytes, the manifest says 400000")
    refuses(publish(spoiled(files, layer)), sha256(bytes(400000)), layer)
    assert tree(tmp_path / "store") == before
    assert store.path not in map(str, tmp_path.iterdir()) or there


def test_a_path_that_is_not_a_store_is_refused(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "letter").write_text("dear")
    refuses(lambda: OLD.publish(Store(str(home)), tmp_path / "cache"), "not a store, it contains letter")
    assert set(tree(home)) == {"letter"}
    refuses(lambda: OLD.publish(Store(str(home / "letter")), tmp_path / "cache"), "not a directory")
    refuses(lambda: Store(str(home)).images(), "not a store")
    refuses(lambda: Store(str(tmp_path / "nowhere")).images(), "not a store")


def test_an_empty_file_system_with_lost_and_found_becomes_a_store(tmp_path):
    (tmp_path / "store" / "lost+found").mkdir(parents=True)
    store = Store(str(tmp_path / "store"))
    assert OLD.publish(store, tmp_path / "cache") == OLD.digest
    require_whole(store)
    assert sorted(os.listdir(store.path)) == ["blobs", "current", "images", "lost+found"]
    assert os.listdir(store.place("lost+found")) == []


def test_an_image_that_was_changed_is_refused(store):
    path = Path(store.place("images", OLD.digest, "manifest.json"))
    path.write_bytes(path.read_bytes().replace(b"ttyS0", b"ttyS1"))
    refuses(lambda: store.manifest(OLD.digest), OLD.digest, "was changed")
    refuses(lambda: store.manifest("0" * 64), "has no image")
    refuses(lambda: store.manifest("sha256:" + "0" * 64), "not a digest")


def test_a_second_run_is_refused_while_the_store_is_locked(store, tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "LOCK_WAIT_S", 0.2)
    before = tree(store.path)
    with store.locked():
        refuses(lambda: NEW.publish(Store(store.path), tmp_path / "cache"), "another run is changing it")
    assert tree(store.path) == before
    NEW.publish(store, tmp_path / "cache")


def test_a_run_killed_at_any_point_is_completed_by_the_next_run(tmp_path):
    store = Store(str(tmp_path / "store"))
    NEW.files(tmp_path / "cache")

    def start():
        shutil.rmtree(store.path, ignore_errors=True)
        OLD.publish(store, tmp_path / "cache")

    def act():
        NEW.publish(store, tmp_path / "cache")

    start()
    old = tree(store.path)
    act()
    new = tree(store.path)
    points = 0
    for _kill in kills(act, start):
        points += 1
        require_whole(store)
        named = store.current("gpu-node")
        assert named in (OLD.digest, NEW.digest)
        # The previous content is unchanged, and files that nothing refers to can be collected.
        seen = tree(store.path)
        assert all(seen[path] == old[path] for path in old if path != "current/gpu-node")
        if named == OLD.digest:
            shutil.copytree(store.path, tmp_path / "other")
            garbage.collect(Store(str(tmp_path / "other")), [], 0)
            assert tree(tmp_path / "other") == old
            shutil.rmtree(tmp_path / "other")
        act()
        assert tree(store.path) == new
    # Three blobs, the directory with its files, and the file in current/ are opened and renamed.
    assert points >= 15


def test_a_run_killed_while_creating_the_store_is_completed_by_the_next_run(tmp_path):
    store = Store(str(tmp_path / "store"))

    def act():
        OLD.publish(store, tmp_path / "cache")

    act()
    whole = tree(store.path)
    for _kill in kills(act, lambda: shutil.rmtree(store.path)):
        act()
        assert tree(store.path) == whole


def test_a_run_killed_while_writing_a_file_is_completed_by_the_next_run(store, tmp_path):
    NEW.files(tmp_path / "cache")
    kill_while_writing(100_000, lambda: publish(store, tmp_path))
    assert store.left_behind() != []
    require_whole(store)
    NEW.publish(store, tmp_path / "cache")
    assert store.left_behind() == []
    require_whole(store)


def publish(store, tmp_path):
    """Publish like ``Sample.publish``, but from existing files."""
    store.publish(NEW.bytes, SIGNATURE, BOOT_SCRIPT, {name: tmp_path / "cache" / name for name in NEW.contents})


def test_a_failed_write_leaves_the_store_unchanged(store, tmp_path):
    NEW.files(tmp_path / "cache")
    before = tree(store.path)
    fail_while_writing(100_000, lambda: refuses(lambda: publish(store, tmp_path), "File too large"))
    assert tree(store.path) == before


FULL = """
import pathlib, sys
sys.path[:0] = {paths!r}
from image_samples import Sample, tree
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store
folder = pathlib.Path({folder!r})
store = Store(str(folder / "full" / "store"))
Sample("gpu-node", base=b"small").publish(store, folder / "cache")
before = tree(store.path)
# 6 MB do not fit into 4 MiB.
big = Sample("gpu-node", base=b"big" * 2_000_000)
if {unchecked!r}:
    Store._require_room = lambda *given: None
try:
    big.publish(store, folder / "cache")
except ImageError as error:
    print(error)
assert tree(store.path) == before, "the store was touched"
"""


@pytest.mark.parametrize("unchecked", [False, True], ids=["told before", "told by the system"])
def test_publishing_into_a_full_store_is_refused(tmp_path, unchecked):
    """The store is on a real file system of 4 MiB, in its own mount namespace."""
    (tmp_path / "full").mkdir()
    script = FULL.format(paths=sys.path, folder=str(tmp_path), unchecked=unchecked)
    mounted = f'mount -t tmpfs -o size=4m none {tmp_path}/full && exec {sys.executable} -c "$0"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*command, f"mount -t tmpfs none {tmp_path}/full"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespaces here")
    done = subprocess.run([*command, mounted, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # Needed: 6 MB and the margin of 1 MiB, in blocks. Free: 4 MiB less the small image's files.
    told = "No space left on device" if unchecked else "needs 7069696 bytes, but 41"
    assert told in done.stdout
    assert "free some space there" in done.stdout
