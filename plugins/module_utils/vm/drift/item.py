# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One difference in words, and the merging of several into a short list. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

DEFINED, RUNNING, HOST = "defined", "running", "host"


@dataclass
class Drift:
    """One difference: ``what`` it is, ``where`` (DEFINED, RUNNING, HOST), its consequence in the guest, and a remedy.

    ``paths`` are the paths of ``xml_diff.differences`` that the item describes.
    """

    what: str
    where: list[str]
    consequence: str
    remedy: str
    paths: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return asdict(self)


def merge(items: Iterable[Drift]) -> list[Drift]:
    """Merge equal items of several sides into one; return the host's first, the others in order."""
    by_meaning: dict[tuple[str, str], Drift] = {}
    for item in items:
        twin = by_meaning.setdefault((item.what, item.consequence), item)
        if twin is not item:
            twin.where = [place for place in (DEFINED, RUNNING, HOST) if place in {*twin.where, *item.where}]
            # The item of the running domain comes first and is kept, because its remedy says more.
            twin.paths += item.paths
        twin.paths = sorted(set(twin.paths))
    return sorted(by_meaning.values(), key=lambda item: item.where != [HOST])
