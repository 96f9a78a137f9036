# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check a site against the rules: each finding names the rule, the offender, and the figures."""

from __future__ import annotations

from typing import NamedTuple


class BrokenRule(NamedTuple):
    """A rule that the site breaks. ``where`` is "FILE:LINE" of the setting that declares it."""

    rule: str
    offender: str
    message: str
    where: str = ""

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.offender}: {self.message} (rule: {self.rule})"
