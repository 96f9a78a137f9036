# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The bundles of a store are made once, made again where something changed, and otherwise not changed.

tests/identity decrypts them with TPMs.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path

import pytest
from build_host import make_keys
from image_samples import Sample
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identities, identity
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity.tools import PACKAGES
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import IDENTITY, Store

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, PACKAGES)), reason="the tools for bundles are not on this machine (bindep.txt)"
)


def given(name, byte, content="5ecret"):
    """Return a node as the module receives it; all bytes of its TPM's public key are ``byte``."""
    ek = (len(identity.EK_TEMPLATE) + 256).to_bytes(2, "big") + identity.EK_TEMPLATE + bytes([byte]) * 256
    secret = {"path": "/etc/token", "content": content, "mode": "0600", "owner": "root", "group": "root"}
    return {"name": name, "ek": base64.b64encode(ek).decode(), "secrets": [secret]}


ONE, TWO = given("bm01", 0xA7), given("bm02", 0xA9)


class Site:
    """A store, its signing keys, and a method that requests bundles."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(str(folder / "store"))
        Sample("node", base=b"base").publish(self.store, folder / "blobs")
        self.keys = make_keys(folder / "keys")

    def ensure(self, *nodes, keys=None, check=False, removed=(), command=""):
        folder = keys or self.keys
        key = "" if command else str(folder / "image.key")
        signer = Signer(key, str(folder / "image.pub"), None, ("sh", "-c", command) if command else ())
        return identities.ensure(self.store, identities.read_nodes(nodes), signer, check, removed)

    def files(self):
        """Return the bundles by node."""
        folder = Path(self.store.place(IDENTITY))
        return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.is_dir() else {}


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_bundles_are_created_once(site):
    change = site.ensure(TWO, ONE, check=True)
    assert (change.before, change.written, site.files()) == ({}, ("bm01", "bm02"), {})
    assert site.ensure(TWO, ONE) == change
    before = site.files()
    assert sorted(before) == ["bm01", "bm02"]
    again = site.ensure(ONE, TWO)
    assert (again.written, again.removed, again.others) == ((), (), ())
    assert again.before == again.after == change.after
    assert site.files() == before
    assert b"5ecret" not in before["bm01"]


def test_only_changed_bundles_are_created_again(site, tmp_path):
    site.ensure(ONE, TWO)
    before = site.files()
    assert site.ensure(given("bm01", 0xA7, "other"), TWO).written == ("bm01",)
    other_secret = site.files()
    assert site.ensure(given("bm01", 0xB1, "other"), TWO).written == ("bm01",)  # another TPM
    after = site.files()
    assert len({before["bm01"], other_secret["bm01"], after["bm01"]}) == 3
    assert before["bm02"] == after["bm02"]
    assert site.ensure(ONE, TWO, keys=make_keys(tmp_path / "new")).written == ("bm01", "bm02")


def test_an_invalid_bundle_or_one_of_another_node_is_created_again(site):
    site.ensure(ONE, TWO)
    folder = Path(site.store.place(IDENTITY))
    (folder / "bm01").write_bytes(site.files()["bm02"])
    (folder / "bm02").write_bytes(b"no bundle")
    change = site.ensure(ONE, TWO)
    assert change.written == ("bm01", "bm02")
    assert change.before["bm02"] is None
    assert change.before["bm01"] == change.after["bm02"]
    bundle = site.files()["bm01"]
    (folder / "bm01").write_bytes(bundle[:-2] + b"A\n")  # with an invalid signature
    assert site.ensure(ONE, TWO).written == ("bm01",)


def test_bundles_are_removed_by_node_name_and_the_others_are_reported(site):
    site.ensure(ONE, TWO)
    left = Path(site.store.place(IDENTITY)) / ".bm03.new"
    left.write_bytes(b"of a run that was killed")
    change = site.ensure(removed=["bm01", "bm09"], check=True)
    assert (change.written, change.removed, change.others) == ((), ("bm01",), ("bm02",))
    assert sorted(site.files()) == [".bm03.new", "bm01", "bm02"]
    assert site.ensure(removed=["bm01", "bm09"]) == change
    assert sorted(site.files()) == ["bm02"]


def by_command(site, comments):
    """Return a command of the site that signs with these options of minisign."""
    folder = site.keys
    signs = f"minisign -S -s {folder}/image.key -m {folder}/m -x {folder}/x {comments}"
    return f"cat > {folder}/m; {signs} >&2; cat {folder}/x"


def test_a_command_of_the_site_signs_bundles(site):
    command = by_command(site, '-t "$TRUSTED_COMMENT" -c token')
    assert site.ensure(ONE, TWO, command=command).written == ("bm01", "bm02")
    before = site.files()
    assert site.ensure(ONE, TWO, command=command).written == ()
    assert site.ensure(given("bm01", 0xA7, "other"), TWO, command=command).written == ("bm01",)
    assert site.files()["bm02"] == before["bm02"]
    _bundle, text, signature = identity.parse(before["bm01"], "bm01")
    assert sign.verifies(text, signature, sign.read_public_key(site.keys / "image.pub"))
    assert sign.trusted_comment(signature) == identity.COMMENTS.trusted


@pytest.mark.parametrize(
    ("comments", "facts"),
    [
        ("-t ours", ["'ours'", repr(identity.COMMENTS.trusted), "TRUSTED_COMMENT"]),
        ('-t "$TRUSTED_COMMENT" -c "$(date +%N)"', ["same data", "Ed25519"]),
    ],
)
def test_a_command_whose_bundles_no_node_would_take_is_refused(site, comments, facts):
    with raises(ImageError, "signing command sh", *facts):
        site.ensure(ONE, command=by_command(site, comments))
    assert site.files() == {}


def test_a_signature_for_another_purpose_is_no_bundle(site):
    """The same key has signed the same data, with the comment of images."""
    site.ensure(ONE)
    _bundle, text, _signature = identity.parse(site.files()["bm01"], "bm01")
    signer = Signer(str(site.keys / "image.key"), str(site.keys / "image.pub"), None)
    (Path(site.store.place(IDENTITY)) / "bm01").write_bytes(text + signer.sign([text], sign.MANIFEST)[0])
    assert site.ensure(ONE).written == ("bm01",)


def test_contradicting_input_is_refused_before_anything_is_written(site):
    with raises(ImageError, "bm01", "written", "removed"):
        site.ensure(ONE, TWO, removed=["bm01"])
    with raises(ImageError, "bm01", "twice"):
        site.ensure(ONE, given("bm01", 0xA9))
    with raises(ImageError, "bm02", "endorsement key of node bm01"):
        site.ensure(ONE, given("bm02", 0xA7))
    with raises(ImageError, "bm01", identity.LARGEST_BUNDLE_BYTES):
        site.ensure(given("bm01", 0xA7, "x" * identity.LARGEST_BUNDLE_BYTES))
    assert site.files() == {}


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen on this machine (bindep.txt)")
def test_the_public_host_key_is_published_with_a_bundle(site, tmp_path):
    def keyed(name):
        """Return the node with a host key, and the line by which its signatures are verified."""
        path = tmp_path / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path, "-C", ""], check=True)
        node = given("bm01", 0xA7)
        secret = {**node["secrets"][0], "path": identity.HOST_KEY, "content": path.read_text()}
        line = f'bm01 namespaces="sailloft-health" {path.with_suffix(".pub").read_text().strip()}\n'
        return {**node, "secrets": [*node["secrets"], secret]}, line.encode()

    (node, line), (changed, other_line) = keyed("one"), keyed("two")
    site.ensure(node, TWO)
    assert sorted(site.files()) == [".bm01.signer", "bm01", "bm02"]
    assert site.files()[".bm01.signer"] == line
    assert site.ensure(node, TWO).written == ()
    assert site.ensure(changed, TWO).written == ("bm01",)
    assert site.files()[".bm01.signer"] == other_line
    (Path(site.store.place(IDENTITY)) / ".bm01.signer").unlink()
    assert site.ensure(changed, TWO).written == ("bm01",)
    assert site.files()[".bm01.signer"] == other_line
    site.ensure(ONE, TWO)
    assert sorted(site.files()) == ["bm01", "bm02"]
    site.ensure(node)
    site.ensure(removed=["bm01"])
    assert sorted(site.files()) == ["bm02"]


@pytest.mark.parametrize("content", ["", "5ecret", f"{identity.KEY_BEGIN}\nAAAA\n-----END", f"{identity.KEY_BEGIN}\n!"])
def test_a_host_key_of_another_form_is_a_secret_as_others(content):
    assert identity.signer("bm01", [identity.Secret(identity.HOST_KEY, content, "0600", "root", "root")]) is None
