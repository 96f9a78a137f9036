# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The filter that finds variables which must be the same for all hosts."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.filter.differing_variables import differing_variables

ONE, OTHER = {"classes": {"roce": {"dscp": 30}}}, {}


def test_hosts_with_another_value_or_none_are_named_with_the_variable_and_a_host_that_has_it():
    hostvars = {"a": {}, "b": {"policy": ONE}, "c": {"policy": OTHER}, "d": {"policy": ONE}}
    sentence = differing_variables(list(hostvars), hostvars, ["other", "policy"])
    assert sentence.startswith("a, c: policy differs from that of b; ")


def test_hosts_that_are_alike_have_no_sentence():
    hostvars = {"a": {"policy": ONE}, "b": {"policy": dict(ONE)}}
    assert differing_variables(["a", "b"], hostvars, ["policy", "missing"]) == ""
    assert differing_variables([], hostvars, ["policy"]) == ""
