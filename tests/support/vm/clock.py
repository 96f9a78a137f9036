# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A clock for code that waits, in place of the module ``time``."""

from __future__ import annotations


class Clock:
    """A clock that only ``sleep`` advances; ``pauses`` are its arguments in seconds."""

    def __init__(self) -> None:
        self.now, self.pauses = 0.0, []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, pause: float) -> None:
        self.now += pause
        self.pauses.append(pause)
