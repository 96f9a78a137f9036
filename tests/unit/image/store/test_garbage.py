# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Garbage collection removes the files that nothing refers to, and no others."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_samples import Sample, refuses, require_whole, tree
from kills import kills

from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels, garbage, node_files, statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

# All have the same name, so "current" refers only to the last of them; they share the base.
IMAGES = [Sample("gpu-node", base=b"base", gpu=f"driver {at}".encode()) for at in range(6)]


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path / "store"))
    for sample in IMAGES:
        sample.publish(store, tmp_path / "cache")
    return store


def script(store, node, text):
    Path(store.place("nodes")).mkdir(exist_ok=True)
    Path(store.place("nodes", f"{node}.ipxe")).write_text(f"#!ipxe\nset node {node}\n{text}\n")


def paths(*samples):
    """Return the paths of the files that no other image has."""
    others = set().union(*(sample.contents for sample in IMAGES if sample not in samples))
    own = set().union(*(sample.contents for sample in samples)) - others
    return sorted([*(f"images/{sample.digest}" for sample in samples), *(f"blobs/{name}" for name in own)])


def test_an_image_that_the_statement_still_names_stays(store):
    """The channel has moved, and no run has signed that yet."""
    node = statement.StatedNode("bm01", IMAGES[0].digest, ("http://10.9.0.1",), (), "stable")
    stated = statement.Statement(7, "2026-11-28T01:00:00Z", "2027-02-26T01:00:00Z", {"52:54:00:aa:bb:01": node})
    script(store, "aa", "chain ../channels/stable.ipxe")
    Path(statement.path_of(store)).write_bytes(statement.dump(stated))
    assert garbage.reasons(store, [], 1)[IMAGES[0].digest] == ["statement"]
    # It is read before the run that replaces it, so one that cannot be read must not end that.
    Path(statement.path_of(store)).write_bytes(b"?")
    assert IMAGES[0].digest not in garbage.reasons(store, [], 1)


def test_the_image_whose_signed_kernel_a_node_fetches_is_kept(store):
    """Its channel may have moved since the node's files were written."""
    image = IMAGES[0]
    Path(store.place("nodes")).mkdir()
    Path(store.place("nodes", "aa.efi")).symlink_to(f"../images/{image.digest}/boot.efi")
    assert garbage.reasons(store, [], 0)[image.digest] == ["node aa"]


def test_referenced_images_are_kept_with_their_reasons(store):
    history, stable, pinned, running, nothing, last = IMAGES
    channels.promote(store, "stable", nothing.digest)
    channels.promote(store, "stable", history.digest)
    channels.promote(store, "stable", stable.digest)
    script(store, "aa", f"chain ../images/{pinned.digest}/boot.ipxe")
    script(store, "bb", "chain ../channels/stable.ipxe")
    assert garbage.reasons(store, [running.digest], 1) == {
        sample.digest: [why]
        for sample, why in sorted(
            [
                (stable, "channel stable"),
                (history, "history of channel stable"),
                (pinned, "node aa"),
                (running, "keep"),
                (last, "last build of gpu-node"),
            ],
            key=lambda item: item[0].digest,
        )
    }
    before = tree(store.path)
    would = garbage.garbage(store, [running.digest], 1)
    assert tree(store.path) == before
    assert list(would.paths) == paths(nothing)
    assert would.size_bytes == sum(
        len(data)
        for name, (_kind, data) in before.items()
        if data and any(name.startswith(path) for path in would.paths)
    )
    assert garbage.collect(store, [running.digest], 1) == would
    assert set(store.images()) == {sample.digest for sample in IMAGES} - {nothing.digest}
    require_whole(store)
    assert garbage.collect(store, [running.digest], 1) == garbage.Garbage((), 0)


def test_images_in_the_history_of_the_given_length_are_kept(store):
    for sample in IMAGES[:4]:
        channels.promote(store, "stable", sample.digest)
    assert list(garbage.garbage(store, [], 0).paths) == paths(*IMAGES[:3], IMAGES[4])
    assert list(garbage.garbage(store, [], 2).paths) == paths(IMAGES[0], IMAGES[4])
    assert list(garbage.garbage(store, [], 9).paths) == paths(IMAGES[4])


def test_nothing_is_removed_if_input_or_files_are_invalid(store):
    channels.promote(store, "stable", IMAGES[0].digest)
    before = tree(store.path)
    refuses(lambda: garbage.collect(store, ["latest"], 1), "'latest' is not a digest")
    refuses(lambda: garbage.collect(store, [], -1), "history -1")
    refuses(lambda: garbage.collect(Store(store.place("nodes")), [], 1), "not a store")
    assert tree(store.path) == before
    for path in ("channels/stable.ipxe", "current/gpu-node", f"images/{IMAGES[0].digest}/manifest.json"):
        whole = Path(store.place(path)).read_bytes()
        Path(store.place(path)).write_bytes(b"?" + whole)
        spoiled = tree(store.path)
        refuses(lambda: garbage.collect(store, [], 1))
        assert tree(store.path) == spoiled
        Path(store.place(path)).write_bytes(whole)


def test_a_damaged_image_without_references_is_removed(store):
    Path(store.place("images", IMAGES[0].digest, "manifest.json")).write_bytes(b"?")
    garbage.collect(store, [sample.digest for sample in IMAGES[1:]], 0)
    assert IMAGES[0].digest not in store.images()
    require_whole(store)


def test_leftovers_of_a_killed_run_are_removed_and_foreign_files_are_kept(store):
    keep = [sample.digest for sample in IMAGES]
    script(store, "aa", "chain ../channels/stable.ipxe")
    whole = tree(store.path)
    Path(store.place("blobs", ".0123.new")).write_bytes(b"part")
    Path(store.place("nodes", ".aa.ipxe.new")).write_bytes(b"part")
    Path(store.place("images", IMAGES[0].digest, ".boot.ipxe.new")).write_bytes(b"part")
    Path(store.place("images", ".x.new")).mkdir()
    Path(store.place("images", ".x.new", "manifest.json")).write_bytes(b"part")
    found = garbage.collect(store, keep, 0)
    assert found == garbage.Garbage(
        ("blobs/.0123.new", "images/.x.new", f"images/{IMAGES[0].digest}/.boot.ipxe.new", "nodes/.aa.ipxe.new"), 16
    )
    assert tree(store.path) == whole
    # A file in a directory that is removed is removed with it and not reported separately.
    Path(store.place("images", IMAGES[0].digest, ".boot.ipxe.new")).write_bytes(b"part")
    assert list(garbage.garbage(store, keep[1:], 0).paths) == paths(IMAGES[0])
    os.remove(store.place("images", IMAGES[0].digest, ".boot.ipxe.new"))
    # A temporary file that rsync is about to rename is kept.
    Path(store.place("blobs", f".{'0' * 64}.Xk2fQe")).write_bytes(b"part")
    assert garbage.collect(store, keep, 0) == garbage.Garbage((), 0)


def test_files_of_nodes_are_kept_as_long_as_the_statement_names_them(store):
    keep = [sample.digest for sample in IMAGES]
    texts = [node_files.text_of("bm01", {path: {"content": path}}) for path in ("/etc/a", "/etc/b")]
    with store.locked():
        node_files.put(store, texts)
    assert garbage.collect(store, keep, 0).paths == ()
    row = statement.StatedNode("bm01", IMAGES[0].digest, ("http://10.9.0.1",), (), files=node_files.digest_of(texts[0]))
    terms = (1, "2026-11-28T01:00:00Z", "2027-11-28T01:00:00Z")
    Path(store.place("nodes", "statement")).write_bytes(
        statement.dump(statement.Statement(*terms, {"52:54:00:00:00:01": row})) + statement.SIGNATURE_BEGINS
    )
    assert garbage.collect(store, keep, 0).paths == (node_files.path_of(node_files.digest_of(texts[1])),)
    assert node_files.present(store) == [row.files]


def test_a_run_killed_at_any_point_is_completed_by_the_next_run(store, tmp_path):
    channels.promote(store, "stable", IMAGES[2].digest)
    shutil.copytree(store.path, tmp_path / "start")

    def act():
        garbage.collect(store, [IMAGES[1].digest], 0)

    def again():
        shutil.rmtree(store.path)
        shutil.copytree(tmp_path / "start", store.path)

    act()
    whole = tree(store.path)
    points = 0
    for _kill in kills(act, again):
        points += 1
        require_whole(store)
        assert {IMAGES[at].digest for at in (1, 2, 5)} <= set(store.images())
        act()
        assert tree(store.path) == whole
    # Nine blobs, and three directories of three files each; each directory is renamed before its files are removed.
    assert points >= 9 + 3 * 5


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 2), st.integers(0, 2), st.booleans()),
        min_size=1,
        max_size=6,
    )
)
def test_kept_images_are_complete_and_unreferenced_blobs_are_removed(rows):
    with tempfile.TemporaryDirectory() as folder:
        store = Store(os.path.join(folder, "store"))
        samples = [
            (Sample(name, base=f"base {base}".encode(), gpu=f"gpu {gpu}".encode()), kept)
            for name, base, gpu, kept in rows
        ]
        current = {}
        for sample, _kept in samples:
            current[sample.manifest.name] = sample.publish(store, Path(folder) / "cache")
        keep = {sample.digest for sample, kept in samples if kept}
        garbage.collect(store, keep, 0)
        stay = keep | set(current.values())
        assert set(store.images()) == stay
        needed = itertools.chain.from_iterable(sample.contents for sample, _kept in samples if sample.digest in stay)
        assert set(store.blobs()) == set(needed)
        require_whole(store)
