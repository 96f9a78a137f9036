# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write /etc/nccl.conf, or compare it."""

from __future__ import annotations

import os

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.nccl_conf import CONF
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

CONF_MODE = 0o644


def write(system: System, content: bytes | None, check: bool) -> Outcome:
    """Write NCCL's file, which every user can read; None removes it."""
    outcome = Outcome()
    earlier = system.read_bytes(CONF)
    if earlier != content:
        outcome.differ(CONF, _lines(earlier), _lines(content))
        if not check and content is None:
            system.remove(CONF)
        elif not check and content is not None:
            system.replace(CONF, content)
    if earlier is not None and content is not None:
        mode = os.stat(system.path(CONF)).st_mode & 0o777
        if mode != CONF_MODE:
            outcome.differ(f"{CONF} mode", f"{mode:04o}", f"{CONF_MODE:04o}")
            if not check:
                os.chmod(system.path(CONF), CONF_MODE)
    return outcome


def _lines(content: bytes | None) -> list[str] | None:
    return None if content is None else content.decode(errors="backslashreplace").splitlines(keepends=True)
