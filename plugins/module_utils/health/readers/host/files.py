# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Values of the kernel's small files below /sys and /proc as measurements, and several questions at once."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Measurement, Place
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node

# The kernel's counters have 64 bits at most.
DIGITS = re.compile(r"[0-9]{1,20}")

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def at_once(ask: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """Return the answer for each item. Each is asked in a thread: those that wait for a broken part delay no other.

    Raises what a question raised.
    """
    answers: dict[int, Answer] = {}
    errors: list[Exception] = []

    def work(number: int) -> None:
        try:
            answers[number] = ask(items[number])
        except Exception as error:  # to be raised in the caller's thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(len(items))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [answers[number] for number in range(len(items))]


def natural(text: str) -> int | None:
    """Return the whole number that a text is, None if it is anything else: "-1", "N/A (no PMA)", "".

    Only ASCII digits count, and not more than a counter of 64 bits has.
    """
    return int(text) if DIGITS.fullmatch(text) else None


def optional(node: Node, path: str) -> str:
    """Return a file's text, "" if it is absent or cannot be read: a port that is down refuses its speed."""
    try:
        return node.text(path)
    except OSError:
        return ""


def lasting(
    node: Node, check: str, measurements: Iterable[Measurement]
) -> tuple[tuple[Measurement, ...], dict[str, str]]:
    """Return measurements in which a check is true only where it was in the last round of this boot too.

    A link that trains, at a boot or after a flap, is not measured in its first round. Also returns what the reader
    keeps for the next round.
    """
    listed = tuple(measurements)
    boot_id = optional(node, "/proc/sys/kernel/random/boot_id")
    previous = node.kept.get("lasting", "").split() if node.kept.get("boot_id") == boot_id else []
    now = [item.place.name for item in listed if item.check == check and item.value is True]
    changed = tuple(
        replace(item, value=None, reason=f"{item.reason}; a fault if it lasts for another round")
        if item.check == check and item.value is True and item.place.name not in previous
        else item
        for item in listed
    )
    return changed, {"boot_id": boot_id, "lasting": " ".join(now)}


def counter(node: Node, check: str, place: Place, path: str, saturation: int | None = None) -> list[Measurement]:
    """Return a counter in a file, none where the kernel has no such file."""
    try:
        text = node.text(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        return [Measurement(check, place, None, path, error.strerror or "it cannot be read")]
    value = natural(text)
    reason = "" if value is not None else f"{text!r:.60} is no number"
    return [Measurement(check, place, value, path, reason, is_counter=True, saturation=saturation)]


def names(text: str) -> list[str]:
    """Return the names that an earlier round kept."""
    try:
        data = json.loads(text)
    except ValueError:
        return []
    return [name for name in data if isinstance(name, str)] if isinstance(data, list) else []
