# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Failures that are alike."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.common.failures import common, lines


def test_a_message_is_one_line_without_the_hosts_own_names():
    assert common("gpu-1:\n  no link of gpu-12 (192.0.2.1)", ("gpu-1", "gpu-12", "192.0.2.1", "")) == (
        "HOST: no link of HOST (HOST)"
    )


def test_a_hosts_name_in_a_longer_word_is_kept():
    assert common("a: unreachable, data of a-1 and a_1 on a.", ("a",)) == (
        "HOST: unreachable, data of a-1 and a_1 on HOST."
    )


def test_a_long_message_is_truncated():
    assert common("x" * 300, ()) == "x" * 300
    assert common("x" * 301, ()) == "x" * 300 + "..."


def test_the_most_frequent_failure_comes_first():
    failures = {("Check", "no link"): ["a3"], ("Check", "no disk"): ["a1", "a2", "a1"], ("Check", "no fan"): []}
    assert lines(failures) == ["2 hosts: Check: no disk: a[1-2]", "1 host: Check: no link: a3"]
