# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring the HCAs to the saved settings at boot, with the same code as a module's run."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.hca.ports import ensure
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import retry
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System


def apply(system: System, settings: dict[str, Any], say: retry.Say, wait: retry.Wait = time.sleep) -> list[str]:
    """Bring the HCAs to ``settings``, and return the failure if there is one."""
    return retry.until_applied({"": lambda: ensure(system, settings)}, say, wait)


def main(arguments: list[str]) -> int:
    """Return exit status 0 if everything is as saved."""
    return retry.run("ib_host", arguments[0], System(), apply)
