# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fault that several checks found is one series each, also where the table names a link twice."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.counters import Counters
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.metrics import link_metrics
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.table import LinkTable


def test_each_series_is_there_once():
    fault = {"links": ["a e1 - s p1"], "part": "cable", "cause": "", "checks": ["port_rate", "port_down"]}
    made = LinkTable(faults=[fault, fault], healthy=3, faulty=1)
    counters = Counters(0.0, {("s", 1): {"PortRcvErrors": 7}}, frozenset())
    links, faults, ports = link_metrics("compute", made, counters)
    assert {labels["state"]: value for labels, value in links.samples} == {"healthy": 3, "faulty": 1, "unknown": 0}
    assert [labels["check"] for labels, _value in faults.samples] == ["port_down", "port_rate"]
    assert [(labels["node"], labels["port"], value) for labels, value in ports.samples] == [("s", "1", 7)]
