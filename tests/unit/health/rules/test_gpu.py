# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rules of GPUs, Xids and kernel lines are whole: each has a source, a known action and a section to read."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import ACTIONS, APPLICATION, CONFIGURATION
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules import gpu, kernel, xid
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES, TABLES

OWN = (*gpu.RULES, *xid.RULES, *kernel.RULES)


@pytest.mark.parametrize("rule", OWN, ids=lambda rule: rule.check)
def test_a_rule_is_whole(rule):
    assert re.fullmatch(r"[a-z][a-z0-9_]*", rule.check)
    assert rule.action in ACTIONS
    assert rule.source
    assert rule.title
    assert re.fullmatch(r"[a-z][a-z0-9-]*", rule.runbook)
    # Neither a program of the user nor a setting is a reason to reset or to replace hardware.
    if rule.layer == APPLICATION:
        assert ACTIONS.index(rule.action) < ACTIONS.index("drain")


def test_each_check_has_one_rule():
    counts = Counter(rule.check for table in TABLES for rule in table)
    assert [check for check, count in counts.items() if count > 1] == []
    assert len(RULES) == sum(counts.values())


def test_settings_are_faults_of_the_configuration():
    for check in ("gpu_persistence_mode", "gpu_ecc_mode", "gpu_mig_mode", "dcgm_diag_configuration", "version_kernel"):
        assert (RULES[check].layer, RULES[check].action) == (CONFIGURATION, "configure")
