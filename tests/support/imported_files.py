# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The files of the plugins that a file imports, found in its text: the syntax trees of all files take many seconds."""

from __future__ import annotations

import functools
import re
from pathlib import Path

PLUGINS = Path(__file__).parents[2] / "plugins"
IMPORT = re.compile(
    r"^ *from ansible_collections\.sailloft\.fleet\.plugins\.([\w.]+) import (\([^)]*\)|.*)$", re.MULTILINE
)


@functools.cache
def imported_files(path: Path) -> frozenset[Path]:
    """Return the files that a file imports, or from which it imports names, also in functions or only for types."""
    files = set()
    for package, names in IMPORT.findall(path.read_text(encoding="utf-8")):
        place = PLUGINS.joinpath(*package.split("."))
        for name in re.findall(r"\w+", re.sub(r" as \w+|#.*", "", names)):
            file = next((file for file in (place / f"{name}.py", place.with_suffix(".py")) if file.is_file()), None)
            files |= {file} if file else set()
    return frozenset(files)
