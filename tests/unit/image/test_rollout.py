# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The next step of a rollout, for fleets and failures that Hypothesis generates.

One file because all tests begin with the same made-up fleet.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ansible.module_utils.testing import patch_module_args
from hypothesis import given
from hypothesis import strategies as st
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image import rollout
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.rollout import (
    ChannelCopies,
    RolloutNode,
    Rules,
    decide,
)
from ansible_collections.sailloft.fleet.plugins.modules import node_image_rollout

OLD, NEW = "a" * 64, "b" * 64


def names(count):
    return [f"bm{number:02}" for number in range(1, count + 1)]


def fleet(count, canaries=1, **changes):
    """Return nodes that run the old image; the first ``canaries`` of them are canaries."""
    return [
        replace(RolloutNode(name, running=OLD, canary=at < canaries), **changes.get(name, {}))
        for at, name in enumerate(names(count))
    ]


class World:
    """Nodes with given outcomes (``fates``), two boot servers, and a controller that can die between any two acts."""

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
        """Run a controller that dies after ``acts`` acts (None: never); return its last step, or None if it died."""
        tried = set()
        steps = 0
        while True:
            seen = self.see(tried)
            step = decide(seen, NEW, ChannelCopies(tuple(self.channel), self.pinned), self.rules)
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
        st.builds(
            rollout.Rules, st.lists(st.integers(1, 5), min_size=1, max_size=4).map(sorted).map(tuple), st.integers(0, 4)
        ),
    )
)


def require_an_end(world, step):
    """Check the state at the end of a rollout, whether or not a controller died during it."""
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
        # No node keeps an image on which it failed. A lost node is left alone only if a run died in the rollback, after
        # it had restored channel and scripts: such a node boots the old image when somebody switches it on.
        assert all(node.reachable or step.kind == rollout.STOPPED for node in world.nodes)
        assert all(node.holds or node.running == OLD for node in world.nodes)


@given(WORLDS)
def test_every_rollout_completes_or_rolls_back_within_budget_and_wave(world):
    require_an_end(world, world.run(None))


@given(WORLDS, st.lists(st.integers(0, 15), min_size=1, max_size=4))
def test_a_rollout_completes_or_rolls_back_if_its_controller_is_killed(world, deaths):
    for acts in deaths:
        step = world.run(acts)
        if step is not None:
            break
    else:
        step = world.run(None)
    # A run that dies in the middle of the rollback leaves no trace of the failures: the rollout begins again.
    require_an_end(world, step)


@given(WORLDS)
def test_no_other_node_boots_the_image_after_a_failed_canary(world):
    world.run(None)
    canaries = {node.name for node in world.nodes if node.canary}
    if any(world.fates[name] != "well" for name in canaries):
        assert set(world.booted_new) <= canaries
        assert set(world.channel) == {OLD}


@given(WORLDS)
def test_nodes_boot_in_the_planned_waves(world):
    world.fates = dict.fromkeys(world.fates, "well")
    planned = rollout.planned(world.nodes, NEW, False, world.rules)
    canaries = [node.name for node in world.nodes if node.canary]
    world.run(None)
    assert world.booted_new == canaries + [name for wave in planned for name in wave]


def test_waves_grow_and_the_last_is_repeated():
    waves = rollout.planned(fleet(13), NEW, False, rollout.Rules((1, 2, 4), 0))
    assert [len(wave) for wave in waves] == [1, 2, 4, 4, 1]


@pytest.mark.parametrize("cut", range(12))
def test_an_interrupted_wave_is_completed_first(cut):
    nodes = fleet(13)
    for at in [0, *range(1, 1 + cut)]:
        nodes[at] = replace(nodes[at], running=NEW)
    (first, *_rest) = rollout.planned(nodes, NEW, True, rollout.Rules((1, 2, 4), 0))
    ends = [1, 3, 7, 11, 12]
    assert len(first) == next(end for end in ends if end > cut) - cut


def test_a_node_that_does_not_answer_stops_a_rollout_that_has_not_begun():
    nodes = fleet(3, bm03={"reachable": False, "running": ""})
    step = decide(nodes, NEW, ChannelCopies((OLD,)), Rules((1,), 0))
    assert step.kind == rollout.STOPPED
    assert step.nodes == ()
    assert decide(nodes, NEW, ChannelCopies((OLD,)), Rules((1,), 1)).kind == rollout.CANARY


def test_a_canary_that_an_interrupted_run_lost_is_rolled_back():
    nodes = fleet(2, bm01={"reachable": False, "running": ""})
    step = decide(nodes, NEW, ChannelCopies((OLD,), pinned=True), Rules((1,), 5))
    assert (step.kind, step.nodes, step.channel) == (rollout.ROLLBACK, ("bm01",), False)


def test_a_channel_promoted_on_only_one_server_is_rolled_back():
    nodes = fleet(2, bm01={"running": NEW, "holds": False})
    step = decide(nodes, NEW, ChannelCopies((OLD, NEW)), Rules((1,), 5))
    assert (step.kind, step.nodes, step.channel) == (rollout.ROLLBACK, ("bm01",), True)
    well = fleet(2, bm01={"running": NEW})
    assert decide(well, NEW, ChannelCopies((OLD, NEW)), Rules((1,), 5)).kind == rollout.PROMOTE


@pytest.mark.parametrize(
    ("waves", "nodes", "wanted"),
    [
        (["1", "4", "10%", "25%"], 100, (1, 4, 10, 25)),
        (["1", "4", "10%", "25%"], 8, (1, 4, 4, 4)),
        (["100%"], 7, (7,)),
        ([2], 1, (2,)),
    ],
)
def test_wave_sizes_are_computed_from_numbers_and_percentages(waves, nodes, wanted):
    assert rollout.sizes(waves, nodes) == wanted


@pytest.mark.parametrize(
    "waves", [[], ["0"], ["-1"], ["x"], ["0%"], ["101%"], ["4", "1"], ["1.5"], ["²"], ["9" * 5000]]
)
def test_invalid_waves_are_refused(waves):
    with pytest.raises(ImageError, match="ascending"):
        rollout.sizes(waves, 10)


def test_a_canary_that_is_not_a_node_is_refused():
    assert rollout.canaries(["bm01", "bm02"], []) == ("bm01",)
    assert rollout.canaries(["bm01", "bm02"], ["bm02"]) == ("bm02",)
    with raises(ImageError, "canary bm09", "bm01"):
        rollout.canaries(["bm01"], ["bm09"])


@pytest.fixture
def run(capsys):
    """Return a function that calls the module and returns its result."""

    def call(**arguments):
        with patch_module_args(json.loads(json.dumps(arguments))), pytest.raises(SystemExit):
            node_image_rollout.main()
        return json.loads(capsys.readouterr().out)

    return call


def test_the_module_returns_step_nodes_waves_and_table(run):
    nodes = [{"name": name, "running": OLD} for name in names(4)]
    result = run(target=NEW, channel="stable", stores=[store()], nodes=nodes, waves=["1", "2"])
    assert result["step"] == "canary"
    assert result["nodes"] == ["bm01"]
    assert result["waves"] == [["bm02"], ["bm03", "bm04"]]
    assert result["changed"] is False
    assert result["table"] == [
        f"rollout of {NEW[:12]}: canary, canaries first",
        "  canaries     bm01",
        "  wave 1       bm02",
        "  wave 2       bm[03-04]",
    ]
    refused = run(target=NEW, channel="stable", stores=[store()], nodes=nodes, waves=["9", "1"])
    assert refused["msg"].startswith("waves ['9', '1']")


def test_the_module_leaves_out_nodes_that_wait_for_repair(run):
    nodes = [{"name": name, "running": OLD} for name in names(3)]
    nodes[0].update(running="", reachable=False)
    arguments = {"target": NEW, "channel": "stable", "stores": [store()], "nodes": nodes, "waves": ["100%"]}
    stopped = run(**arguments)
    assert (stopped["step"], stopped["lost"]) == ("stopped", ["bm01"])
    assert stopped["why"] == "canaries failed: bm01"
    result = run(**arguments, without=["bm01"])
    assert (result["step"], result["canaries"], result["waves"], result["lost"]) == ("canary", ["bm02"], [["bm03"]], [])
    assert result["table"][-1] == "  left out     bm01 (waiting for repair)"
    refused = run(**arguments, without=["bm09"])["msg"]
    assert refused == Mentions("bm09", "node_boot_rollout_without")


def test_a_proven_spare_replaces_each_node_that_is_out_of_service(run):
    nodes = [{"name": name, "running": NEW} for name in names(7)]
    nodes[0].update(running="", reachable=False)  # waits for repair
    nodes[2].update(holds=False)
    for at in (3, 4, 6):
        nodes[at]["spare"] = True
    nodes[3].update(holds=False)
    arguments = {"target": NEW, "channel": "stable", "stores": [store(digest=NEW)], "budget": 3, "without": ["bm01"]}
    result = run(**arguments, nodes=nodes)
    assert result["step"] == "done"
    assert result["replacements"] == [{"node": "bm01", "spare": "bm05"}, {"node": "bm03", "spare": "bm07"}]
    assert result["table"][-2:] == [
        "  out of service bm01, replaced by bm05",
        "  out of service bm03, replaced by bm07",
    ]
    nodes[6]["holds"] = False
    assert run(**arguments, nodes=nodes)["replacements"][1] == {"node": "bm03", "spare": ""}
    for node in nodes:
        node["spare"] = False
    assert run(**{**arguments, "budget": 4}, nodes=nodes)["replacements"] == []


def test_unreachable_nodes_of_a_new_channel_count_as_not_yet_booted(run):
    nodes = [{"name": name, "reachable": False} for name in names(2)]
    arguments = {"target": NEW, "channel": "stable", "nodes": nodes}
    new = run(**arguments, stores=[store(digest="")])
    assert (new["step"], new["nodes"], new["can_go_back"], new["channel_back"]) == ("canary", ["bm01"], False, [])
    assert run(**arguments, stores=[store()])["step"] == "stopped"
    lost = [{**nodes[0], "tried": True}, nodes[1]]
    failed = run(**{**arguments, "nodes": lost}, stores=[store(digest="", kept_for=["node 52-54-00-00-00-01"])])
    assert (failed["step"], failed["nodes"], failed["can_go_back"]) == ("rollback", ["bm01"], False)


def test_the_module_rolls_back_the_copies_of_the_channel_that_have_a_history(run):
    nodes = [{"name": "bm01", "running": NEW, "holds": False}]
    stores = [store("boot01", NEW, [OLD]), store("boot02", NEW)]
    result = run(target=NEW, channel="stable", stores=stores, nodes=nodes)
    assert (result["step"], result["channel_back"], result["can_go_back"]) == ("rollback", ["boot01"], True)
    assert result["back_to"] == OLD
    result = run(target=NEW, channel="stable", stores=stores[1:], nodes=nodes)
    assert (result["step"], result["channel_back"], result["can_go_back"]) == ("rollback", [], False)
    assert result["back_to"] == ""
    # The copies would name two images, or no node fails.
    others = [store("boot01", NEW, [OLD]), store("boot02", NEW, ["3" * 64])]
    assert run(target=NEW, channel="stable", stores=others, nodes=nodes)["back_to"] == ""
    assert run(target=NEW, channel="stable", stores=stores, nodes=[{**nodes[0], "holds": True}])["back_to"] == ""
    # One copy was rolled back before the run ended.
    stores = [store("boot01", NEW, [OLD]), store("boot02", OLD, ["3" * 64])]
    assert run(target=NEW, channel="stable", stores=stores, nodes=nodes)["back_to"] == OLD


def store(host="boot01", digest=OLD, history=(), kept_for=()):
    """Return a boot server's store, as node_image_store returns it."""
    channels = [{"name": "lab", "digest": NEW, "history": [OLD]}]
    if digest:
        channels.append({"name": "stable", "digest": digest, "history": list(history)})
    images = [{"digest": NEW, "kept_for": list(kept_for)}, {"digest": OLD, "kept_for": ["node 52-54-00-00-00-02"]}]
    return {"host": host, "channels": channels, "images": images}


def test_the_channel_is_read_from_the_stores():
    macs = ["52:54:00:00:00:0A", "52:54:00:00:00:02"]
    stores = [store(history=[NEW]), store("boot02", "")]
    assert rollout.read_channel(stores, "stable", NEW, macs) == ChannelCopies((OLD, ""), False, ("boot01",), (OLD, ""))
    pinned = store("boot02", NEW, kept_for=["node 52-54-00-00-00-0a"])
    assert rollout.read_channel([store(), pinned], "stable", NEW, macs) == ChannelCopies(
        (OLD, NEW), True, (), (OLD, NEW)
    )
    # The pinned node does not follow the channel.
    assert rollout.read_channel([pinned, store()], "stable", NEW, macs[1:]) == ChannelCopies(
        (NEW, OLD), False, (), (NEW, OLD)
    )


@pytest.mark.parametrize(
    ("channel", "new"),
    [
        (ChannelCopies(("", "")), True),
        (ChannelCopies(("", NEW)), True),
        (ChannelCopies((NEW, OLD)), False),
        (ChannelCopies((NEW,), with_history=("boot01",)), False),
    ],
)
def test_a_channel_that_never_named_another_image_is_new(channel, new):
    assert channel.is_new(NEW) is new


@pytest.mark.parametrize(
    ("channel", "back", "possible"),
    [
        (ChannelCopies(("",)), False, False),
        (ChannelCopies((OLD, "")), False, True),
        (ChannelCopies((NEW,)), True, False),
        (ChannelCopies((NEW,), with_history=("boot01",)), True, True),
    ],
)
def test_a_rollback_is_possible_if_the_channel_named_another_image(channel, back, possible):
    assert channel.can_go_back(rollout.RolloutStep(rollout.ROLLBACK, channel=back)) is possible


def test_nodes_that_failed_before_their_boot_are_shown_with_the_remaining_budget():
    nodes = fleet(4, bm03={"reachable": False, "running": ""})
    rules = Rules((4,), 1)
    step = decide(nodes, NEW, ChannelCopies((OLD,)), rules)
    assert rollout.table(nodes, NEW, step, (("bm02", "bm04"),), rules) == [
        f"rollout of {NEW[:12]}: canary, canaries first",
        "  no answer    bm03 (before their boot; remaining budget: 0)",
        "  failed       bm03 (1, budget 1)",
        "  canaries     bm01",
        "  wave 1       bm[02,04]",
    ]


def test_a_negative_budget_is_refused():
    with raises(ImageError, "budget -1"):
        rollout.Rules((1,), -1)
