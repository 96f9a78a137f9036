# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The tables of readers and rules fit together."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from rounds import EXPECTED

from ansible_collections.sailloft.fleet.plugins.module_utils.health import model, process
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import LAYERS
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import ACTIONS, Expected
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import Node, NotMeasuredError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.table import READERS
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES, TABLES

COMPARISONS = (
    model.EQUAL,
    model.AT_LEAST,
    model.AT_MOST,
    model.INCREASE_AT_MOST,
    model.MEDIAN_AT_LEAST,
    model.NOT_TRUE,
    model.EVENT,
)


def test_each_check_has_one_rule_and_each_reader_one_name():
    assert [
        check for check, count in Counter(rule.check for table in TABLES for rule in table).items() if count > 1
    ] == []
    assert len({reader.name for reader in READERS}) == len(READERS)


def test_rules_are_complete():
    for rule in RULES.values():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", rule.check), rule
        assert rule.layer in LAYERS, rule
        assert rule.comparison in COMPARISONS, rule
        assert rule.action in ACTIONS, rule
        assert rule.title, rule
        assert rule.source, rule
        assert re.fullmatch(r"[a-z][a-z0-9-]*", rule.runbook), rule
        # Only a part to repair leads to a repair, and an application takes no node out of service.
        assert rule.layer != model.APPLICATION or ACTIONS.index(rule.action) < ACTIONS.index("drain"), rule
        assert (rule.comparison == model.MEDIAN_AT_LEAST) == bool(rule.samples), rule


def refused(_argv, _timeout_s):
    raise NotMeasuredError("no such program")


@pytest.mark.parametrize("expected", [Expected("gpu01"), EXPECTED], ids=["nothing planned", "two GPUs"])
def test_every_reader_runs_on_a_node_without_files_and_programs(tmp_path, expected):
    outcomes = process.read_all(
        READERS,
        lambda _reader: Node(expected, str(tmp_path), run=refused),
    )
    for outcome in outcomes:
        # A mistake of the reader itself would have the name of a Python exception.
        assert not re.match(r"[A-Z]\w*(Error|Exception): ", outcome.reading.error)
        assert [each.check for each in outcome.reading.measurements if each.check not in RULES] == []
