# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring the NICs to the saved policy at every boot, with the same code as in a module's run.

``python3 roce_host.pyz SETTINGS.json``. A driver may create its devices late, so this is retried until a time limit.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.nic.ensure import ensure

PATIENCE_S = 60
PAUSE_S = 2


def apply(
    system: System, settings: dict[str, Any], say: Callable[[str], object], wait: Callable[[float], object] = time.sleep
) -> str:
    """Bring the NICs to ``settings``; return why that failed, "" if it did not."""
    why = ""
    for _attempt in range(PATIENCE_S // PAUSE_S):
        try:
            outcome = ensure(system, settings)
        except HostError as error:
            why = str(error)
            wait(PAUSE_S)
            continue
        for name, after in outcome.after.items():
            say(f"{name}: {outcome.before[name]} -> {after}")
        return ""
    return why


def main(arguments: list[str]) -> int:
    """Bring the NICs to the saved settings; return exit status 0 if everything is as saved."""
    system = System()
    saved = system.read(arguments[0])
    if saved is None:
        sys.stderr.write(f"there is no {arguments[0]}: run the role roce_host again\n")
        return 1
    why = apply(system, json.loads(saved), lambda line: sys.stdout.write(line + "\n"))
    if why:
        sys.stderr.write(why + "\n")
    return 1 if why else 0
