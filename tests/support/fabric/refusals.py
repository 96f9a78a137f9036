# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Refusals as a caller sees them: the error's class, its subject and key facts, in any wording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError


@contextmanager
def refuses(subject: str, *facts: object) -> Iterator[None]:
    """Expect a FabricError with a remedy, about ``subject``, that states each of ``facts`` (names, numbers)."""
    with pytest.raises(FabricError) as error:
        yield
    assert (error.value.subject, bool(error.value.remedy)) == (subject, True)
    text = f"{error.value.cause}; {error.value.remedy}"
    assert [fact for fact in facts if str(fact) not in text] == [], text
