# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Waves of generated fleets: no wave takes more of a rack, feed, leaf switch or of the power than the limits let."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.image import rollout
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.wave_limits import (
    Placed,
    WaveLimits,
    placed,
    read,
)

OLD, NEW = "a" * 64, "b" * 64
KINDS = ("rack", "feed", "leaf")


@st.composite
def fleets(draw):
    """Return nodes with a rack, one or two feeds and leaf switches, and limits that name some of these kinds."""
    count = draw(st.integers(1, 40))
    nodes = [
        placed(
            f"gpu-{number:03}",
            {
                kind: draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=2, unique=True))
                for kind in KINDS
            },
            draw(st.sampled_from([5.0, 10.5])),
        )
        for number in range(count)
    ]
    value = st.one_of(st.integers(1, 9), st.integers(1, 100).map(lambda share: f"{share}%"))
    limits = draw(st.dictionaries(st.sampled_from(KINDS), value))
    if draw(st.booleans()):
        limits["power_kw"] = draw(st.integers(11, 90))
    return nodes, limits


def require_within(wave, by_name, nodes, limits):
    taken = Counter(domain for name in wave for domain in by_name[name].domains)
    sizes = Counter(domain for node in nodes for domain in node.domains)
    for (kind, domain), count in taken.items():
        limit = str(limits.get(kind, count))
        size = sizes[kind, domain]
        assert count <= (max(1, size * int(limit[:-1]) // 100) if limit.endswith("%") else int(limit))
    assert sum(by_name[name].power_kw for name in wave) <= limits.get("power_kw", float("inf"))


@given(fleets(), st.lists(st.integers(1, 20), min_size=1, max_size=4).map(sorted))
def test_each_node_is_in_one_wave_and_each_wave_within_all_limits(fleet, sizes):
    nodes, limits = fleet
    by_name = {node.name: node for node in nodes}
    rules = rollout.Rules(tuple(sizes), 0, read(limits, nodes))
    seen = [rollout.RolloutNode(node.name, running=OLD, domains=node.domains, power_kw=node.power_kw) for node in nodes]
    waves = rollout.planned(seen, NEW, True, rules)
    assert sorted(name for wave in waves for name in wave) == sorted(by_name)
    for wave in waves:
        assert 1 <= len(wave) <= max(sizes)
        require_within(wave, by_name, nodes, limits)
    for part in rules.limits.cut(nodes):
        require_within(part, by_name, nodes, limits)


@given(fleets())
def test_a_node_waits_only_for_a_limit(fleet):
    nodes, limits = fleet
    by_name = {node.name: node for node in nodes}
    wave = read(limits, nodes).take(nodes, len(nodes))
    for node in nodes:
        if node.name not in wave:
            with pytest.raises(AssertionError):
                require_within([*wave, node.name], by_name, nodes, limits)


def test_without_limits_waves_are_as_large_as_they_may_be():
    nodes = [Placed(f"n{number}") for number in range(5)]
    assert WaveLimits().take(nodes, 3) == ["n0", "n1", "n2"]
    assert WaveLimits().cut(nodes) == [[node.name for node in nodes]]


RACK = (placed("n1", {"rack": ["r1"]}, 10.0), placed("n2", {"rack": ["r1"]}, 12.0))


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({"rack": 0}, "rack"),
        ({"rack": "0%"}, "rack"),
        ({"rack": "101%"}, "rack"),
        ({"rack": "many"}, "rack"),
        ({"feed": 2}, "n1"),
        ({"power_kw": "much"}, "power_kw"),
        ({"power_kw": 11}, "n2"),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused(limits, named):
    with pytest.raises(ImageError, match=named):
        read(limits, RACK)


def test_a_node_whose_power_is_not_known_is_refused():
    with pytest.raises(ImageError, match="node_boot_power_kw"):
        read({"power_kw": 20}, [*RACK, Placed("n3")])


def test_canaries_that_may_not_start_together_are_refused():
    nodes = [
        rollout.RolloutNode(node.name, running=OLD, canary=True, domains=node.domains, power_kw=node.power_kw)
        for node in RACK
    ]
    rules = rollout.Rules((1,), 0, read({"rack": 1}, RACK))
    channel = rollout.ChannelCopies((OLD,))
    with pytest.raises(ImageError, match="node_boot_rollout_canaries"):
        rollout.decide(nodes, NEW, channel, rules)
    assert rollout.decide(nodes[:1], NEW, channel, rules).nodes == ("n1",)
