# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The judged links of a fabric, and their counters, as metrics. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.counters import Counters
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.health.table import LinkTable
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.exposition import COUNTER, Metric


def link_metrics(fabric: str, links: LinkTable, counters: Counters) -> list[Metric]:
    """Return the metrics of a table and of the reading that it judges."""
    numbers = {"healthy": links.healthy, "faulty": links.faulty, "unknown": links.unknown}
    faults = {
        (link, fault["part"], check): 1
        for fault in links.faults
        for link in fault["links"]
        for check in fault["checks"]
    }
    return [
        Metric(
            "sailloft_ib_links",
            "Links of the fabric by state.",
            [({"fabric": fabric, "state": state}, number) for state, number in numbers.items()],
        ),
        Metric(
            "sailloft_ib_link_fault",
            "1 for each fault of a link; part is the part to look at first.",
            [
                ({"fabric": fabric, "link": link, "part": part, "check": check}, 1)
                for link, part, check in sorted(faults)
            ],
        ),
        Metric(
            "sailloft_ib_port_counter_total",
            "Error counters of ports that are not 0.",
            [
                ({"fabric": fabric, "node": node, "port": str(number), "counter": counter}, value)
                for (node, number), values in sorted(counters.values.items())
                for counter, value in sorted(values.items())
            ],
            COUNTER,
        ),
    ]
