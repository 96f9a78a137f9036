# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run all checks of a site. Ports and addresses that collide are refused earlier, when the site is expanded."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.site.check.fabric import check_fabric
from ansible_collections.sailloft.fleet.plugins.module_utils.site.check.failures import check_failures
from ansible_collections.sailloft.fleet.plugins.module_utils.site.check.finding import BrokenRule
from ansible_collections.sailloft.fleet.plugins.module_utils.site.check.racks import check_lengths, check_racks
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site


def check(site: Site) -> list[BrokenRule]:
    """Return all findings, in the order of the rules; an empty list for a site that keeps every rule."""
    findings = [*check_racks(site), *check_lengths(site)]
    for promise in site.blueprint.promises:
        findings += check_fabric(site, promise)
        findings += check_failures(site, promise)
    return findings
