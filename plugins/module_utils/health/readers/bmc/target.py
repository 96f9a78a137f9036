# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The BMCs that a controller reads, and one call for many of them.

A BMC is slow and may never answer, so each is read in a thread of its own with a deadline, and threads that are still
waiting at the end are left behind.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError

AT_ONCE = 32


@dataclass(frozen=True)
class Bmc:
    """A node's BMC and the account that reads it."""

    host: str  # the node's name
    address: str  # "10.0.0.7", "10.0.0.7:8443", "[fd00::7]"
    username: str
    password: str = field(repr=False)
    type: str = "redfish"  # or "ipmi"
    verify_tls: bool = True
    ca: str = ""  # file of certificates; "" for the system's
    timeout_s: float = 30.0  # for all that is read of it


def read_many(
    bmcs: Sequence[Bmc], read: Callable[[Bmc], Reading], at_once: int = AT_ONCE, limit_s: float | None = None
) -> dict[str, Reading]:
    """Return a reading for each BMC by host. ``limit_s``: for all together; by default what their own limits need."""
    queued: queue.SimpleQueue[Bmc] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[str, Reading]] = queue.SimpleQueue()
    for bmc in bmcs:
        queued.put(bmc)

    def work() -> None:
        while True:
            try:
                bmc = queued.get_nowait()
            except queue.Empty:
                return
            answers.put((bmc.host, _reading(bmc, read)))

    threads = max(1, min(at_once, len(bmcs)))
    if limit_s is None:
        rounds = -(-len(bmcs) // threads)
        limit_s = 2.0 + 1.5 * rounds * max((bmc.timeout_s for bmc in bmcs), default=0.0)
    for _thread in range(threads):
        threading.Thread(target=work, daemon=True).start()
    readings: dict[str, Reading] = {}
    end = time.monotonic() + limit_s
    try:
        while len(readings) < len({bmc.host for bmc in bmcs}):
            host, reading = answers.get(timeout=max(0.0, end - time.monotonic()))
            readings[host] = reading
    except queue.Empty:
        while not queued.empty():
            queued.get_nowait()
    late = f"no answer in {limit_s:g} s"
    return {bmc.host: readings.get(bmc.host, Reading(bmc.type, error=late)) for bmc in bmcs}


def _reading(bmc: Bmc, read: Callable[[Bmc], Reading]) -> Reading:
    start = time.monotonic()
    try:
        return read(bmc)
    except NotMeasuredError as error:
        cause = error.cause
    except OSError as error:
        cause = error.strerror or type(error).__name__
    except Exception as error:  # an answer of a kind that nobody expected must not end the others
        # Not its text, which may have parts of the request.
        cause = f"its answer could not be read ({type(error).__name__})"
    return Reading(bmc.type, error=cause, seconds=time.monotonic() - start)
