# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Messages that are compared by the facts in them, so that their sentences can change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Mentions:
    """Equals each text that contains all facts as whole words, in any order: addresses, names, numbers, key terms."""

    def __init__(self, *facts: object) -> None:
        self.facts = [text for fact in facts for text in (fact.facts if isinstance(fact, Mentions) else [str(fact)])]

    def missing_from(self, text: str) -> list[str]:
        """Return the facts that a text lacks."""
        return [fact for fact in self.facts if not re.search(rf"(?<!\w){re.escape(fact)}(?!\w)", text)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and not self.missing_from(other)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"Mentions({', '.join(map(repr, self.facts))})"


@contextmanager
def raises(kind: type[Exception], *facts: object) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expect an exception of this class whose message mentions all facts."""
    with pytest.raises(kind) as error:
        yield error
    assert Mentions(*facts).missing_from(str(error.value)) == [], str(error.value)
