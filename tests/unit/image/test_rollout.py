# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a rollout does next, on every fleet and every fate that Hypothesis finds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ansible.module_utils.testing import patch_module_args
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.image import rollout
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.rollout import Channel, Node, Rules, decide
from ansible_collections.sailloft.fleet.plugins.modules import node_image_rollout

OLD, NEW = "a" * 64, "b" * 64


def names(count):
    return [f"bm{number:02}" for number in range(1, count + 1)]


def fleet(count, canaries=1, **changes):
    """Nodes that run the old image, the first ``canaries`` of them canaries."""
    return [
        replace(Node(name, running=OLD, canary=at < canaries), **changes.get(name, {}))
        for at, name in enumerate(names(count))
    ]


class World:
    """Nodes with fates, two boot servers, and a controller that can die between any two acts."""

    def __init__(self, nodes, fates, rules):
        self.nodes = nodes
        self.fates = fates
        self.rules = rules
        self.channel = [OLD, OLD]
        self.pinned = False
        self.booted_new = []

    def see(self, tried):
        return [replace(node, tried=node.name in tried) for node in self.nodes]

    def boot(self, name, digest):
        at = next(at for at, node in enumerate(self.nodes) if node.name == name)
        fate = self.fates[name] if digest == NEW else "well"
        node = self.nodes[at]
        if digest == NEW:
            self.booted_new.append(name)
        if fate == "well":
            node = replace(node, running=digest, holds=True, reachable=True)
        elif fate == "ill":
            node = replace(node, running=digest, holds=False, reachable=True)
        elif fate == "lost":
            node = replace(node, running="", reachable=False)
        self.nodes[at] = node

    def run(self, acts):
        """A controller that dies after ``acts`` acts (None: never); returns its last step."""
        tried = set()
        steps = 0
        while True:
            seen = self.see(tried)
            step = decide(seen, NEW, Channel(tuple(self.channel), self.pinned), self.rules)
            steps += 1
            assert steps <= len(self.nodes) + 5, "it does not end"
            if step.kind in (rollout.DONE, rollout.STOPPED):
                return step
            before = len(rollout.failed(seen, NEW))
            if step.kind in (rollout.CANARY, rollout.WAVE):
                assert step.nodes
                assert before <= self.rules.budget
                if step.kind == rollout.WAVE:
                    assert set(self.channel) == {NEW}
                    assert len(step.nodes) <= max(self.rules.waves)
                else:
                    assert all(node.canary for node in seen if node.name in step.nodes)
            for act in self.acts(step, tried):
                if acts is not None and acts == 0:
                    return None
                act()
                acts = None if acts is None else acts - 1
            lost = len(rollout.failed(self.see(tried), NEW))
            if step.kind == rollout.WAVE:
                assert lost <= self.rules.budget + len(step.nodes)
            if step.kind == rollout.ROLLBACK:
                return step

    def acts(self, step, tried):
        if step.kind == rollout.CANARY:
            yield lambda: self.pin(True)
        if step.kind in (rollout.CANARY, rollout.WAVE):
            for name in step.nodes:
                tried.add(name)
                yield lambda name=name: self.boot(name, NEW)
        elif step.kind == rollout.PROMOTE:
            for server in range(len(self.channel)):
                yield lambda server=server: self.name(server, NEW)
            yield lambda: self.pin(False)
        elif step.kind == rollout.ROLLBACK:
            if step.channel:
                for server in range(len(self.channel)):
                    yield lambda server=server: self.name(server, OLD)
            yield lambda: self.pin(False)
            for name in step.nodes:
                yield lambda name=name: self.boot(name, OLD)

    def pin(self, pinned):
        self.pinned = pinned

    def name(self, server, digest):
        self.channel[server] = digest


WORLDS = st.integers(1, 12).flatmap(
    lambda count: st.builds(
        World,
        st.integers(1, count).map(lambda canaries: fleet(count, canaries)),
        st.lists(st.sampled_from(["well", "well", "well", "ill", "lost", "liar"]), min_size=count, max_size=count).map(
            lambda fates: dict(zip(names(count), fates))
        ),
        st.builds(Rules, st.lists(st.integers(1, 5), min_size=1, max_size=4).map(sorted).map(tuple), st.integers(0, 4)),
    )
)


def require_an_end(world, step):
    """What holds at the end of every rollout, whatever died on the way."""
    failed = {name for name, fate in world.fates.items() if fate != "well"}
    canaries = {node.name for node in world.nodes if node.canary}
    if step.kind == rollout.DONE:
        assert set(world.channel) == {NEW}
        assert {node.name for node in world.nodes if node.running == NEW and node.holds} == set(world.fates) - failed
        assert not canaries & failed
        assert len(failed) <= world.rules.budget
    else:
        assert failed & canaries or len(failed) > world.rules.budget
        assert set(world.channel) == {OLD}
        assert not world.pinned
        # None is left with an image that did it harm. One that is lost is left alone only where a run died on the way
        # back, after channel and scripts were back: whoever switches it on gets the old image.
        assert all(node.reachable or step.kind == rollout.STOPPED for node in world.nodes)
        assert all(node.holds or node.running == OLD for node in world.nodes)


@given(WORLDS)
def test_every_rollout_ends_done_or_back_with_no_more_lost_than_budget_and_wave(world):
    require_an_end(world, world.run(None))


@given(WORLDS, st.lists(st.integers(0, 15), min_size=1, max_size=4))
def test_a_controller_may_die_between_any_two_acts(world, deaths):
    for acts in deaths:
        step = world.run(acts)
        if step is not None:
            break
    else:
        step = world.run(None)
    # A death in the middle of the way back leaves nothing to see of what had failed: the rollout begins again.
    require_an_end(world, step)


@given(WORLDS)
def test_a_canary_that_fails_lets_no_other_node_boot(world):
    world.run(None)
    canaries = {node.name for node in world.nodes if node.canary}
    if any(world.fates[name] != "well" for name in canaries):
        assert set(world.booted_new) <= canaries
        assert set(world.channel) == {OLD}


@given(WORLDS)
def test_the_waves_that_are_planned_are_those_that_come(world):
    world.fates = dict.fromkeys(world.fates, "well")
    planned = rollout.planned(world.nodes, NEW, False, world.rules)
    canaries = [node.name for node in world.nodes if node.canary]
    world.run(None)
    assert world.booted_new == canaries + [name for wave in planned for name in wave]


def test_waves_grow_and_the_last_is_repeated():
    waves = rollout.planned(fleet(13), NEW, False, Rules((1, 2, 4), 0))
    assert [len(wave) for wave in waves] == [1, 2, 4, 4, 1]


@pytest.mark.parametrize("cut", range(12))
def test_a_wave_that_was_cut_is_completed_first(cut):
    nodes = fleet(13)
    for at in [0, *range(1, 1 + cut)]:
        nodes[at] = replace(nodes[at], running=NEW)
    (first, *_rest) = rollout.planned(nodes, NEW, True, Rules((1, 2, 4), 0))
    ends = [1, 3, 7, 11, 12]
    assert len(first) == next(end for end in ends if end > cut) - cut


def test_a_node_that_does_not_answer_stops_a_rollout_that_has_not_begun():
    nodes = fleet(3, bm03={"reachable": False, "running": ""})
    step = decide(nodes, NEW, Channel((OLD,)), Rules((1,), 0))
    assert step.kind == rollout.STOPPED
    assert step.nodes == ()
    assert decide(nodes, NEW, Channel((OLD,)), Rules((1,), 1)).kind == rollout.CANARY


def test_a_canary_that_was_lost_by_a_run_that_died_goes_back():
    nodes = fleet(2, bm01={"reachable": False, "running": ""})
    step = decide(nodes, NEW, Channel((OLD,), pinned=True), Rules((1,), 5))
    assert (step.kind, step.nodes, step.channel) == (rollout.ROLLBACK, ("bm01",), False)


def test_a_channel_promoted_on_one_server_only_goes_back_too():
    nodes = fleet(2, bm01={"running": NEW, "holds": False})
    step = decide(nodes, NEW, Channel((OLD, NEW)), Rules((1,), 5))
    assert (step.kind, step.nodes, step.channel) == (rollout.ROLLBACK, ("bm01",), True)
    well = fleet(2, bm01={"running": NEW})
    assert decide(well, NEW, Channel((OLD, NEW)), Rules((1,), 5)).kind == rollout.PROMOTE


@pytest.mark.parametrize(
    ("waves", "nodes", "wanted"),
    [
        (["1", "4", "10%", "25%"], 100, (1, 4, 10, 25)),
        (["1", "4", "10%", "25%"], 8, (1, 4, 4, 4)),
        (["100%"], 7, (7,)),
        ([2], 1, (2,)),
    ],
)
def test_sizes(waves, nodes, wanted):
    assert rollout.sizes(waves, nodes) == wanted


@pytest.mark.parametrize("waves", [[], ["0"], ["-1"], ["x"], ["0%"], ["101%"], ["4", "1"], ["1.5"]])
def test_what_is_no_wave_is_refused(waves):
    with pytest.raises(ImageError, match="growing"):
        rollout.sizes(waves, 10)


def test_a_canary_that_is_no_node_is_refused():
    assert rollout.canaries(["bm01", "bm02"], []) == ("bm01",)
    assert rollout.canaries(["bm01", "bm02"], ["bm02"]) == ("bm02",)
    with pytest.raises(ImageError, match="canary bm09: is none of the rollout's nodes"):
        rollout.canaries(["bm01"], ["bm09"])


@pytest.fixture
def run(capsys):
    """Call the module; returns its result."""

    def call(**arguments):
        with patch_module_args(json.loads(json.dumps(arguments))), pytest.raises(SystemExit):
            node_image_rollout.main()
        return json.loads(capsys.readouterr().out)

    return call


def test_the_module(run):
    nodes = [{"name": name, "running": OLD} for name in names(4)]
    result = run(target=NEW, channel=[OLD], nodes=nodes, waves=["1", "2"])
    assert result["step"] == "canary"
    assert result["nodes"] == ["bm01"]
    assert result["waves"] == [["bm02"], ["bm03", "bm04"]]
    assert result["changed"] is False
    assert result["table"] == [
        f"rollout of {NEW[:12]}: canary, canaries first",
        "  canaries     bm01",
        "  wave 1       bm02",
        "  wave 2       bm03, bm04",
    ]
    assert run(target=NEW, channel=[OLD], nodes=nodes, waves=["9", "1"])["msg"].startswith("waves ['9', '1']")


def test_nodes_that_were_dead_before_are_told_with_what_they_leave_of_the_budget():
    nodes = fleet(4, bm03={"reachable": False, "running": ""})
    rules = Rules((4,), 1)
    step = decide(nodes, NEW, Channel((OLD,)), rules)
    assert rollout.table(nodes, NEW, step, (("bm02", "bm04"),), rules) == [
        f"rollout of {NEW[:12]}: canary, canaries first",
        "  no answer    bm03 (before they were to boot; of the budget 0 is left)",
        "  failed       bm03 (1, budget 1)",
        "  canaries     bm01",
        "  wave 1       bm02, bm04",
    ]


def test_a_budget_is_a_number_of_nodes():
    with pytest.raises(ImageError) as refused:
        rollout.Rules((1,), -1)
    assert str(refused.value) == "budget -1: is no number of nodes; give 0 or more"
