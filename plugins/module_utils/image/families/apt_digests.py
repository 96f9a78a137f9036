# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check what apt has in the cache before each use: the release has the digests of lists, these have those of packages.

apt itself checks digests only of what it fetches. Of a package that is there it compares the size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import sha256_of

# A line of the field SHA256 of a release: digest, size in bytes, path.
LIST = re.compile(r"^ ([0-9a-f]{64}) +\d+ (\S+)$", re.MULTILINE)
# Not "^": that takes six times as long for the 60,000 packages of Debian.
PACKAGE = re.compile(rb"\nSHA256: ([0-9a-f]{64})")


def require_releases(lists: Path, layer: str, digests: Mapping[str, str]) -> None:
    """Raise ImageError if a release is not there that the layer's key has: a mirror may change in between."""
    releases = {sha256_of(path) for path in _releases(lists)}
    for name, digest in digests.items():
        if digest not in releases:
            raise ImageError(
                f"was changed while layer {layer} was built: apt did not get the InRelease {digest}",
                "run again; if the archive changes often, pin a snapshot",
                subject=f"archive {name}",
            )


def require_lists(lists: Path) -> None:
    """Raise ImageError, and remove the list, if one differs from its digest in the release.

    A list that its release names only in compressed form was checked by apt alone, when it was fetched.
    """
    for release in _releases(lists):
        prefix = release.name.removesuffix("Release").removesuffix("In")
        for digest, name in LIST.findall(release.read_text(errors="replace")):
            # As apt names it.
            path = lists / f"{prefix}{name.replace('/', '_')}"
            if path.is_file() and sha256_of(path) != digest:
                path.unlink()
                raise ImageError(
                    f"has not the sha256 {digest} of its release", "run again: it was removed", subject=f"list {path}"
                )


def remove_altered(archives: Path, lists: Path) -> list[str]:
    """Remove the packages whose digests are in no list, and return their names."""
    digests = {digest.decode() for path in lists.glob("*_Packages") for digest in PACKAGE.findall(path.read_bytes())}
    altered = [path for path in sorted(archives.glob("*.deb")) if sha256_of(path) not in digests]
    for path in altered:
        path.unlink()
    return [path.name for path in altered]


def _releases(lists: Path) -> Iterator[Path]:
    return (path for path in sorted(lists.glob("*Release")) if path.is_file())
