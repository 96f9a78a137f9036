# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The builder's download directories, mounted over those of a tree: only a download changes them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import Run, inside


@dataclass(frozen=True)
class Caches:
    """The directories of one layer: path in the tree -> directory of the cache. ``work`` is on the same file system."""

    folders: Mapping[str, Path]
    work: Path

    @contextlib.contextmanager
    def downloading(self, root: Path, run: Run) -> Iterator[None]:
        """Mount the directories themselves. No code of a package or role may run meanwhile."""
        with self._mounted(root, run, keep=True):
            yield

    @contextlib.contextmanager
    def lent(self, root: Path, run: Run) -> Iterator[None]:
        """Mount the directories so that what is written there goes with the mount."""
        with self._mounted(root, run, keep=False):
            yield

    @contextlib.contextmanager
    def _mounted(self, root: Path, run: Run, keep: bool) -> Iterator[None]:
        mounted: list[Path] = []
        try:
            for name, folder in sorted(self.folders.items()):
                folder.mkdir(parents=True, exist_ok=True)
                os.utime(folder)  # records the last use
                place = inside(root, name, follow=True)
                place.mkdir(parents=True, exist_ok=True)
                run(["mount", "--bind", folder, place] if keep else self._overlay(folder, place))
                mounted.append(place)
            yield
        finally:
            for place in reversed(mounted):
                run(["umount", place])

    def _overlay(self, folder: Path, place: Path) -> list[str | Path]:
        scratch = Path(tempfile.mkdtemp(prefix="lent-", dir=self.work))
        for name in ("upper", "work"):
            (scratch / name).mkdir()
        options = f"lowerdir={folder},upperdir={scratch}/upper,workdir={scratch}/work"
        return ["mount", "-t", "overlay", "-o", options, "overlay", place]
