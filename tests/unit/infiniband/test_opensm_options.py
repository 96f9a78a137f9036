# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The options of opensm.conf, and which of them a running opensm takes."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.opensm_options import need_restart, values


def test_values_are_those_that_opensm_takes():
    text = "# sm_priority 1\nsm_priority 14\nqos_sl2vl 0,1 # lanes\nlog_file\n\nsm_priority 15\n"
    assert values(text) == {"sm_priority": "15", "qos_sl2vl": "0,1", "log_file": ""}


def test_only_options_that_opensm_does_not_read_again_need_a_restart():
    running = {"sm_priority": "15", "routing_engine": "ftree", "sweep_interval": "10", "qos_max_vls": "2"}
    assert need_restart(running, running) == []
    assert need_restart(running, {**running, "sm_priority": "14", "max_op_vls": "3"}) == []
    assert need_restart(running, {**running, "routing_engine": "updn", "lmc": "1"}) == ["lmc", "routing_engine"]
    # An option that leaves the file keeps its value, except for those of QoS.
    assert need_restart(running, {"routing_engine": "ftree"}) == ["sm_priority", "sweep_interval"]
