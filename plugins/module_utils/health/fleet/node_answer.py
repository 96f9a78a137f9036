# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read a node's answer from its files: state, what it must have, and the step time of its job."""

from __future__ import annotations

import math
import os
import time

from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.health import state
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.answers import Answer, of_state
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Expected
from ansible_collections.sailloft.fleet.plugins.module_utils.health.round import EXPECTED_FILE

# A job that exports no step for so long does not run any more.
STEP_S = 600
NUMBER_BYTES = 64


def answer(state_dir: str = state.DIRECTORY, step_time_file: str = "", expected_file: str = EXPECTED_FILE) -> Answer:
    """Return the node's answer; its ``error`` says why its health is not known."""
    try:
        read = state.read(state_dir)
    except (OSError, state.StateError) as error:
        return Answer(error=f"its state cannot be read: {error}")
    if read is None:
        return Answer(error=f"no health check has run: there is no {state.FILE} in {state_dir}")
    return of_state(read, _expected(expected_file), state.moment(), step_time_s(step_time_file))


def _expected(path: str) -> Expected | None:
    """Return what the node must have; None if it cannot be read, which a round makes a fault."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stored.load(stream.read())
    except (OSError, ValueError, StoredError):
        return None


def step_time_s(path: str) -> float | None:
    """Return the seconds of a job's step from the file in which it exports them; None without a recent number."""
    if not path:
        return None
    try:
        with open(path, "rb") as stream:
            is_recent = abs(time.time() - os.fstat(stream.fileno()).st_mtime) <= STEP_S
            number = float(stream.read(NUMBER_BYTES))
    except (OSError, ValueError):
        return None
    return number if is_recent and math.isfinite(number) and number > 0 else None
