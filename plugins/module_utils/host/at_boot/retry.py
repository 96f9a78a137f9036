# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The programs that run at every boot: ``python3 ROLE.pyz SETTINGS.json`` applies the saved settings.

A device or its driver may appear late, and one failing part must not block the others: each is tried until it succeeds
or the time is up.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any, Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

PATIENCE_S = 60
PAUSE_S = 2

Say = Callable[[str], object]
Wait = Callable[[float], object]


def has_failed(outcome: Outcome) -> bool:
    """Return True if a part failed."""
    return bool(outcome.failed)


def until_applied(
    parts: Mapping[str, Callable[[], Outcome]],
    say: Say,
    wait: Wait = time.sleep,
    is_incomplete: Callable[[Outcome], bool] = has_failed,
) -> list[str]:
    """Apply each part until it is complete, and return the last failure of each that is not.

    ``say`` gets a line for each change and, at the end, for what waits for the next boot. A part without a name is the
    only one.
    """
    outcomes: dict[str, Outcome] = {}
    remaining = dict(parts)
    for _attempt in range(PATIENCE_S // PAUSE_S):
        for name, apply in remaining.items():
            outcomes[name] = _outcome(apply)
            for setting, new_value in outcomes[name].after.items():
                say(f"{name}{': ' if name else ''}{setting}: {outcomes[name].before[setting]} -> {new_value}")
        remaining = {name: apply for name, apply in remaining.items() if is_incomplete(outcomes[name])}
        if not remaining:
            break
        wait(PAUSE_S)
    for outcome in outcomes.values():
        for line in outcome.pending:
            say(line)
    return [outcome.failed for outcome in outcomes.values() if outcome.failed]


def _outcome(apply: Callable[[], Outcome]) -> Outcome:
    try:
        return apply()
    except SailloftError as error:
        return Outcome(failed=str(error))


def run(role: str, path: str, system: System, apply: Callable[[System, Any, Say], list[str]]) -> int:
    """Apply the settings that ``role`` has saved at ``path``, and return the exit status."""
    saved = system.read(path)
    if saved is None:
        sys.stderr.write(f"there is no {path}: run the role {role} again\n")
        return 1
    errors = apply(system, json.loads(saved), lambda line: sys.stdout.write(line + "\n"))
    for error in errors:
        sys.stderr.write(error + "\n")
    return 1 if errors else 0
