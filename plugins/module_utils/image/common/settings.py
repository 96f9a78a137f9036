# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the settings of images and layers."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError


class ImageSettings(Settings):
    """Settings of an image, a layer or a part of one, by name. Raises ImageError."""

    refusal = ImageError
