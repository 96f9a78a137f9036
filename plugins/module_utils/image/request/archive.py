# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the settings that the archives of all families of distributions have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import DIGEST
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.process import without_credentials
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.record import Record

URL = re.compile(r"https?://[^/\s@?#]+(/[^\s?#]*)?|file:///[^\s?#]*")
# The keyring becomes an option in brackets in sources.list(5), and a line of dnf's configuration.
KEYRING = re.compile(r"/[^\s\[\]]+")


def read_url(record: Record) -> str:
    """Return the archive's URL. Raises ImageError."""
    url = record.text("url")
    if not URL.fullmatch(url):
        raise record.refuse(
            f"url {without_credentials(url)!r} is not an http, https or file URL without user and password",
            "write it like https://deb.debian.org/debian",
        )
    return url.rstrip("/")


def read_keyring(record: Record) -> str | None:
    """Return the path of the archive's keyring on the build host, None if it has none. Raises ImageError."""
    keyring = record.data.get("keyring")
    if keyring is not None and (not isinstance(keyring, str) or not KEYRING.fullmatch(keyring)):
        raise record.refuse(
            f"keyring {keyring!r} is not an absolute path without spaces and brackets",
            "give the file on the build host",
        )
    return keyring


def read_pins(record: Record, places: Sequence[str]) -> dict[str, str]:
    """Return the pinned digests by place; ``places`` are those that the archive has. Raises ImageError."""
    pins = record.mapping("release_sha256")
    for place, pin in pins.items():
        if place not in places:
            raise record.refuse(f"release_sha256 has the unknown key {place!r}", f"valid keys: {', '.join(places)}")
        if not isinstance(pin, str) or not DIGEST.fullmatch(pin):
            raise record.refuse(
                f"release_sha256 of {place} is {pin!r}, not a sha256", "give 64 hexadecimal digits, lower case"
            )
    return pins
