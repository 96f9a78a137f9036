# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute how often a job should write a checkpoint."""

from __future__ import annotations

DOCUMENTATION = r"""
name: checkpoint_interval
short_description: Compute how often a job should write a checkpoint, and what failures cost it
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Young's and Daly's interval from the rate of failures, the nodes of the job and the time of a checkpoint.
  - A site's own counted failures are better than published rates.
options:
  _input:
    description: The number of nodes of the job.
    type: int
    required: true
  checkpoint_gb:
    description: The size of a checkpoint in GB (10^9 bytes).
    type: float
    required: true
  write_gb_s:
    description: The measured bandwidth with which the job writes it, in GB/s.
    type: float
    required: true
  failures:
    description: The failures of jobs that were counted, with O(node_days).
    type: int
  node_days:
    description: The nodes in service times days in which they were counted.
    type: float
  published:
    description: The rate to use without O(failures), per 1000 node-days of 8 GPUs, V(meta_rsc_1) 6.5, V(llama_3) 3.8.
    type: str
    choices: [llama_3, meta_rsc_1]
    default: meta_rsc_1
  restart_s:
    description: The time from a failure until the job works again on a spare, in seconds.
    type: float
    default: 600
  repair_s:
    description: How much longer it waits where there is no spare, in seconds.
    type: float
    default: 7200
"""

EXAMPLES = r"""
# 96 nodes with 12 failures in 30 days, and a checkpoint of 300 GB at 10 GB/s
advice: "{{ 96 | sailloft.fleet.checkpoint_interval(300, 10, failures=12, node_days=2880) }}"
"""

RETURN = r"""
_value:
  description: >-
    C(mtbf_h), the mean time between failures of the job; C(checkpoint_s); C(young_s); C(interval_s), Daly's;
    C(lost_percent) of the time with it, C(lost_percent_hourly) with a checkpoint an hour; C(spare_saves_percent) and
    C(twice_the_bandwidth_saves_percent), points of C(lost_percent).
  type: dict
"""

from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError


def checkpoint_interval(
    nodes: int,
    checkpoint_gb: float,
    write_gb_s: float,
    failures: int | None = None,
    node_days: float | None = None,
    published: str = "meta_rsc_1",
    restart_s: float = 600.0,
    repair_s: float = 7200.0,
) -> dict[str, Any]:
    """Return the advice. Raises AnsibleFilterError."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.checkpoint import advise, failure_rate

    try:
        rate = failure_rate(failures, node_days, published)
        return advise(nodes, checkpoint_gb, write_gb_s, rate, restart_s, repair_s)
    except SailloftError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"checkpoint_interval": checkpoint_interval}
