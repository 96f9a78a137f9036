# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build names from a template such as ``gpu-{n:03}``, with the numbers of the device and of its blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

# A template accepts only named numbers with a width: str.format would also read attributes.
FIELD = re.compile(r"\{([a-z_][a-z0-9_]*)(?::0?(\d))?\}")
# RFC 1123, section 2.1, in lower case only: DNS ignores case, but files do not.
HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")


def template(text: str, numbers: tuple[str, ...]) -> Callable[[Mapping[str, int]], str]:
    """Return a function from numbers to the name. Raises ValueError for an unknown number or an invalid name."""
    for field in FIELD.finditer(text):
        if field[1] not in numbers:
            raise ValueError(f"{{{field[1]}}} is not a known number; valid numbers: {', '.join(numbers)}")
    sample = FIELD.sub("0", text)
    if not HOST_NAME.fullmatch(sample):
        raise ValueError(f"{text!r} does not make a valid host name (lower case letters, digits, hyphens and dots)")
    form = FIELD.sub(lambda field: f"{{{field[1]}:0{field[2]}d}}" if field[2] else f"{{{field[1]}:d}}", text)
    return form.format_map
