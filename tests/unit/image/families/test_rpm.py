# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""RPM archives, as they answer; nothing is installed here."""

from __future__ import annotations

import hashlib

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import rpm
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.model import Archive, Layer

LIST = b"<repomd/>"


def releases(keyring) -> dict[str, str]:
    layer = Layer("base", None, "rocky", "9", "x86_64", (Archive("http://a/9", keyring=str(keyring)),), ("bash",))
    return rpm.release_digests(layer, lambda url: LIST)


def test_keys_that_go_into_rpms_database_are_told_by_their_digest(tmp_path):
    (tmp_path / "key").write_text("a key")
    assert releases(tmp_path / "key") == {
        "http://a/9/repodata/repomd.xml": hashlib.sha256(LIST).hexdigest(),
        "http://a/9 keyring": hashlib.sha256(b"a key").hexdigest(),
    }


def test_a_keyring_that_is_not_there_is_known_before_anything_is_built(tmp_path):
    with pytest.raises(ImageError, match=r"^layer base: cannot read keyring .*/key for http://a/9: No such file"):
        releases(tmp_path / "key")
