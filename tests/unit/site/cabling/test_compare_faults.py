# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each kind of fault with its whole message, in a plan of four cables: servers a and b, switches s and t."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.compare import CableFault, compare, report
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.neighbours import InfinibandLink, Neighbour
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import (
    Planned,
    PlannedCable,
    PlannedEnd,
)

CABLES = {"a e1": "s p1", "a e2": "t p1", "b e1": "s p2", "b e2": "t p2"}
INTERFACES = {"a": {"e1", "e2"}, "b": {"e1", "e2"}, "s": {"p1", "p2"}, "t": {"p1", "p2"}}
DEVICES = ("a", "b", "s", "t")


def end(text):
    return PlannedEnd(*text.split())


def planned(speed=100, infiniband=False, hidden=()):
    found = Planned(interfaces={name: set(each) for name, each in INTERFACES.items()}, hidden={*map(end, hidden)})
    for one, other in CABLES.items():
        found.add(PlannedCable(end(one), end(other), speed, infiniband), (f"mlx5_{one[-1]}", other[-2:]))
    return found


def seen(changes, read=DEVICES):
    """Return what the devices ``read`` see: the planned cables, with changes in either direction; None is nothing."""
    views = {**CABLES, **{other: one for one, other in CABLES.items()}, **changes}
    found = {name: {} for name in read}
    for near, far in views.items():
        if far and end(near).device in found:
            found[end(near).device][end(near).interface] = Neighbour(end(far).device, (end(far).interface,))
    return found


def told(found):
    return [f"{fault.kind}: {fault.message}" for fault in found.faults]


def counts(found):
    return found.right, found.wrong, len(found.unread)


FAULTS = {
    "none": ({}, DEVICES, [], (4, 0, 0)),
    "nothing is read": ({}, (), [], (0, 0, 4)),
    "only one switch is read": ({}, ("s",), [], (2, 0, 2)),
    "neither end sees a neighbour": (
        {"a e1": None, "s p1": None},
        DEVICES,
        ["missing: a e1 and s p1: no neighbour; connect the cable"],
        (3, 1, 0),
    ),
    "the only end that is read sees no neighbour": (
        {"a e1": None},
        ("a",),
        ["missing: a e1: no neighbour; connect the cable"],
        (1, 1, 2),
    ),
    "the first end sees nothing": (
        {"a e1": None},
        DEVICES,
        ["one-sided: s p1 sees a e1, but a e1 sees nothing; check its receiver and LLDP"],
        (3, 1, 0),
    ),
    "the second end sees nothing": (
        {"s p1": None},
        DEVICES,
        ["one-sided: a e1 sees s p1, but s p1 sees nothing; check its receiver and LLDP"],
        (3, 1, 0),
    ),
    "a cable is in an unplanned port": (
        {"a e1": "s p9", "s p1": None, "s p9": "a e1"},
        DEVICES,
        ["wrong: a e1 is connected to s p9, but s p1 is planned; move the cable"],
        (3, 1, 0),
    ),
    "both ends see an unplanned port": (
        {"a e1": "s p9", "s p1": "b e9"},
        DEVICES,
        [
            "wrong: a e1 is connected to s p9, but s p1 is planned; move the cable",
            "wrong: s p1 is connected to b e9, but a e1 is planned; move the cable",
        ],
        (3, 1, 0),
    ),
    "two cables of one server are swapped": (
        {"a e1": "t p1", "a e2": "s p1", "t p1": "a e1", "s p1": "a e2"},
        DEVICES,
        ["swapped: swap the ends of the cables a e1 - s p1 and a e2 - t p1 at a"],
        (2, 2, 0),
    ),
    "two cables are swapped, and only the servers are read": (
        {"a e1": "t p2", "b e2": "s p1"},
        ("a", "b"),
        ["swapped: swap the ends of the cables a e1 - s p1 and b e2 - t p2 at a, b"],
        (2, 2, 0),
    ),
    "two cables are swapped, and only the switches are read": (
        {"s p1": "b e2", "t p2": "a e1"},
        ("s", "t"),
        ["swapped: swap the ends of the cables a e1 - s p1 and b e2 - t p2 at a, b"],
        (2, 2, 0),
    ),
    "two pairs of cables are swapped": (
        {"a e1": "s p2", "b e1": "s p1", "a e2": "t p2", "b e2": "t p1"},
        ("a", "b"),
        [
            "swapped: swap the ends of the cables a e1 - s p1 and b e1 - s p2 at a, b",
            "swapped: swap the ends of the cables a e2 - t p1 and b e2 - t p2 at a, b",
        ],
        (0, 4, 0),
    ),
    "only one of two ports has the other's cable": (
        {"a e1": "s p2"},
        ("a",),
        ["wrong: a e1 is connected to s p2, but s p1 is planned; move the cable"],
        (1, 1, 2),
    ),
    "a swap is beside another fault": (
        {"a e1": "s p2", "b e1": "s p1", "a e2": "t p9"},
        ("a", "b"),
        [
            "wrong: a e2 is connected to t p9, but t p1 is planned; move the cable",
            "swapped: swap the ends of the cables a e1 - s p1 and b e1 - s p2 at a, b",
        ],
        (1, 3, 0),
    ),
    "there is an unplanned cable": (
        {"b e9": "a e9", "a e9": "b e9"},
        DEVICES,
        ["unplanned: no such cable is planned; plan it or remove it"],
        (4, 0, 0),
    ),
    "a planned port sees an unplanned one that sees it, too": (
        {"s p1": "t p9", "t p9": "s p1"},
        ("s", "t"),
        ["wrong: s p1 is connected to t p9, but a e1 is planned; move the cable"],
        (3, 1, 0),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_reported_once_with_the_remedy(name):
    changes, read, faults, sums = FAULTS[name]
    found = compare(planned(), seen(changes, read))
    assert (told(found), counts(found)) == (faults, sums)


def test_a_fault_names_its_cable():
    found = compare(planned(), seen({"a e1": None, "s p1": None, "a e9": "b e9", "b e9": "a e9"}))
    assert found.faults == [
        CableFault("missing", "a e1 - s p1", "a e1 and s p1: no neighbour; connect the cable"),
        CableFault("unplanned", "a e9 - b e9", "no such cable is planned; plan it or remove it"),
    ]
    swapped = compare(planned(), seen({"a e1": "s p2", "b e1": "s p1"}, ("a", "b")))
    assert [fault.cable for fault in swapped.faults] == ["a e1 - s p1 and b e1 - s p2"]


@pytest.mark.parametrize(
    ("speeds", "speed", "message"),
    [
        ({"a": {"e1": 25}}, 100, "a e1 runs at 25 Gbit/s, but 100 is planned; check the port and the cable"),
        ({"s": {"p1": 2.5}}, 100, "s p1 runs at 2.5 Gbit/s, but 100 is planned; check the port and the cable"),
        ({"a": {"e1": 200}}, 100, "a e1 runs at 200 Gbit/s, but 100 is planned; check the port and the cable"),
        ({"a": {"e1": 1}}, 100, "a e1 runs at 1 Gbit/s, but 100 is planned; check the port and the cable"),
        # Both ends report the same fault.
        (
            {"a": {"e1": 25}, "s": {"p1": 25}},
            100,
            "a e1 runs at 25 Gbit/s, but 100 is planned; check the port and the cable",
        ),
        ({"a": {"e1": 100}, "s": {"p1": 100}}, 100, None),
        # A port without a link reports 0 or -1, and a plan without a speed has 0.
        ({"a": {"e1": 0}, "s": {"p1": -1}}, 100, None),
        ({"a": {"e1": 25}}, 0, None),
        ({"a": {"e1": 1}}, 1, None),
        ({"a": {"e9": 25}, "x": {"e1": 25}}, 100, None),
    ],
)
def test_a_link_with_another_speed_than_planned_is_reported(speeds, speed, message):
    found = compare(planned(speed), seen({}), speeds)
    assert told(found) == ([f"speed: {message}"] if message else [])
    assert counts(found) == ((3, 1, 0) if message else (4, 0, 0))


def test_the_speed_of_a_cable_with_another_fault_is_not_reported():
    found = compare(planned(), seen({"a e1": "s p9"}, ("a",)), {"a": {"e1": 25}})
    assert [fault.kind for fault in found.faults] == ["wrong"]


@pytest.mark.parametrize(
    ("device", "ports", "faults"),
    [
        ("s", ("p1",), []),
        ("s.example.com", ("p1",), []),
        # Any of the names of the port may be the planned one.
        ("s", ("etp1", "p1"), []),
        ("s", ("p2", "p1"), []),
        ("s", ("etp2", "p2"), ["wrong: a e1 is connected to s p2, but s p1 is planned; move the cable"]),
        ("s", ("x", "y"), ["wrong: a e1 is connected to s x, but s p1 is planned; move the cable"]),
        ("t", ("p1",), ["wrong: a e1 is connected to t p1, but s p1 is planned; move the cable"]),
        # A device of another site, and a neighbour without a port, count as no neighbour.
        ("office", ("p1",), ["missing: a e1: no neighbour; connect the cable"]),
        ("s", (), ["missing: a e1: no neighbour; connect the cable"]),
        ("", ("p1",), ["missing: a e1: no neighbour; connect the cable"]),
    ],
)
def test_a_neighbour_is_recognized_by_any_name_that_it_reports(device, ports, faults):
    found = compare(planned(), {"a": {"e1": Neighbour(device, ports), "e2": Neighbour("t", ("p1",))}})
    assert told(found) == faults


def test_a_device_whose_own_name_has_a_domain_is_recognized():
    plan = Planned(interfaces={"a": {"e1"}, "s.x": {"p1"}})
    plan.add(PlannedCable(end("a e1"), end("s.x p1"), 100, False), ("", ""))
    assert counts(compare(plan, {"a": {"e1": Neighbour("s.x", ("p1",))}})) == (1, 0, 0)


@pytest.mark.parametrize(
    ("changes", "read", "faults", "sums"),
    [
        # The ports of the servers are hidden from the servers: only the switches judge the cables.
        ({"a e1": None, "a e2": None, "b e1": None, "b e2": None}, DEVICES, [], (4, 0, 0)),
        ({}, ("a", "b"), [], (0, 0, 4)),
        ({"s p1": None}, DEVICES, [], (3, 0, 1)),
        (
            {"s p1": "b e9"},
            DEVICES,
            ["wrong: s p1 is connected to b e9, but a e1 is planned; move the cable"],
            (3, 1, 0),
        ),
    ],
)
def test_a_port_that_its_system_does_not_see_is_judged_from_the_other_end(changes, read, faults, sums):
    found = compare(planned(hidden=CABLES), seen(changes, read))
    assert (told(found), counts(found)) == (faults, sums)


def infiniband(changes=None, speed=100):
    """Return the links of the subnet: the HCAs mlx5_1 and mlx5_2 of the servers, and the switches' ports."""
    cables = {("a mlx5_1", "s", 1): None, ("a mlx5_2", "t", 1): None, ("b mlx5_1", "s", 2): None}
    cables = {**cables, ("b mlx5_2", "t", 2): None, **(changes or {})}
    return [
        InfinibandLink((hca, 1), (switch, port), speed) for (hca, switch, port), gone in cables.items() if gone is None
    ]


@pytest.mark.parametrize(
    ("links", "faults", "sums"),
    [
        (None, [], (0, 0, 4)),
        (infiniband(), [], (4, 0, 0)),
        (
            infiniband({("a mlx5_1", "s", 1): "gone"}),
            ["missing: a e1 and s p1: no neighbour; connect the cable"],
            (3, 1, 0),
        ),
        (
            infiniband({("a mlx5_1", "s", 1): "gone", ("a mlx5_1", "s", 9): None}),
            ["wrong: a e1 is connected to s 9, but s p1 is planned; move the cable"],
            (3, 1, 0),
        ),
        (
            infiniband({("a mlx5_9", "s", 9): None}),
            ["unplanned: no such cable is planned; plan it or remove it"],
            (4, 0, 0),
        ),
        (
            infiniband(speed=50),
            [
                f"speed: {near} runs at 50 Gbit/s, but 100 is planned; check the port and the cable"
                for near in ("a e1", "a e2", "b e1", "b e2")
            ],
            (0, 4, 0),
        ),
    ],
)
def test_infiniband_cables_are_judged_by_the_links_of_the_subnet(links, faults, sums):
    # LLDP sees nothing there, and does not count.
    found = compare(planned(infiniband=True), {"a": {}}, None, links)
    assert (told(found), counts(found)) == (faults, sums)


def test_ethernet_cables_are_not_judged_by_the_subnet():
    assert counts(compare(planned(), {}, None, infiniband())) == (0, 0, 4)


def test_a_report_has_the_sums_the_devices_that_were_not_read_and_the_faults():
    found = compare(planned(), seen({"a e1": None, "s p1": None}, ("a", "s")))
    assert report(found, {"b": "it is off", "t": "no route"}) == [
        "2 cables are correct, 1 wrong, 1 not read",
        "b was not read: it is off",
        "t was not read: no route",
        "a e1 and s p1: no neighbour; connect the cable",
    ]
