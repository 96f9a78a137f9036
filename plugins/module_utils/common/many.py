# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask many devices at once, some of which may never answer: threads with one deadline, left behind at its end."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

Item = TypeVar("Item")
Answered = TypeVar("Answered")


def ask_many(
    items: Mapping[str, Item], ask: Callable[[Item], Answered], at_once: int, limit_s: float
) -> dict[str, Answered]:
    """Return what ``ask``, which raises nothing, returned for each item by name; one that is late has no answer."""
    waiting: queue.SimpleQueue[tuple[str, Item]] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[str, Answered]] = queue.SimpleQueue()
    for pair in items.items():
        waiting.put(pair)

    def work() -> None:
        while True:
            try:
                name, item = waiting.get_nowait()
            except queue.Empty:
                return
            answers.put((name, ask(item)))

    for _ in range(min(at_once, len(items))):
        threading.Thread(target=work, daemon=True).start()
    answered: dict[str, Answered] = {}
    end = time.monotonic() + limit_s
    try:
        while len(answered) < len(items):
            name, answer = answers.get(timeout=max(0.0, end - time.monotonic()))
            answered[name] = answer
    except queue.Empty:
        while not waiting.empty():
            waiting.get_nowait()
    return answered
