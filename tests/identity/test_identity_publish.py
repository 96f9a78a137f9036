# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bundles in a store: an unchanged secret changes nothing, and a bundle reveals nothing about its secrets."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import pytest
from identity_site import SECRET, TOKEN, files, make_keys
from kills import kills
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identities, identity, tools


def contents(site):
    return {name: site.bundle(name).read_bytes() for name in site.store.entries("identity")}


def test_an_unchanged_secret_changes_nothing(site):
    assert site.publish().written == ("bm01", "bm02")
    before = contents(site)
    change = site.publish()
    assert (change.written, change.removed) == ((), ())
    assert contents(site) == before


def test_check_writes_nothing(site):
    assert site.publish(check=True).written == ("bm01", "bm02")
    assert contents(site) == {}


@pytest.mark.parametrize(
    ("key", "value"), [("content", "another"), ("mode", "0640"), ("owner", "games"), ("path", "/etc/site/other")]
)
def test_one_change_writes_one_bundle(site, key, value):
    site.publish()
    before = contents(site)
    site.nodes[0]["secrets"][0][key] = value
    assert site.publish().written == ("bm01",)
    assert contents(site)["bm02"] == before["bm02"]
    assert contents(site)["bm01"] != before["bm01"]


def test_a_changed_endorsement_key_writes_a_new_bundle(site, new_tpm):
    site.publish()
    site.nodes[0]["ek"] = new_tpm().ek
    assert site.publish().written == ("bm01",)


def test_a_bundle_is_removed_only_if_its_node_is_named_as_removed(site):
    """A bundle is not removed because its node is missing from the request; it must be named.

    A fresh checkout, or one whose node did not answer, has no key of the node.
    """
    site.publish()
    site.nodes.pop()
    (site.bundle(".bm01.new")).write_text("left by a run that was killed")
    change = site.publish()
    assert (change.written, change.removed, change.others) == ((), (), ("bm02",))
    assert site.store.entries("identity") == ["bm01", "bm02"]
    change = site.publish(check=True, removed=["bm02", "bm09"])
    assert (change.removed, change.others) == (("bm02",), ())
    assert site.bundle("bm02").exists()
    assert site.publish(removed=["bm02", "bm09"]).removed == ("bm02",)
    assert os.listdir(site.store.place("identity")) == ["bm01"]


def test_a_node_that_is_published_and_removed_is_refused(site):
    site.publish()
    before = contents(site)
    with raises(ImageError, "bm01", "node_identity_ek", "node_identity_removed"):
        site.publish(removed=["bm01"])
    with raises(ImageError, "node '../bm01'", "host name"):
        site.publish(removed=["../bm01"])
    assert contents(site) == before


def test_a_kill_leaves_complete_bundles_and_the_next_run_completes_the_change(site, tmp_path):
    """A run in which bm01 gets new secrets and bm02 is removed can be killed at any point."""
    site.publish()
    before = contents(site)
    start = tmp_path / "start"
    shutil.copytree(site.store.path, start)
    site.nodes.pop()
    site.nodes[0]["secrets"] = files(token="another")
    digest = site.publish(check=True).after["bm01"]["digest"]

    def again():
        shutil.rmtree(site.store.path)
        shutil.copytree(start, site.store.path)

    points = 0
    for _kill in kills(lambda: site.publish(removed=["bm02"]), again):
        points += 1
        for name, data in contents(site).items():
            if not name.startswith("."):
                bundle, _signed, _signature = identity.parse(data, name)
                assert data == before[name] or (name, bundle.digest) == ("bm01", digest)
        site.publish(removed=["bm02"])
        assert list(contents(site)) == ["bm01"]
        assert site.publish().written == ()
    # The key, the credential and minisign's files are in memory; then the bundle is opened, made readable and renamed.
    assert points >= 4


def test_a_new_signing_key_writes_all_bundles(site, tmp_path):
    site.publish()
    site.signer = make_keys(tmp_path, "new")
    assert site.publish().written == ("bm01", "bm02")


@pytest.mark.parametrize(
    "line",
    # Not line 6, the comment that is not signed.
    [0, 4, 9, *(pytest.param(line, marks=pytest.mark.long) for line in (1, 2, 3, 5, 7, 8))],
)
def test_a_bundle_that_was_changed_is_written_again(site, line):
    site.publish()
    lines = site.bundle("bm01").read_bytes().split(b"\n")
    lines[line] = lines[line][:-4] + b"AAA" + lines[line][-1:]
    site.bundle("bm01").write_bytes(b"\n".join(lines))
    assert site.publish().written == ("bm01",)
    assert site.publish().written == ()


def test_a_bundle_does_not_reveal_shared_or_guessed_secrets(site):
    """A bundle does not reveal its secrets, that two nodes share a secret, or whether a guess of a secret is right."""
    shared = files(token=TOKEN)
    for node in site.nodes:
        node["secrets"] = shared
    site.publish()
    first, second = (identity.parse(site.bundle(name).read_bytes(), name)[0] for name in ("bm01", "bm02"))
    assert first.digest != second.digest
    assert first.secrets != second.secrets
    guess = identity.digest(
        identity.digest_key(b""), "bm01", identity.read_ek(site.nodes[0]["ek"], ""), identity.read_secrets(shared, "")
    )
    assert first.digest != guess
    # The same secrets, encrypted twice, have nothing in common.
    before = first
    site.bundle("bm01").unlink()
    site.publish()
    after = identity.parse(site.bundle("bm01").read_bytes(), "bm01")[0]
    assert after.digest == before.digest
    assert (after.credential, after.secrets) != (before.credential, before.secrets)
    assert after.secrets[16:32] != before.secrets[16:32]


def test_a_public_key_of_another_pair_is_refused(site, tmp_path):
    site.signer = replace(site.signer, public_key=make_keys(tmp_path, "other").public_key)
    with raises(ImageError, "public key", "signing key"):
        site.publish()
    assert contents(site) == {}


def test_two_nodes_with_the_same_endorsement_key_are_refused(site):
    site.nodes[1]["ek"] = site.nodes[0]["ek"]
    with raises(ImageError, "bm02", "endorsement key of node bm01"):
        identities.read_nodes(site.nodes)


def test_a_too_large_bundle_is_refused_before_anything_is_written(site):
    site.nodes[1]["secrets"] = files(large="x" * identity.LARGEST_BUNDLE_BYTES)
    with raises(ImageError, "bm02", "bundle", identity.LARGEST_BUNDLE_BYTES):
        site.publish()
    assert contents(site) == {}


def test_a_missing_tool_is_named(site, monkeypatch):
    monkeypatch.setattr(tools.shutil, "which", lambda name, path: None if name == "minisign" else name)
    with raises(ImageError, "tool minisign", "install minisign"):
        site.publish()


def test_no_secret_is_in_the_repr_of_a_change_or_of_nodes(site):
    change = site.publish()
    assert TOKEN not in repr(change)
    assert SECRET not in repr(identities.read_nodes(site.nodes))
