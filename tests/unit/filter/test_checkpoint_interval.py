# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The interval of checkpoints from counted failures, or a published rate that is named."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.filter import checkpoint_interval

interval = checkpoint_interval.FilterModule().filters()["checkpoint_interval"]


def test_counted_failures_are_used_where_there_are_any():
    assert interval(96, 300, 1, failures=12, node_days=2880)["mtbf_h"] == 60.0
    assert interval(96, 300, 1)["mtbf_h"] == 38.5
    assert interval(96, 300, 1, published="llama_3")["mtbf_h"] == 66.0


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        ({"failures": 3}, "node_days"),
        ({"failures": 3, "node_days": 0}, "node_days"),
        ({"failures": 0, "node_days": 9}, "node-days"),
        ({"published": "none"}, "meta_rsc_1"),
    ],
)
def test_what_makes_no_rate_is_refused(arguments, fact):
    with pytest.raises(AnsibleFilterError, match=fact):
        interval(96, 300, 1, **arguments)
