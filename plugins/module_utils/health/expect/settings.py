# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The inventory's limits and disabled checks of a node. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.names import nearest
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect.errors import ExpectError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import CheckSetting

LARGEST = 1e18


def read(data: Any, checks: Iterable[str]) -> dict[str, CheckSetting]:
    """Return the settings by check. Raises ExpectError, also for a check that does not exist.

    A check has ``limit``, a number, or ``disabled``, the reason for which it is not made.
    """
    names = sorted(checks)

    def refusal(subject: str, cause: str, remedy: str) -> ExpectError:
        return ExpectError(f"{subject}: {cause}", remedy)

    changes = Settings(refusal, "node_health_checks", data)
    settings = {}
    for check in changes.data:
        if check not in names:
            suggestion = nearest(check, names)
            remedy = f"did you mean {suggestion}?" if suggestion else "docs/reference/health.md lists the checks"
            raise ExpectError(f"node_health_checks: no check is called {check!r}", remedy)
        part = changes.part(check)
        part.only("limit", "disabled")
        limit = part.value("limit", lambda value: values.number(value, -LARGEST, LARGEST))
        disabled = part.value("disabled", values.text, "")
        if (limit is None) == (not disabled):
            raise part.refuse("has neither or both of limit and disabled", "give a limit, or disabled with the reason")
        settings[check] = CheckSetting(None if limit is None else float(limit), disabled)
    return settings
