# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The message of a failed task, in one line."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.filter.roce_failure import FilterModule

roce_failure = FilterModule().filters()["roce_failure"]


@pytest.mark.parametrize(
    ("result", "cause"),
    [
        ({"failed": True, "msg": "no\n way "}, "no way"),
        ({"failed": True, "msg": "non-zero return code", "stderr": "a\nb"}, "non-zero return code a b"),
        ({"failed": True, "stderr": "a"}, "a"),
        ({"failed": True}, "see its output"),
        ({"failed": True, "msg": ["a", 1]}, "['a', 1]"),
        (
            {
                "failed": True,
                "msg": "1",
                "results": [{"msg": "x"}, {"failed": True, "msg": "y"}, {"failed": True, "msg": "z"}],
            },
            "y; z",
        ),
    ],
)
def test_the_cause_of_a_failed_task_is_one_line(result, cause):
    assert roce_failure(result) == cause
