# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check by the Release files of a layer of Debian or Ubuntu that its archives are of its suite and of one release."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Layer

# The first word of the Origin of releases of the distributions themselves: "Debian", "Debian Backports", "Ubuntu".
DISTRIBUTIONS = {"Debian", "Ubuntu"}
# Debian's unstable, and experimental (rc-buggy), which is only usable with it.
UNSTABLE = {"sid", "rc"}


def fields(release: bytes) -> dict[str, str]:
    """Return Origin, Suite and Codename of a release, those that it has."""
    lines = re.findall(r"^(Origin|Suite|Codename): *(\S.*?)\s*$", release.decode(errors="replace"), re.MULTILINE)
    return dict(lines)


def _names(fields: Mapping[str, str]) -> list[str]:
    return [fields[key] for key in ("Suite", "Codename") if key in fields]


def require_one_release(layer: Layer, releases: Mapping[str, Mapping[str, str]]) -> None:
    """Raise ImageError if two archives of the distribution itself are of different releases ("URL SUITE" -> fields)."""
    codenames = {
        # "bookworm-security", "buster/updates"
        name: re.split("[-/]", fields.get("Codename", ""))[0]
        for name, fields in releases.items()
        if fields.get("Origin", "").split(" ")[0] in DISTRIBUTIONS
    }
    of_layer = {codename for name, codename in codenames.items() if layer.suite in _names(releases[name])}
    allowed = of_layer | (UNSTABLE if of_layer & UNSTABLE else set())
    for name, codename in codenames.items():
        if of_layer and codename not in allowed:
            raise ImageError(
                f"its release is {codename}, but layer {layer.name} is of {' and '.join(sorted(of_layer))}",
                "use one release for all archives of the distribution",
                subject=f"archive {name}",
            )


def require_suite(layer: Layer, releases: Iterable[Mapping[str, str]]) -> None:
    """Raise ImageError if no archive is of the lowest layer's suite: mmdebstrap would install no essential package."""
    names = list(dict.fromkeys(name for fields in releases for name in _names(fields)))
    if layer.suite not in names:
        raise ImageError(
            f"its suite is {layer.suite}, but the releases of its archives say {' and '.join(names) or 'no suite'}",
            "set suite to the name in the release, or correct the suites of the archives",
            subject=f"layer {layer.name}",
        )
