# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.common.names import is_of, missing_names, unknown_names

KNOWN = ["roce_switch_headroom", "roce_switch_ports", "roce_switch_system"]
LISTED = "ansible-doc -t role sailloft.fleet.roce_switch lists its variables"


@pytest.mark.parametrize(
    ("name", "whose"),
    [
        ("gpu_host_sriov", True),
        ("gpu_hosts_sriov", False),
        ("gpu_host", False),
        ("__gpu_host_sriov", False),
        ("gpu_host_bios_required", False),
        ("gpu_host_biosphere", True),
    ],
)
def test_a_variable_belongs_to_the_role_with_the_longest_matching_prefix(name, whose):
    assert is_of(name, "gpu_host", ["gpu_host", "gpu_host_bios", "gpu"]) is whose


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("roce_switch_headrom", "did you mean roce_switch_headroom?"),
        ("roce_switch_port", "did you mean roce_switch_ports?"),
        # The common prefix, the role's name, does not make two names similar.
        ("roce_switch_asicc", LISTED),
    ],
)
def test_an_unknown_name_is_reported_with_a_similar_name_if_there_is_one(name, remedy):
    assert unknown_names("roce_switch", {name: ["leaf2", "leaf1"], "roce_switch_ports": ["leaf1"]}, KNOWN) == [
        f"leaf1, leaf2: the role roce_switch has no variable {name}, which is ignored; {remedy}"
    ]


def test_many_hosts_are_counted_and_names_sorted():
    given = {"roce_switch_b": [f"leaf{number}" for number in range(9, 0, -1)], "roce_switch_a": ["x"]}
    assert unknown_names("roce_switch", given, KNOWN) == [
        f"x: the role roce_switch has no variable roce_switch_a, which is ignored; {LISTED}",
        "leaf1, leaf2, leaf3 and 6 more: the role roce_switch has no variable roce_switch_b, which is ignored; "
        + LISTED,
    ]
    assert unknown_names("roce_switch", {}, KNOWN) == []


@pytest.mark.parametrize(("count", "hosts"), [(1, "h1"), (3, "h1, h2, h3"), (4, "h1, h2, h3 and 1 more")])
def test_at_most_three_hosts_are_named(count, hosts):
    given = {"roce_switch_a": [f"h{number}" for number in range(1, count + 1)]}
    assert unknown_names("roce_switch", given, KNOWN)[0].startswith(f"{hosts}: the role roce_switch has no variable")


def test_missing_variables_of_all_hosts_are_reported_in_one_text():
    hosts, required = ["c", "a", "b", "d"], ["roce_switch_system", "roce_switch_ports"]
    given = {"roce_switch_ports": ["a", "d", "e"], "roce_switch_system": ["d", "e"]}
    assert missing_names("roce_switch", hosts, given, required) == (Mentions("roce_switch_ports", "roce_switch_system"))
    assert missing_names("roce_switch", ["d", "e"], given, required) == ""
    assert missing_names("roce_switch", hosts, {}, []) == ""
