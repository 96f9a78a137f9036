# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVUE's settings as switches show them: defaults, the limits of numbers, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from cumulus_tree import read, refused
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    Ecn,
    PortQos,
    Queue,
    Watchdog,
)

ALL = "default-global"


def port(sections_of_port: dict[str, Any] | None = None, **sections: Any) -> PortQos:
    """Return swp1 with its own QoS, on a switch with these sections (``_`` for ``-``)."""
    return read(of(sections_of_port, **sections)).ports["swp1"]


def of(sections_of_port: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    qos = {section.replace("_", "-"): value for section, value in sections.items()}
    return {"interface": {"swp1": {"qos": sections_of_port or {}}}, "qos": qos}


SHOW = "compare it with the switch's `nv config show`"
L3 = {"mapping": {ALL: {"trust": "l3"}}}
MARKED = Ecn(150_000, 1_500_000, 100)  # NVUE's default


def test_a_port_without_qos_trusts_no_dscp():
    assert port() == PortQos(ip_mtu_bytes=9216)


def test_a_port_that_trusts_dscps_has_the_defaults_of_the_switch():
    qos = port(**L3)
    assert qos.dscp_to_class == tuple(dscp // 8 for dscp in range(64))
    assert qos.class_to_queue == qos.priority_to_queue == qos.class_to_priority == tuple(range(8))
    percents = (12, 13, 12, 13, 12, 13, 12, 13)
    assert qos.queues == tuple(
        Queue(False, percent, MARKED if number == 0 else None) for number, percent in enumerate(percents)
    )
    assert (qos.pfc, qos.headroom, qos.watchdog, qos.rewrites_dscp) == ((), (None,) * 8, None, False)


@pytest.mark.parametrize(
    ("mapping", "dscps"),
    [
        ({}, (None,) * 64),
        ({"trust": "l2"}, (None,) * 64),
        ({"trust": "both"}, tuple(dscp // 8 for dscp in range(64))),
        ({"trust": "port"}, (0,) * 64),
        ({"trust": "port", "port-default-sp": 7}, (7,) * 64),
        ({"trust": "l3", "dscp": {"0-62": {"switch-priority": 7}, "63": {"switch-priority": 0}}}, (7,) * 63 + (0,)),
    ],
)
def test_dscps_have_the_classes_of_the_mapping(mapping, dscps):
    assert port(mapping={ALL: mapping}).dscp_to_class == dscps


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"trust": "dscp"}, "trust 'dscp' is unknown; valid values: l2, l3, both, port"),
        ({"trust": "port", "port-default-sp": 8}, f"port-default-sp 8 is not a number from 0 to 7; {SHOW}"),
        ({"trust": "port", "port-default-sp": -1}, f"port-default-sp -1 is not a number from 0 to 7; {SHOW}"),
        ({"trust": "port", "port-default-sp": True}, f"port-default-sp True is not a number from 0 to 7; {SHOW}"),
    ],
)
def test_an_invalid_mapping_is_refused(mapping, message):
    assert refused(of(mapping={ALL: mapping})) == f"qos mapping {ALL}: {message}"


@pytest.mark.parametrize("number", [8, "x"])
def test_an_invalid_class_is_refused(number):
    mapping = {"trust": "l3", "dscp": {"5": {"switch-priority": number}}}
    assert refused(of(mapping={ALL: mapping})) == Mentions(ALL, "dscp 5", number, "0", "7")


@pytest.mark.parametrize(("number", "valid"), [(0, True), (7, True), (8, False)])
def test_a_priority_has_one_of_8_queues(number, valid):
    mapping = {ALL: {"switch-priority": {"2": {"traffic-class": number}}}}
    if valid:
        assert port(egress_queue_mapping=mapping, **L3).class_to_queue[2] == number
        return
    assert refused(of(egress_queue_mapping=mapping)) == Mentions(ALL, "switch-priority 2", "traffic-class 8", "0", "7")


def test_indexes_are_below_the_number_of_their_kind():
    assert refused(of(mapping={ALL: {"trust": "l3", "dscp": {"64": {}}}})) == Mentions(ALL, "dscp", "'64'")
    assert refused(of(pfc={ALL: {"switch-priority": {"8": {}}}})) == Mentions(ALL, "switch-priority", "'8'")


def served(**classes: Any) -> tuple[Queue | None, ...]:
    profile = {"traffic-class": {key[1:]: value for key, value in classes.items()}}
    qos = port({"egress-scheduler": {"profile": "p"}}, egress_scheduler={"p": profile})
    return qos.queues


@pytest.mark.parametrize(
    ("settings", "queue"),
    [
        ({"mode": "strict"}, Queue(True)),
        ({"mode": "dwrr", "bw-percent": 100}, Queue(False, 100)),
        ({"bw-percent": 0}, Queue(False, 0)),
        ({}, Queue(False, 0)),
    ],
)
def test_queues_are_strict_or_have_a_share(settings, queue):
    assert served(_3=settings) == (None, None, None, queue, None, None, None, None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "sp"}, "mode 'sp' is unknown; valid values: dwrr, strict"),
        ({"bw-percent": 101}, f"bw-percent 101 is not a number from 0 to 100; {SHOW}"),
    ],
)
def test_an_invalid_queue_is_refused(settings, message):
    assert refused(of(egress_scheduler={ALL: {"traffic-class": {"3": settings}}})) == (
        f"qos egress-scheduler {ALL} traffic-class 3: {message}"
    )


def test_a_profile_without_queues_serves_none():
    assert served() == (None,) * 8
    marking = {"congestion-control": {"profile": "p"}}
    assert port(marking, congestion_control={"p": {}}).queues == (None,) * 8
    # For all ports, an empty profile is the default, which is not seen without a class.
    assert port(egress_scheduler={ALL: {}}, congestion_control={ALL: {}}).queues == (None,) * 8


@pytest.mark.parametrize(
    ("settings", "ecn"),
    [
        ({}, MARKED),
        ({"ecn": "enable", "min-threshold": 0, "max-threshold": 0, "probability": 0}, Ecn(0, 0, 0)),
        (
            {"min-threshold": 1 << 40, "max-threshold": 1 << 40, "probability": 100},
            Ecn(1 << 40, 1 << 40, 100),
        ),
        ({"ecn": "disable", "min-threshold": 5}, None),
    ],
)
def test_a_queue_marks_between_its_thresholds(settings, ecn):
    queues = port(congestion_control={ALL: {"traffic-class": {"5": settings}}}).queues
    assert queues == (None,) * 5 + (Queue(False, 13, ecn),) + (None,) * 2


@pytest.mark.parametrize(
    ("key", "number", "maximum"),
    [
        ("min-threshold", (1 << 40) + 1, 1 << 40),
        ("max-threshold", (1 << 40) + 1, 1 << 40),
        ("probability", 101, 100),
        ("min-threshold", -1, 1 << 40),
    ],
)
def test_an_invalid_threshold_is_refused(key, number, maximum):
    assert refused(of(congestion_control={ALL: {"traffic-class": {"5": {key: number}}}})) == Mentions(
        ALL, "traffic-class 5", key, number, "0", maximum
    )


def test_queues_that_are_only_served_or_only_marked_are_seen():
    qos = port(
        {"egress-scheduler": {"profile": "p"}, "congestion-control": {"profile": "p"}},
        egress_scheduler={"p": {"traffic-class": {"1": {"mode": "strict"}}}},
        congestion_control={"p": {"traffic-class": {"2": {}}}},
    )
    assert qos.queues == (None, Queue(True), Queue(False, 0, MARKED), None, None, None, None, None)


PAUSES = {"switch-priority": {"3": {}}, "cable-length": 5}
POOL = {"default-lossless": {"memory-percent": 50}}


def pausing(pfc: dict[str, Any], pool: dict[str, Any] | None = None) -> PortQos:
    return port(pfc={ALL: pfc}, traffic_pool=POOL if pool is None else pool)


@pytest.mark.parametrize(
    ("pfc", "cable_m"),
    [
        (PAUSES, 5),
        ({"switch-priority": {"3": {}}}, 10),  # the guide's default
        ({**PAUSES, "port-buffer": 500}, None),
        ({**PAUSES, "xoff-threshold": 200}, None),
        ({**PAUSES, "xon-threshold": 50}, None),
    ],
)
def test_headroom_is_for_the_cable_unless_a_profile_has_sizes(pfc, cable_m):
    qos = pausing(pfc)
    assert (qos.pfc, qos.cable_m, qos.headroom) == ((3,), cable_m, (None,) * 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cable-length": "far"}, f"cable-length 'far' is not a number from 0 to {1 << 20}; {SHOW}"),
        ({"rx": "maybe"}, f"rx: 'maybe' is neither on nor off; {SHOW}"),
    ],
)
def test_invalid_pauses_are_refused(changes, message):
    with pytest.raises(FabricError) as error:
        pausing({**PAUSES, **changes})
    assert str(error.value).endswith(f"qos pfc {ALL}{' ' if 'rx' in changes else ': '}{message}")


@pytest.mark.parametrize("direction", ["rx", "tx"])
def test_a_profile_that_is_off_in_one_way_pauses_nothing(direction):
    qos = pausing({**PAUSES, direction: "disable"})
    assert (qos.pfc, qos.headroom) == ((), (None,) * 8)


@pytest.mark.parametrize(
    ("pool", "holds"),
    [
        (POOL, True),
        ({"roce-lossless": {"memory-percent": 1}}, True),
        ({"default-lossless": {"memory-percent": 0}}, False),
        ({"default-lossless": {}}, False),
        ({"default-lossless": {"infinite": "on"}}, False),
        ({"default-lossy": {"memory-percent": 100}}, False),
        ({"default-lossless": {"memory-percent": 100}}, True),
    ],
)
def test_headroom_needs_a_lossless_pool(pool, holds):
    assert (pausing(PAUSES, pool=pool).cable_m == 5) is holds


def test_the_share_of_a_pool_is_a_percentage():
    with raises(FabricError, "default-lossless", "101", "0"):
        pausing(PAUSES, pool={"default-lossless": {"memory-percent": 101}})


@pytest.mark.parametrize(
    ("times", "sections_of_port", "watchdog"),
    [
        ({}, {}, Watchdog(300, 100, "drop")),
        ({"polling-interval": 5000, "robustness": 1000}, {"state": "enable"}, Watchdog(5_000_000, 5000, "drop")),
        ({"polling-interval": 200, "robustness": 1}, {"state": "on"}, Watchdog(200, 200, "drop")),
        ({}, {"state": "disable"}, None),
        ({}, "off", None),
        ({}, None, None),
    ],
)
def test_the_watchdog_of_a_port_has_the_times_of_the_switch(times, sections_of_port, watchdog):
    assert port({"pfc-watchdog": sections_of_port}, pfc_watchdog=times).watchdog == watchdog


@pytest.mark.parametrize(("rewrite", "rewrites"), [("l2", False), ("l3", True), ("both", True), (None, False)])
def test_a_port_may_rewrite_dscps(rewrite, rewrites):
    assert port(remark={ALL: {"rewrite": rewrite} if rewrite else {}}).rewrites_dscp is rewrites


def test_an_unknown_rewriting_is_refused():
    assert refused(of(remark={ALL: {"rewrite": "l4"}})) == (
        f"qos remark {ALL}: rewrite 'l4' is unknown; valid values: l2, l3, both"
    )


ROCE_QUEUES = {0: Queue(False, 50, MARKED), 3: Queue(False, 50, MARKED), 6: Queue(True)}


@pytest.mark.parametrize(
    ("roce", "pfc"),
    [
        ({}, (3,)),
        ({"enable": "on"}, (3,)),
        ({"state": "enabled", "mode": "lossless-single-ipool"}, (3,)),
        ({"mode": "lossy"}, ()),
    ],
)
def test_the_mode_roce_sets_queues_and_pauses(roce, pfc):
    qos = port(roce=roce)
    assert qos.dscp_to_class == tuple(dscp // 8 for dscp in range(64))
    assert qos.class_to_queue == (0, 0, 0, 3, 0, 0, 6, 0)
    assert qos.queues == tuple(ROCE_QUEUES.get(number) for number in range(8))
    assert qos.pfc == pfc


def test_settings_replace_those_of_the_mode_roce():
    qos = port(
        roce={},
        egress_scheduler={ALL: {"traffic-class": {"0": {"bw-percent": 40}, "3": {}, "6": {}}}},
        congestion_control={ALL: {"traffic-class": {"3": {"min-threshold": 7}}}},
        pfc={ALL: {"switch-priority": {"4": {}}}},
    )
    assert qos.queues[0] == Queue(False, 40, MARKED)
    assert qos.queues[3] == Queue(False, 50, Ecn(7, 1_500_000, 100))
    assert qos.queues[6] == Queue(True)
    assert qos.pfc == (4,)


def with_profile(section: str) -> PortQos:
    """Return a port with an empty profile of its own, on a switch with the mode roce."""
    return port({section: {"profile": "p"}}, roce={}, **{section: {"p": {}}})


def test_a_port_with_its_own_profile_has_nothing_of_the_mode_roce():
    assert with_profile("mapping").dscp_to_class == (None,) * 64
    assert with_profile("pfc").pfc == ()
    shares = [queue and queue.bandwidth_percent for queue in with_profile("egress-scheduler").queues]
    assert shares == [0, None, None, 0, None, None, 0, None]
    assert [queue and queue.ecn for queue in with_profile("congestion-control").queues] == [None] * 8


def test_the_mode_roce_has_a_lossless_pool():
    for mode, holds in (("lossless", True), ("lossless-single-ipool", True), ("lossy", False)):
        qos = port(roce={"mode": mode}, pfc={ALL: PAUSES})
        assert (qos.cable_m == 5) is holds


def test_an_unknown_mode_is_refused():
    assert refused(of(roce={"mode": "x"})) == Mentions("roce", "'x'")


def test_a_profile_that_is_not_defined_is_refused():
    assert refused(of({"pfc": {"profile": "gone"}})) == Mentions("swp1", "profile 'gone'")
