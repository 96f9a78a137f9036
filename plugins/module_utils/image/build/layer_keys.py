# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A layer's key: one digest of all that its bytes depend on. A layer with a known key need not be built again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layer_inputs import layer_inputs
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import canonical_json
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Layer

# Increase it with every change of the builder that changes the bytes for the same request; all layers are then rebuilt.
BUILD_FORMAT = 7


def layer_key(
    layer: Layer,
    parent_key: str | None,
    release_digests: Mapping[str, str],
    content_digests: Mapping[str, str],
) -> str:
    """Return the key (hexadecimal sha256) of ``layer``; ``parent_key`` is its parent's, None for the lowest layer.

    ``release_digests``: the sha256 of each release file of the layer's archives, by the names that the distribution's
    family gives them. ``content_digests`` and the ImageError that is raised are those of ``layer_inputs``.
    """
    return hashlib.sha256(
        canonical_json(
            {
                "format": BUILD_FORMAT,
                "layer": layer_inputs(layer, content_digests),
                "parent": parent_key,
                "releases": dict(release_digests),
            }
        )
    ).hexdigest()
