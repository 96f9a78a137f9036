# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The progress of a long-running module: lines in a file, which the module's action plugin shows as they arrive."""

from __future__ import annotations

import time
from collections.abc import Callable


def to_file(path: str | None) -> Callable[[str], None]:
    """Return a function that adds a line with the seconds since this call to ``path``, or does nothing without it."""
    started = time.monotonic()

    def tell(text: str) -> None:
        if path:
            with open(path, "a", encoding="utf-8") as stream:
                stream.write(f"{time.monotonic() - started:5.0f} s  {text}\n")

    return tell
