# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module roce_counters_info on what a switch has shown; test_roce_host has its calls on a host."""

from __future__ import annotations

import copy
import time

import pytest
from shown_counters import PORTS, SHOWN, answered

from ansible_collections.sailloft.fleet.plugins.modules import roce_counters_info


def test_the_counters_of_a_switch_are_returned_with_their_differences(call):
    earlier = call(roce_counters_info, {"system": "cumulus", "answers": answered(SHOWN["cumulus"])})
    assert earlier["counters"][PORTS["cumulus"]]["pause_sent"][3] == 32
    assert set(earlier["unknown"]) == {"watchdog"}
    assert "differences" not in earlier
    shown = copy.deepcopy(SHOWN["cumulus"])
    shown["interface/PORT/counters/qos"]["swp1"]["pfc-stats"]["3"]["tx-pause-frames"] = 40
    later = call(roce_counters_info, {"system": "cumulus", "answers": answered(shown), "before": earlier["counters"]})
    assert later["differences"]["swp1"]["pause_sent"] == [None] * 3 + [8] + [None] * 4
    assert (later["changed"], "up" in later["differences"]["swp1"]) == (False, False)


def test_a_system_without_known_counters_says_why(call):
    result = call(roce_counters_info, {"system": "dell_sonic", "answers": answered({"show x": "y"})})
    assert result["counters"] == {}
    assert set(result["unknown"]) >= {"pause_received", "dropped", "watchdog"}


def test_the_nics_of_a_switch_are_refused(call):
    assert call(roce_counters_info, {"system": "eos", "nics": ["mlx5_0"]})["failed"]


def test_links_that_are_down_or_not_shown_are_not_up(call):
    request = {"system": "linux", "answers": answered(SHOWN["linux"]), "expected_up": ["p1", "p2", "p3"]}
    result = call(roce_counters_info, {**request, "deadline": time.time() + 900})
    assert result["waits"] is True
    assert call(roce_counters_info, {**request, "expected_up": ["p1"], "deadline": time.time() + 900})["waits"] is False
    assert call(roce_counters_info, {**request, "deadline": time.time() - 1})["waits"] is False
    assert (result["up"], result["not_up"], result["down"]) == (["p1"], ["p2", "p3"], ["p2"])


@pytest.mark.parametrize(
    "failure",
    [{"rc": 1}, {"rc": 1, "stderr": "Connection\nrefused"}, {"unreachable": True, "msg": "refused"}, {"failed": True}],
)
def test_output_of_a_command_that_failed_is_not_read_and_the_reason_is_returned(call, failure):
    results = answered(SHOWN["linux"])
    results[1].update(failure)
    result = call(roce_counters_info, {"system": "linux", "answers": results})
    assert result["counters"]["p1"]["up"] is True
    assert result["counters"]["p1"]["dropped"] == [None] * 8
    for counter in ("dropped", "ecn_marked"):
        assert results[1]["item"] in result["unknown"][counter]
        assert failure.get("stderr", failure.get("msg", "")).split("\n")[-1] in result["unknown"][counter]
