# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Archives of Debian and Ubuntu, as they answer; nothing is installed here."""

from __future__ import annotations

import hashlib

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import ToolError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import debian
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.model import Archive, Layer

RELEASE = b"Origin: Debian\nDate: Sat, 11 Jul 2026 10:16:37 UTC\n"
OLDER = b"Origin: x\nDate: Fri, 10 Jul 2026 10:16:37 UTC\n"
PAGES = {
    "http://a/debian/dists/bookworm/InRelease": RELEASE,
    "http://b/flat/Release": OLDER,
}
MAIN = Archive("http://a/debian", ("bookworm",), ("main",), "/keys.gpg")
FLAT = Archive("http://b/flat", ("./",), release_sha256={"./": hashlib.sha256(OLDER).hexdigest()})


def fetch(url: str) -> bytes:
    try:
        return PAGES[url]
    except KeyError:
        raise FileNotFoundError(url) from None


def layer(*archives: Archive, parent: str | None = None) -> Layer:
    return Layer("base", parent, "debian", "bookworm", "amd64", archives, ("bash",))


def test_releases_are_told_by_their_digest():
    assert debian.release_digests(layer(MAIN, FLAT), fetch) == {
        "http://a/debian bookworm": hashlib.sha256(RELEASE).hexdigest(),
        "http://b/flat ./": hashlib.sha256(OLDER).hexdigest(),
    }


def test_another_release_than_the_pinned_one_is_refused():
    pinned = Archive("http://a/debian", ("bookworm",), ("main",), release_sha256={"bookworm": "0" * 64})
    with pytest.raises(ImageError, match=r"0{64} is pinned"):
        debian.release_digests(layer(pinned), fetch)


def test_an_archive_without_release_is_refused_with_its_address():
    with pytest.raises(ImageError, match="http://c/debian/dists/sid/InRelease is not there"):
        debian.release_digests(layer(Archive("http://c/debian", ("sid",), ("main",))), fetch)


def test_the_newest_release_is_the_images_day():
    assert debian.source_date_epoch(layer(FLAT, MAIN), fetch) == 1_783_764_997
    assert debian.source_date_epoch(layer(FLAT), fetch) == 1_783_764_997 - 86400


def test_lists_of_other_releases_lie_elsewhere():
    one = layer(MAIN)
    first, second = (debian.caches(one, {"http://a/debian bookworm": digest}) for digest in ("0" * 64, "1" * 64))
    assert first["var/cache/apt/archives"] == second["var/cache/apt/archives"]
    assert first["var/lib/apt/lists"] != second["var/lib/apt/lists"]


def test_sources_trust_a_keyring_or_a_pin_and_nothing_else():
    unproven = Archive("http://c/debian", ("sid",), ("main", "contrib"))
    lines = debian._sources((MAIN, FLAT, unproven))
    assert lines == [
        "deb [signed-by=/keys.gpg] http://a/debian bookworm main",
        "deb [check-valid-until=no trusted=yes] http://b/flat ./",
        "deb http://c/debian sid main contrib",
    ]


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (
            "I: x\nE: Unable to locate package hallo\nE: apt-get --yes failed\n",
            "layer base: Unable to locate package hallo; correct the name",
        ),
        (
            "E: Unable to locate package minisign\n",
            "layer base: Unable to locate package minisign; the first stage needs it: ",
        ),
        (
            "E: Failed to fetch http://a/x.deb  404\nE: mmdebstrap failed to run\n",
            "layer base: Failed to fetch http://a/x.deb  404; ",
        ),
        ("dpkg: error: No space left on device\nE: Sub-process returned\n", "layer base: no space is left"),
    ],
)
def test_apt_is_quoted_and_its_wrapper_is_not(output, said):
    error = debian._explained(layer(MAIN), ToolError("layer base", ["mmdebstrap"], output))
    assert str(error).startswith(said)
    assert "mmdebstrap failed" not in str(error)
