# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A layer holds what its key says, though its sources change while it is built."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image import layers
from ansible_collections.sailloft.fleet.plugins.module_utils.image.error import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.spec import Archive, File, Layer


def test_a_file_that_changes_meanwhile_is_refused(tmp_path):
    source = tmp_path / "limits"
    source.write_text("one")
    archive = Archive("http://a/debian", ("bookworm",), ("main",), "/keys.gpg")
    layer = Layer(
        "base", None, "debian", "bookworm", "amd64", (archive,), files=(File("/etc/limits", source=str(source)),)
    )
    wish = layers.Wish(layer, "0" * 64, {}, layer.inputs(layers.content_digests(layer)), 0)
    layers.require_unchanged(wish)
    source.write_text("two")
    with pytest.raises(ImageError, match=r"layer base: its file /etc/limits was changed while the layer was built"):
        layers.require_unchanged(wish)
    source.unlink()
    with pytest.raises(ImageError, match=rf"layer base: file /etc/limits: cannot read {source}"):
        layers.content_digests(layer)
