# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The command line of a running QEMU as data."""

from __future__ import annotations

import json
from typing import Any, Optional

# (option, its fields) in the order of the command line; None: no command line was read.
Options = Optional[list[tuple[str, dict[str, str]]]]


def qemu_options(arguments: list[str] | None) -> Options:
    """Return QEMU's command line as (option, its fields), the same for both of its notations; None stays None.

    ``-object {"qom-type":"x","id":"a"}`` and ``-object x,id=a`` both give ("object", {"qom-type": "x", "id": "a"}).
    Values are text: JSON's true is "on", and a list is its items with commas.
    """
    if arguments is None:
        return None
    implied = {"object": "qom-type", "device": "driver", "machine": "type", "cpu": "model"}
    options = []
    for flag, value in zip(arguments, arguments[1:]):
        if not flag.startswith("-") or value.startswith("-"):
            continue
        name = flag.lstrip("-")
        if value.startswith("{"):
            fields = {key: _text(item) for key, item in json.loads(value).items()}
        else:
            fields = {}
            for number, part in enumerate(value.replace(",,", "\0").split(",")):
                key, equals, item = part.replace("\0", ",").partition("=")
                if equals:
                    fields[key] = item
                elif number == 0:
                    fields[implied.get(name, "value")] = key
                else:
                    fields[key] = "on"
        options.append((name, fields))
    return options


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return ",".join(_text(item) for item in value)
    return str(value)
