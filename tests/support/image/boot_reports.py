# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The report of a booted node on its console."""

from __future__ import annotations

from boot_images import Image
from boot_network import NODE

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import boot_report

BOOT_S = 240


def reported(console: str, image: Image) -> boot_report.BootReport:
    """Return the report of a node that has come up, after comparing it with the image."""
    text = next(line for line in console.splitlines() if line.startswith("REPORT "))[len("REPORT ") :]
    found = boot_report.load(text, NODE)
    assert (found.node, found.image, found.name) == (NODE, image.digest, "test-node")
    assert found.kernel == image.manifest.kernel.version
    assert [(layer.name, layer.sha256) for layer in found.layers] == [
        (layer.name, layer.sha256) for layer in image.manifest.layers
    ]
    assert found.writable_bytes == 64 << 20
    return found
