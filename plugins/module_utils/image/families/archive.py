# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the settings that the archives of all families of distributions have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.common.values import InvalidValueError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import DIGEST
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Archive
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.process import without_credentials

URL = re.compile(r"https?://[^/\s@?#]+(/[^\s?#]*)?|file:///[^\s?#]*")
# The keyring becomes an option in brackets in sources.list(5), and a line of dnf's configuration.
KEYRING = re.compile(r"/[^\s\[\]]+")


def read_url(settings: Settings) -> str:
    """Return the archive's URL. Raises ImageError."""
    return settings.required("url", _url)


def _url(value: Any) -> str:
    if not isinstance(value, str) or not URL.fullmatch(value):
        raise InvalidValueError(
            f"{without_credentials(str(value))!r} is not an http, https or file URL without user and password",
            "write it like https://deb.debian.org/debian",
        )
    return value.rstrip("/")


def read_keyring(settings: Settings) -> str | None:
    """Return the path of the archive's keyring on the build host, None if it has none. Raises ImageError."""
    path = values.matching(KEYRING, "give an absolute path on the build host, without spaces and brackets")
    return settings.value("keyring", path)


def readable_paths(archives: Iterable[Archive]) -> list[Path]:
    """Return the paths of the build host that the archives name: keyrings, and directories of packages."""
    paths = [path for archive in archives for path in (archive.keyring, archive.local_folder()) if path]
    return [Path(path) for path in dict.fromkeys(paths) if Path(path).exists()]


def read_pins(settings: Settings, places: Sequence[str]) -> dict[str, str]:
    """Return the pinned digests by place; ``places`` are those that the archive has. Raises ImageError."""
    pins = settings.part("release_sha256")
    pins.only(*places)
    sha256 = values.matching(DIGEST, "give the sha256: 64 hexadecimal digits, lower case")
    return {place: pins.value(place, sha256) for place in pins.data}
