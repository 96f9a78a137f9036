# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Apply the saved settings of a GPU host at boot, with the same code as a module's run."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.host import concerns
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import retry
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System


def apply(system: System, settings: dict[str, Any], say: retry.Say, wait: retry.Wait = time.sleep) -> list[str]:
    """Apply all of ``settings`` and return the failures, one error per concern."""
    parts = {
        concern: partial(concerns.ConcernPass(system, check=False).one, concern, request)
        for concern, request in concerns.checked(settings).items()
    }
    return retry.until_applied(parts, say, wait)


def main(arguments: list[str]) -> int:
    """Return exit status 0 if everything is as saved."""
    return retry.run("gpu_host", arguments[0], System(), apply)
