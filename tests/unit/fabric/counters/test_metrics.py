# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Counters become metrics by the classes of the policy; what is not known is not there, instead of 0."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.metrics import NAME, counter_metric
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.exposition import exposition


def lines(counted):
    policy = read_policy({"classes": {"roce": {"priority": 3, "queue": 4}}})
    return [line for line in exposition([counter_metric(policy, counted)]).splitlines() if not line.startswith("#")]


def test_a_list_gives_the_number_of_each_class():
    ports = {"swp1": {"dropped": [9, 9, 9, 9, 7, 9, 9, 9], "pause_sent": [9, 9, 9, 5, 9, 9, 9, 9], "up": True}}
    assert lines({"leaf1": {"counters": ports}}) == [
        f'{NAME}{{device="leaf1",port="swp1",counter="dropped",class="roce"}} 7',
        f'{NAME}{{device="leaf1",port="swp1",counter="pause_sent",class="roce"}} 5',
    ]


def test_what_is_not_known_has_no_sample():
    nic = {"mlx5_0": {"cnp_sent": 310, "roce_dropped": None, "pause_received": [0, 0], "pause_sent": [None] * 8}}
    counted = {"gpu1": {"counters": nic}, "leaf1": {"failed": True, "msg": "no"}, "leaf2": None}
    assert lines(counted) == [f'{NAME}{{device="gpu1",port="mlx5_0",counter="cnp_sent"}} 310']
