# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the bandwidth of PCIe that the site's own job measured with nvbandwidth, each time that it measures anew.

A copy needs the GPU's memory and disturbs the job that runs, so that the site says when: hourly as in arXiv 2407.05467,
2.3, or in the scheduler's epilog.
"""

from __future__ import annotations

import os

from ansible_collections.sailloft.fleet.plugins.module_utils.common import measuring_tools
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Measurement, Place, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.address import gpus
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.bandwidth import SITE

READER = "bandwidth"
FILE = "/var/lib/sailloft-health/nvbandwidth.json"


def read(node: Node) -> Reading:
    """Report the file's rates once. Raises NotMeasuredError for a file that is no report."""
    if not gpus(node.expected):
        return Reading(READER)
    try:
        written = str(os.stat(node.path(FILE)).st_mtime_ns)
    except FileNotFoundError:
        return Reading(READER)
    if node.kept.get("written") == written:
        return Reading(READER, kept=node.kept)
    try:
        report = measuring_tools.copies(node.text(FILE))
    except measuring_tools.UnreadableError as error:
        raise NotMeasuredError(f"{FILE}: {error.cause}") from error
    copies = [item for item in report.copies if item.test in SITE and item.column < len(report.gpus)]
    rates = tuple(
        Measurement(SITE[copy.test], Place("gpu", report.gpus[copy.column]), copy.gb_per_s, f"{FILE}: {copy.test}")
        for copy in copies
    )
    return Reading(READER, rates, kept={"written": written})
