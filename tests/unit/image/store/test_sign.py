# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Invalid public keys of images are refused."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign


def test_a_public_key_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "image.pub").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ImageError, match="is not a minisign public key"):
        sign.read_public_key(tmp_path / "image.pub")
