# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Keys that can sign, and keys that cannot."""

from __future__ import annotations

import subprocess

import pytest
from identity_site import make_guarded_pair
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign


@pytest.fixture(scope="module", params=["quick", pytest.param("minisign's", marks=pytest.mark.long)])
def guarded(request, tmp_path_factory):
    """A key pair whose password is "word", of which minisign opens the first in an instant."""
    folder = tmp_path_factory.mktemp("guarded")
    pair = folder / "image.pub", folder / "image.key"
    if request.param == "quick":
        make_guarded_pair(*pair, "word")
    else:
        command = ["minisign", "-G", "-p", pair[0], "-s", pair[1]]
        subprocess.run(command, input="word\nword\n", text=True, check=True, capture_output=True)
    return folder


def test_the_same_key_and_data_give_the_same_signature(keys, guarded):
    for folder, password in ((keys, None), (guarded, "word")):
        signer = sign.Signer(str(folder / "image.key"), str(folder / "image.pub"), password)
        public = signer.key
        (one, another) = signer.sign([b"data"], sign.MANIFEST) + signer.sign([b"data"], sign.MANIFEST)
        assert one == another
        assert sign.verifies(b"data", one, public)
        assert not sign.verifies(b"date", one, public)


@pytest.mark.parametrize(
    ("password", "message"), [(None, "it has a password, but none was given"), ("other", "Wrong password for that key")]
)
def test_a_missing_or_wrong_password_is_reported(guarded, password, message):
    with pytest.raises(ImageError, match=message):
        sign.Signer(str(guarded / "image.key"), str(guarded / "image.pub"), password).sign([b"data"], sign.MANIFEST)


def test_keys_of_different_pairs_are_refused(keys, guarded):
    with raises(ImageError, "public key", "signing key"):
        sign.Signer(str(keys / "image.key"), str(guarded / "image.pub")).sign([b"data"], sign.MANIFEST)


def test_an_invalid_or_missing_public_key_is_refused(keys, tmp_path):
    with raises(ImageError, "minisign public key"):
        sign.read_public_key(keys / "image.key")
    with pytest.raises(ImageError, match="No such file"):
        sign.read_public_key(tmp_path / "none.pub")
