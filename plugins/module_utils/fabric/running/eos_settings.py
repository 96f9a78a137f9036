# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The settings of a port or a profile of EOS, and the way in which one overrides the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.syntax.cli import CliLine, CliSettings


class EosSettings(CliSettings):
    """The settings of a port or a profile: by key, the value and the line that sets it; and the same for each queue."""

    def __init__(self, line: CliLine) -> None:
        super().__init__()
        self.line = line
        self.queues: dict[int, dict[str, tuple[Any, CliLine]]] = {}
        self.heads: dict[int, str] = {}  # "uc-tx-queue 3", or the chip's word

    def merged_onto(self, below: EosSettings | None) -> EosSettings:
        """Return these settings, completed with those of ``below``: a port's lines override its profile's."""
        if below is None:
            return self
        merged = EosSettings(self.line)
        merged.values = {**below.values, **self.values}
        for queue in {*below.queues, *self.queues}:
            merged.queues[queue] = {**below.queues.get(queue, {}), **self.queues.get(queue, {})}
        return merged

    def lines_unlike(self, member: CliSettings) -> Iterator[str]:
        """Return a port channel's lines that ``member`` does not have, and its queues'."""
        yield from super().lines_unlike(member)
        if self.queues and not (isinstance(member, EosSettings) and member.contents() == self.contents()):
            yield from self.heads.values()

    def contents(self) -> tuple[Any, ...]:
        """Return all values, without the lines that set them."""
        values = [(key, value) for key, (value, _line) in self.values.items()]
        queues = [(queue, [(key, value[0]) for key, value in lines.items()]) for queue, lines in self.queues.items()]
        return (*values, *((queue, *lines) for queue, lines in queues))
