# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Nodes' scripts in a store: refusals as whole messages, order of writing, and channels that are still to come."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from image_samples import Sample, refused, tree
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import node_scripts
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels, holds, node_files, statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

IMAGE = Sample("gpu-node", base=b"base")
SERVERS = ["http://10.9.0.1"]


@pytest.fixture
def store(tmp_path):
    found = Store(str(tmp_path / "store"))
    IMAGE.publish(found, tmp_path / "cache")
    channels.promote(found, "stable", IMAGE.digest)
    return found


def node(number, **changes):
    own = {"name": f"bm0{number}", "mac": mac(number), "channel": "stable", "servers": SERVERS}
    return {**own, **changes}


def mac(number):
    return f"52-54-00-00-00-0{number}"


def ensure(store, *nodes, check=False, **named):
    return node_scripts.ensure(store, list(nodes), check, **named)


def test_scripts_are_written_durably_in_the_order_of_their_names(store, disk_calls):
    umask = os.umask(0o077)
    try:
        change = ensure(store, node(2), node(1))
    finally:
        os.umask(umask)
    folder = store.place("nodes")
    assert list(change.written) == [mac(1), mac(2)]
    assert [(call, path) for call, path, _other in disk_calls] == [
        *[(call, f"{folder}/.{mac(1)}.ipxe.new") for call in ("fsync", "replace")],
        ("fsync", folder),
        *[(call, f"{folder}/.{mac(2)}.ipxe.new") for call in ("fsync", "replace")],
        ("fsync", folder),
        ("fsync", folder),
    ]
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o755
    del disk_calls[:]
    change = ensure(store, node(1), removed=["bm02"])
    assert (change.before, change.written, change.removed, change.others) == (change.before, {}, (mac(2),), ())
    assert sorted(change.before) == [mac(1), mac(2)]
    assert disk_calls == [("fsync", folder, None)]
    del disk_calls[:]
    assert ensure(store, node(1)) == node_scripts.ScriptChange(channels.node_scripts(store), {}, (), ())
    assert disk_calls == []


def test_the_files_of_nodes_are_there_before_the_statement_that_names_them(store, disk_calls):
    text = node_files.text_of("bm01", {"/etc/a": {"content": "a"}})
    row = statement.StatedNode("bm01", IMAGE.digest, ("http://10.9.0.1",), (), files=node_files.digest_of(text))
    rows = {"52:54:00:00:00:01": row}
    stated = statement.dump(statement.Statement(1, "2026-11-28T01:00:00Z", "2027-11-28T01:00:00Z", rows))
    stated += statement.SIGNATURE_BEGINS
    assert ensure(store, stated=stated, files=[text]).stated
    replaced = [path.rpartition("/")[2] for call, path, _other in disk_calls if call == "replace"]
    assert replaced == [f".{row.files}.files.new", ".statement.new"]
    assert not ensure(store, stated=stated, files=[text]).stated


def test_check_mode_computes_the_change_and_writes_nothing(store):
    ensure(store, node(1))
    before = tree(store.path)
    change = ensure(store, node(2), check=True, removed=["bm01"])
    assert (list(change.written), change.removed) == ([mac(2)], (mac(1),))
    assert tree(store.path) == before


def test_a_node_of_a_channel_that_is_to_come_has_no_script_yet(store):
    change = ensure(store, node(1, channel="lab"), node(2), channels_to_come=["lab", "stable"])
    assert list(change.written) == [mac(2)]
    channels.promote(store, "lab", IMAGE.digest)
    change = ensure(store, node(1, channel="lab"), node(2), channels_to_come=["lab", "stable"])
    assert list(change.written) == [mac(1)]
    os.remove(store.place("channels/lab.ipxe"))
    assert ensure(store, node(1, channel="lab"), channels_to_come=["lab"]).removed == (mac(1),)


def test_the_script_without_an_owner_is_not_replaced(store):
    Path(store.place("nodes")).mkdir()
    Path(store.place("nodes", f"{mac(1)}.ipxe")).write_text("#!ipxe\n# set node bm01\n")
    assert refused(ensure, store, node(1)) == Mentions("bm01", mac(1), "(none)", "node_boot_mac", "node_boot_removed")
    assert ensure(store, node(2)).others == ()


def test_a_missing_channel_is_refused_with_the_nodes_that_would_boot_it(store):
    nodes = [node(1, channel="lab"), node(2, channel="lab"), node(3)]
    assert refused(ensure, store, *nodes) == Mentions("channel lab", "bm01, bm02", store.path, "stable")
    os.remove(store.place("channels/stable.ipxe"))
    assert refused(ensure, store, node(3)) == Mentions("channel stable", "bm03", store.path)


def test_a_missing_or_incomplete_image_is_refused(store):
    pinned = {"channel": None, "digest": "0" * 64}
    assert refused(ensure, store, node(1, channel=None, digest=IMAGE.digest), node(2, **pinned)) == Mentions(
        "bm02", store.path, "0" * 64
    )
    layer = IMAGE.manifest.layers[0].sha256
    os.truncate(store.place("blobs", layer), 1)
    assert refused(ensure, store, node(3), node(1, channel=None, digest=IMAGE.digest)) == Mentions(
        "bm01", IMAGE.digest, layer, store.path
    )
    assert channels.node_scripts(store) == {}


def test_contradicting_nodes_are_refused(store):
    assert refused(node_scripts.wanted, [node(1), node(2, mac="52:54:00:00:00:01")]) == Mentions("bm02", "bm01", mac(1))
    assert refused(node_scripts.wanted, [node(1), node(1, mac=mac(2))]) == Mentions("bm01", "twice")
    assert refused(ensure, store, node(1), removed=["bm01"]) == Mentions("bm01", "written", "removed")


def test_a_node_without_arguments_and_report_has_empty_ones():
    text = node_scripts.wanted([node(1, kernel_arguments=None, report=None)]).popitem()[1]
    assert "\nset report \nset node_args \n" in text
    text = node_scripts.wanted([node(1, kernel_arguments=["a", "b"], report="http://10.9.0.2")]).popitem()[1]
    assert "\nset report http://10.9.0.2\nset node_args a b\n" in text


def test_a_node_of_a_channel_that_is_to_come_is_checked_like_others(store):
    assert refused(ensure, store, node(1, channel="lab", mac="x"), channels_to_come=["lab"]) == Mentions("bm01", "'x'")


def test_a_directory_that_is_no_store_is_refused(tmp_path):
    assert refused(ensure, Store(str(tmp_path)), node(1)) == Mentions(tmp_path, "blobs")


def test_nodes_that_another_run_holds_are_not_changed(store):
    bob = holds.Holder("bob", "ctl2", "", 17, "reimage.yml", "2026-11-22T12:05:00Z")
    holds.take(store, holds.Hold("hold-0000000a", bob, holds.Scope(("bm01",))))
    before = tree(store.path)
    for nodes, removed in (([node(1)], []), ([node(2)], ["bm01"])):
        assert "bob on ctl2" in refused(ensure, store, *nodes, removed=removed)
        assert list(ensure(store, *nodes, check=True, removed=removed).written) == [nodes[0]["mac"]]
    assert tree(store.path) == before
    assert list(ensure(store, node(2)).written) == [mac(2)]
    assert list(ensure(store, node(1), hold="hold-0000000a").written) == [mac(1)]


def programs(store):
    """Return what the links to signed kernels lead to, by MAC address."""
    folder = Path(store.place("nodes"))
    return {path.stem: os.readlink(path) for path in sorted(folder.glob("*.efi"))}


def test_the_firmware_of_a_node_with_secure_boot_finds_the_signed_kernel_of_its_image(store, tmp_path):
    kernel = f"../images/{IMAGE.digest}/boot.efi"
    Path(store.place("images", IMAGE.digest, "boot.efi")).write_bytes(b"signed")
    ours = [node(1, secure_boot=True), node(2, secure_boot=True, channel=None, digest=IMAGE.digest), node(3)]
    assert ensure(store, *ours, check=True).programs == {mac(1): ("", kernel), mac(2): ("", kernel)}
    assert not Path(store.place("nodes")).exists()
    ensure(store, *ours)
    assert programs(store) == {mac(1): kernel, mac(2): kernel}
    assert Path(store.place("nodes", f"{mac(1)}.efi")).read_bytes() == b"signed"
    change = ensure(store, *ours)
    assert (change.written, change.programs) == ({}, {})

    # The channel moves: another image, and what nobody asks for stays.
    other = Sample("gpu-node", base=b"other")
    other.publish(store, tmp_path / "cache")
    channels.promote(store, "stable", other.digest)
    assert refused(ensure, store, node(1, secure_boot=True)) == Mentions("bm01", other.digest, "node_image_secure_boot")
    Path(store.place("images", other.digest, "boot.efi")).write_bytes(b"signed too")
    ensure(store, node(1, secure_boot=True))
    assert programs(store) == {mac(1): f"../images/{other.digest}/boot.efi", mac(2): kernel}

    # Without Secure Boot, with another NIC, and removed from the site.
    ensure(store, node(1))
    assert programs(store) == {mac(2): kernel}
    ensure(store, node(2, secure_boot=True, channel=None, digest=IMAGE.digest, mac=mac(4)))
    assert programs(store) == {mac(4): kernel}
    ensure(store, removed=["bm02"])
    assert programs(store) == {}


def test_a_node_with_secure_boot_has_no_kernel_arguments_of_its_own():
    nodes = [node(1, secure_boot=True, kernel_arguments=["quiet"])]
    assert refused(node_scripts.wanted, nodes) == Mentions("bm01", "'quiet'", "node_boot_secure_boot")
