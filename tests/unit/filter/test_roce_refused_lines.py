# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The lines of a change that a switch refused, by the word that it names."""

from __future__ import annotations

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.filter.roce_refused_lines import FilterModule

roce_refused_lines = FilterModule().filters()["roce_refused_lines"]
LINES = ["qos map dscp 26", "priority-flow-control priority 3 no-drop", "no-drop again", "set mtu 9216"]


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (
            "Invalid input (at token 3: 'no-drop')",
            Mentions("priority-flow-control", "3", "no-drop"),
        ),
        ("<bad-element>\n mtu </bad-element>", Mentions("9216")),
        (
            "Invalid input (at token 12: '26') and <bad-element>mtu</bad-element>",
            Mentions("26", "Lines"),
        ),
        ("<bad-element> </bad-element>", ""),
        ("the connection was closed", ""),
    ],
)
def test_the_lines_that_contain_the_refused_word_are_listed(message, sentence):
    assert roce_refused_lines(LINES, message) == sentence
