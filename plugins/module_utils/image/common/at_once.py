# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Work on many names in threads, a bounded number at once; one that hangs does not stop the others."""

from __future__ import annotations

import heapq
import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import Optional, TypeVar, Union

# Each is a process of ssh or a TLS connection: memory, and the sessions of a bastion, bound it.
AT_ONCE = 100

Outcome = TypeVar("Outcome")
# What "ended" gets and returns: a result, or the error of an attempt; seconds until the next attempt, or None.
Ended = Callable[[str, Union[Outcome, Exception]], Optional[float]]


def at_once(
    names: Iterable[str],
    attempt: Callable[[str], Outcome],
    ended: Ended[Outcome],
    limit_s: Callable[[str], float],
    limit: int = AT_ONCE,
) -> None:
    """Run ``attempt`` for each name, and again when ``ended`` returns the seconds until then.

    ``ended`` runs in the caller's thread. It gets a TimeoutError of an attempt that takes more than ``limit_s`` of its
    name, in seconds: its thread is left behind, and no result of it counts.
    """
    due = [(0.0, number, name) for number, name in enumerate(names)]
    results: queue.SimpleQueue[tuple[int, Outcome | Exception]] = queue.SimpleQueue()
    running: dict[int, tuple[str, float]] = {}  # the name and the end of its time, by number of the attempt
    number = len(due)

    def work(number: int, name: str) -> None:
        try:
            results.put((number, attempt(name)))
        except Exception as error:  # it must not end the others
            results.put((number, error))

    while due or running:
        while due and len(running) < limit and due[0][0] <= time.monotonic():
            _at_s, number_of_attempt, name = heapq.heappop(due)
            running[number_of_attempt] = (name, time.monotonic() + limit_s(name))
            threading.Thread(target=work, args=(number_of_attempt, name), daemon=True).start()
        ends = [end_s for _name, end_s in running.values()]
        next_s = min(ends + ([due[0][0]] if due and len(running) < limit else []))
        arrived: list[tuple[int, Outcome | Exception]] = []
        try:
            arrived.append(results.get(timeout=max(0.0, next_s - time.monotonic())))
        except queue.Empty:
            now_s = time.monotonic()
            late = [number_of_attempt for number_of_attempt, (_name, end_s) in running.items() if end_s <= now_s]
            arrived = [(number_of_attempt, TimeoutError("it has not ended in its time")) for number_of_attempt in late]
        for number_of_attempt, outcome in arrived:
            name, _end_s = running.pop(number_of_attempt, ("", 0.0))
            pause_s = ended(name, outcome) if name else None
            if pause_s is not None:
                number += 1
                heapq.heappush(due, (time.monotonic() + pause_s, number, name))
