# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""All archives of a distribution in a layer have the packages of one release."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.spec import read_images

BASE = {
    "distribution": "debian",
    "suite": "bookworm",
    "architecture": "amd64",
    "archives": [{"url": "http://deb.debian.org/debian", "suites": ["bookworm"], "components": ["main"]}],
    "packages": ["systemd-sysv"],
}


@pytest.mark.parametrize(
    ("url", "suites", "is_mixed"),
    [
        ("https://mirror.example/debian", ["trixie"], True),
        ("http://deb.debian.org/debian-security", ["trixie-security"], True),
        ("http://deb.debian.org/debian", ["bookworm-updates", "bookworm-backports"], False),
        ("http://deb.debian.org/debian", ["bookworm/updates"], False),
        ("http://deb.debian.org/debian", ["stable-updates"], False),
        ("https://vendor.example/repo", ["trixie"], False),
    ],
)
def test_another_release_of_the_distribution_is_refused(url, suites, is_mixed):
    other = {"parent": "base", "archives": [{"url": url, "suites": suites, "components": ["main"]}]}
    layers = {"base": BASE, "other": other}
    if is_mixed:
        with pytest.raises(ImageError, match=f"{suites[0]}.*bookworm"):
            read_images({}, layers)
    else:
        read_images({}, layers)
