# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one table of rules: check, layer, limit with its source, window, action. Pure.

Each other file of this directory has a tuple ``RULES`` of its subject, which TABLES joins.
"""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Expected, Rule
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules import (
    bandwidth,
    bmc,
    checker,
    gpu,
    host,
    kernel,
    network,
    xid,
)

TABLES: tuple[tuple[Rule, ...], ...] = (
    checker.RULES,
    gpu.RULES,
    bandwidth.RULES,
    xid.RULES,
    kernel.RULES,
    host.RULES,
    network.RULES,
    bmc.RULES,
)
RULES: dict[str, Rule] = {rule.check: rule for table in TABLES for rule in table}


def rules_of(expected: Expected, rules: dict[str, Rule] = RULES) -> dict[str, Rule]:
    """Return the rules of a node: with its own limits, and without the checks that are switched off.

    A limit of the inventory is instead of the rule's and of what is expected at the place.
    """
    result = {}
    for check, rule in rules.items():
        setting = expected.settings.get(check)
        if setting is None:
            result[check] = rule
        elif not setting.disabled:
            result[check] = rule if setting.limit is None else replace(rule, limit=setting.limit, expected=None)
    return result
