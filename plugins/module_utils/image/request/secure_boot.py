# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the variable node_image_secure_boot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.registry import family_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki.kernel import SecureBoot

# The first Debian whose tools were tried; its packages are also those of other distributions' images.
ARCHIVE = {
    "url": "http://deb.debian.org/debian",
    "suites": ["trixie"],
    "components": ["main"],
    "keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
}


def read_secure_boot(data: Any) -> SecureBoot | None:
    """Return the signer for firmware; None if the site has no ``certificate``. Raises ImageError."""
    settings = Settings(ImageError, "node_image_secure_boot", data or {})
    settings.only("certificate", "key", "signing_command", "policy_signing_command", "archive")
    certificate, key = (settings.value(name, values.path) for name in ("certificate", "key"))
    command, policy_command = (
        tuple(settings.data.get(name) or ()) for name in ("signing_command", "policy_signing_command")
    )
    if not certificate:
        if key or command or policy_command:
            raise settings.refuse("certificate is missing", "give the file of the key's certificate, in PEM")
        return None
    if bool(key) == bool(command):
        raise settings.refuse("it has not exactly one of key and signing_command", "give one of them")
    if key and policy_command:
        raise settings.refuse("it has both key and policy_signing_command", "leave out one: the key signs policies too")
    archive = family_of("debian").read_archive(
        Settings(ImageError, "node_image_secure_boot.archive", {**ARCHIVE, **(settings.data.get("archive") or {})})
    )
    return SecureBoot(Path(certificate), Path(key) if key else None, command, archive, policy_command)
