# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""List the Debian packages that a build host needs for the layers that it builds."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_image_build_packages
short_description: List the packages that a build host needs
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Names the Debian packages of the tools that build the given layers, by their distributions.
options:
  _input:
    description: The layers by name, C(node_image_layers).
    type: dict
    required: true
  secure_boot:
    description: Whether the images are signed for firmware with Secure Boot.
    type: bool
    default: false
"""

EXAMPLES = r"""
name: "{{ node_image_layers | sailloft.fleet.node_image_build_packages }}"
"""

RETURN = r"""
_value:
  description: The names of the packages, sorted.
  type: list
  elements: str
"""

from collections.abc import Mapping
from typing import Any

# The packages that the builds of all distributions need.
PACKAGES = ("bubblewrap", "cryptsetup-bin", "minisign", "passwd", "squashfs-tools", "util-linux", "zstd")
# Those that sign for firmware, and verify the archive of the other tools.
SIGNER_PACKAGES = ("debian-archive-keyring", "osslsigncode", "python3-minimal")

# Those that copy and unpack container images.
OCI_PACKAGES = ("skopeo", "umoci")


def node_image_build_packages(layers: Mapping[str, Any], secure_boot: bool = False) -> list[str]:
    """Return the packages. The module node_image refuses an unknown distribution and lists the known ones."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.registry import DISTRIBUTIONS

    names = {str(layer.get("distribution")) for layer in layers.values() if isinstance(layer, Mapping)}
    families = [DISTRIBUTIONS[name] for name in names if name in DISTRIBUTIONS]
    signer = SIGNER_PACKAGES if secure_boot else ()
    oci = OCI_PACKAGES if any(isinstance(layer, Mapping) and layer.get("oci") for layer in layers.values()) else ()
    return sorted({*PACKAGES, *signer, *oci, *(package for family in families for package in family.BUILD_PACKAGES)})


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"node_image_build_packages": node_image_build_packages}
