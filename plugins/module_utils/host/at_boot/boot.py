# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program that runs at every boot: it applies the saved settings with the same code as a module's run.

``python3 gpu_host.pyz SETTINGS.json``. A device or its driver may appear late, and one failing concern must not
block the others: each is tried until it succeeds or the time is up.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.given.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.host import concerns
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

PATIENCE_S = 60
PAUSE_S = 2


def apply(
    system: System, settings: dict[str, Any], say: Callable[[str], object], wait: Callable[[float], object] = time.sleep
) -> list[str]:
    """Apply all of ``settings`` and return the failures, one error per concern."""
    left = concerns.checked(settings)
    errors: dict[str, str] = {}
    for _attempt in range(PATIENCE_S // PAUSE_S):
        errors = {}
        for concern, given in left.items():
            try:
                outcome = concerns.Run(system, check=False).one(concern, given)
            except SailloftError as error:
                outcome = Outcome(failed=str(error))
            if outcome.failed:
                errors[concern] = outcome.failed
            for name, after in outcome.after.items():
                say(f"{concern}: {name}: {outcome.before[name]} -> {after}")
            for line in outcome.pending:
                say(line)
        left = {concern: left[concern] for concern in errors}
        if not left:
            break
        wait(PAUSE_S)
    return list(errors.values())


def main(arguments: list[str]) -> int:
    """Return exit status 0 if everything is as saved."""
    system = System()
    saved = system.read(arguments[0])
    if saved is None:
        sys.stderr.write(f"there is no {arguments[0]}: run the role gpu_host again\n")
        return 1
    errors = apply(system, json.loads(saved), lambda line: sys.stdout.write(line + "\n"))
    for error in errors:
        sys.stderr.write(error + "\n")
    return 1 if errors else 0
