# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A layer's key: what its bytes depend on, in one digest. The same key is the same layer, so it need not be built."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.image.files import canonical_json
from ansible_collections.sailloft.fleet.plugins.module_utils.image.spec import Layer

# Raise it with every change of the builder that makes other bytes of the same wishes: caches are then built anew.
BUILD_FORMAT = 3


def layer_key(
    layer: Layer,
    parent_key: str | None,
    release_digests: Mapping[str, str],
    content_digests: Mapping[str, str],
) -> str:
    """The key (hexadecimal sha256) of ``layer`` on the layer with ``parent_key``; None for the lowest.

    ``release_digests``: the sha256 of each release file of the layer's archives, by whatever names its builder gives
    them. ``content_digests`` as ``Layer.inputs`` has them; raises ImageError as that does.
    """
    return hashlib.sha256(
        canonical_json(
            {
                "format": BUILD_FORMAT,
                "layer": layer.inputs(content_digests),
                "parent": parent_key,
                "releases": dict(release_digests),
            }
        )
    ).hexdigest()
