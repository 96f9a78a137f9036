# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Several questions are asked at once, and an error of one is not lost."""

from __future__ import annotations

import threading

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.files import at_once, natural


def test_answers_have_the_order_of_their_questions():
    all_wait = threading.Barrier(5)

    def ask(number):
        all_wait.wait(60)
        return number * number

    assert at_once(ask, range(5)) == [0, 1, 4, 9, 16]
    assert at_once(ask, []) == []


def test_an_error_is_raised_after_all_have_ended():
    def ask(number):
        return 1 / number

    with pytest.raises(ZeroDivisionError):
        at_once(ask, [1, 0, 2])


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("255", 255), ("-1", None), ("٣", None), ("²", None), ("", None)]
)
def test_only_plain_digits_are_a_number(text, number):
    assert natural(text) == number
