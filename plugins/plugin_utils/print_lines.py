# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Print lines as they are, whatever format the callback gives to results."""

from __future__ import annotations

from collections.abc import Iterable

from ansible import constants
from ansible.utils.display import Display

display = Display()


def print_lines(lines: Iterable[str], subject: str = "") -> None:
    """Print the lines together, each after ``subject`` and a colon if there is one.

    Tasks of several hosts run at a time: lines that are printed together stay together. The output of a callback that
    prints JSON is for programs, so the lines go to stderr there. Characters that a terminal obeys or does not show are
    written as Python does, such as \\x1b: a line may have text of a host.
    """
    start = f"{subject}: " if subject else ""
    text = "\n".join(f"{start}{line if line.isprintable() else _printable(line)}" for line in lines)
    if text:
        display.display(text, stderr="json" in constants.config.get_config_value("DEFAULT_STDOUT_CALLBACK"))


def _printable(line: str) -> str:
    return "".join(
        character if character.isprintable() or character == "\t" else character.encode("unicode_escape").decode()
        for character in line
    )
