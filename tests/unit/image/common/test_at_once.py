# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Work on many names at once: bounded, repeated when asked, and not stopped by what fails or hangs."""

from __future__ import annotations

import threading
import time

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.at_once import at_once


def run(names, attempt, limit_s=5.0, **more):
    """Return the outcome of each name."""
    outcomes = {}
    at_once(names, attempt, lambda name, outcome: outcomes.update({name: outcome}), lambda _name: limit_s, **more)
    return outcomes


def test_each_name_has_its_outcome_and_an_error_stops_no_other():
    def attempt(name):
        if name == "b":
            raise OSError("gone")
        return name.upper()

    outcomes = run("abc", attempt)
    assert (outcomes["a"], outcomes["c"], str(outcomes["b"])) == ("A", "C", "gone")
    assert run([], attempt) == {}


def test_no_more_than_the_bound_run_at_once():
    lock, running, most = threading.Lock(), [], []

    def attempt(name):
        with lock:
            running.append(name)
            most.append(len(running))
        time.sleep(0.01)
        with lock:
            running.remove(name)

    run([str(number) for number in range(30)], attempt, limit=4)
    assert max(most) == 4


def test_one_that_hangs_is_left_behind_and_frees_its_place():
    def attempt(name):
        if name.startswith("hangs"):
            threading.Event().wait(5)
        return name

    began_s = time.monotonic()
    outcomes = run(["hangs1", "hangs2", "a", "b"], attempt, limit_s=0.3, limit=1)
    assert (outcomes["a"], outcomes["b"]) == ("a", "b")
    assert all(isinstance(outcomes[name], TimeoutError) for name in ("hangs1", "hangs2"))
    assert time.monotonic() - began_s < 4


def test_an_attempt_is_repeated_after_its_pause_until_it_is_the_last():
    begun = []

    def ended(name, outcome):
        return 0.1 if len(begun) < 3 else None

    at_once(["a"], lambda name: begun.append(time.monotonic()), ended, lambda _name: 5.0)
    assert len(begun) == 3
    assert begun[-1] - begun[0] >= 0.2


def test_the_result_of_one_that_was_left_behind_does_not_count():
    outcomes = []

    def attempt(name):
        time.sleep(0.3 if name == "late" else 0.5)
        return name

    def limit_s(name):
        return 0.1 if name == "late" else 2.0

    at_once(["late", "last"], attempt, lambda _name, outcome: outcomes.append(outcome), limit_s)
    assert [type(outcome) for outcome in outcomes] == [TimeoutError, str]
