# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Import the fixtures of tests/support/image/boot_images.py, which benchmarks use as well."""

from __future__ import annotations

from boot_images import image, network, parts, stage

__all__ = ["image", "network", "parts", "stage"]
