# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The order of distances, and devices for all wants at once, compared with trying every combination."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices import nearest
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.nearest import (
    AssignableDevice,
    Want,
    assign,
    cost,
    hungarian,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.pack_gpus import NODE, PHB, PIX, PXB, SYS

HERE = ("node 0", "pci0000:10", "10:00.0", "12:00.0")
PATHS = {
    PIX: HERE,
    PXB: ("node 0", "pci0000:10", "10:00.0", "12:01.0"),
    PHB: ("node 0", "pci0000:10", "10:01.0", "14:00.0"),
    NODE: ("node 0", "pci0000:20", "20:00.0", "22:00.0"),
    SYS: ("node 1", "pci0000:80", "80:00.0", "82:00.0"),
}
DISTANCES = ((0, 10), (1, 21), (2, 255))
WANT = Want("a", HERE, DISTANCES)


def device(path, node=0, address="0000:13:00.0", **more):
    return AssignableDevice(address, path, node, **more)


def test_one_device_of_a_farther_class_costs_more_than_64_nearer_ones():
    """The other devices of the farther choice have the least possible cost."""
    costs = [cost(WANT, device(PATHS[reach])) for reach in (PIX, PXB, PHB, NODE, SYS)]
    for near, far in zip(costs, costs[1:]):
        assert 64 * near < far + 63 * costs[0]


def test_equal_classes_are_ordered_by_node_distance_and_common_bridges():
    far = [cost(WANT, device(PATHS[SYS], node)) for node in (0, 1, 2)]
    assert far == sorted(far)
    assert far[1] - far[0] == 11
    assert far[2] - far[1] == 255 - 21
    # A node that is unknown, or has no distance, is as far as SLIT's "unreachable".
    assert cost(WANT, device(PATHS[SYS], None)) == cost(WANT, device(PATHS[SYS], 7)) == far[2]
    deep = Want("a", (*HERE[:3], "12:00.0", "13:00.0"), DISTANCES)
    near = cost(deep, device((*HERE[:3], "12:00.0", "13:01.0")))
    assert cost(deep, device((*HERE[:3], "12:01.0", "14:00.0"))) - near == 1 << 8


def test_devices_without_an_iommu_group_do_not_form_a_group():
    """A device that a virtual machine keeps has no group, and neither has the one that another gets."""
    kept, free = device(PATHS[PIX], holder="a"), device(PATHS[PXB], address="0000:14:00.0")
    assert assign([WANT, Want("b", HERE, DISTANCES)], [kept, free]) == [kept.address, free.address]


def test_a_want_without_a_place_costs_nothing():
    assert cost(Want("a", None), device(PATHS[SYS])) == 0


def test_the_reach_of_several_paths_is_that_of_the_nearest():
    assert nearest.nearest_distance(HERE, [PATHS[SYS], PATHS[PXB], PATHS[NODE]]) == PXB
    assert nearest.nearest_distance(HERE, []) == SYS


def devices_of(*paths, **more):
    return [device(path, address=f"0000:{at:02x}:00.0", **more) for at, path in enumerate(paths)]


def test_a_held_device_is_kept_and_a_device_of_another_is_not_assigned():
    near, far = devices_of(PATHS[PIX], PATHS[SYS])
    assert assign([WANT], [far, near]) == [near.address]
    held = device(far.path, 1, far.address, holder="a")
    assert assign([WANT], [near, held]) == [held.address]
    assert assign([WANT], [near, device(far.path, 1, far.address, holder="b")]) == [near.address]
    assert assign([WANT], [device(near.path, owner="b"), held]) == [held.address]
    assert assign([WANT], [device(near.path, owner="b")]) is None
    assert assign([WANT, WANT], [near]) is None
    assert assign([], [near]) == []


def test_no_two_machines_share_a_group():
    other = Want("b", HERE, DISTANCES)
    one, two, three = (device(HERE, address=f"0000:{at}3:00.0", group=group) for at, group in ((1, 5), (2, 5), (3, 6)))
    first, second = assign([WANT, other], [one, two, three])
    assert three.address in (first, second)
    assert set(assign([WANT, WANT], [one, two])) == {one.address, two.address}
    assert assign([WANT, other], [one, two]) is None
    # The machine that holds one device of the group gets the others as well.
    held = AssignableDevice(one.address, HERE, 0, 5, None, "b")
    assert assign([WANT, other], [held, two, three]) == [three.address, one.address]


def test_the_search_for_groups_ends_after_the_maximum_number_of_tries(monkeypatch):
    other = Want("b", HERE, DISTANCES)
    devices = [device(HERE, address=f"0000:{at}3:00.0", group=group) for at, group in ((1, 5), (2, 5), (3, 6))]
    monkeypatch.setattr(nearest, "TRIES", 1)
    assert assign([WANT, other], devices) is not None
    monkeypatch.setattr(nearest, "TRIES", 0)
    assert assign([WANT, other], devices) is None


@given(
    st.lists(st.sampled_from(list(PATHS.values())), max_size=4),
    st.lists(st.sampled_from(list(PATHS.values())), max_size=5),
)
def test_the_assignment_has_the_least_total_cost(wants, paths):
    asked = [Want(f"vm-{at}", path, DISTANCES) for at, path in enumerate(wants)]
    devices = devices_of(*paths)
    known = {item.address: item for item in devices}
    found = assign(asked, devices)
    sums = [sum(cost(want, item) for want, item in zip(asked, chosen)) for chosen in permutations(devices, len(asked))]
    assert (found is None) == (not sums)
    if found is not None:
        assert len(set(found)) == len(asked)
        assert sum(cost(want, known[address]) for want, address in zip(asked, found)) == min(sums)


@pytest.mark.parametrize("reach", PATHS)
def test_the_class_of_each_path_is_found(reach):
    assert nearest.nearest_distance(HERE, [PATHS[reach]]) == reach


@pytest.mark.parametrize(("reach", "common"), [(PIX, 4), (PXB, 3), (PHB, 2), (NODE, 1), (SYS, 0)])
@pytest.mark.parametrize(("node", "distance"), [(0, 10), (1, 21), (2, 255), (3, 255), (None, 255)])
def test_a_cost_is_the_class_then_the_common_bridges_then_the_distance_of_nodes(reach, common, node, distance):
    assert cost(WANT, device(PATHS[reach], node)) == 2 ** (6 * reach + 16) + (63 - common) * 256 + distance


def test_a_distance_above_255_counts_as_255_and_so_do_more_than_63_common_bridges():
    far = Want("a", HERE, ((0, 300),))
    assert cost(far, device(HERE)) == 2**16 + 59 * 256 + 255
    for length, rest in ((62, 1), (63, 0), (64, 0)):
        deep = tuple(str(step) for step in range(length))
        assert cost(Want("a", deep, ((0, 10),)), device(deep)) == 2**16 + rest * 256 + 10


def test_the_limits_of_the_assignment():
    assert (nearest.NEVER, nearest.TRIES) == (1 << 80, 200)
    # No sum of real costs is as high.
    assert 200 * cost(WANT, device(PATHS[SYS], None)) < nearest.NEVER


def test_the_nearest_of_two_held_devices_is_kept_first():
    near, far = devices_of(PATHS[PXB], PATHS[SYS], holder="a")
    assert assign([WANT], [far, near]) == [near.address]
    assert assign([WANT, WANT], [far, near]) == [near.address, far.address]
    other = Want("a", PATHS[SYS], DISTANCES)
    assert assign([WANT, other], [near, far]) == [near.address, far.address]
    assert assign([other, WANT], [near, far]) == [far.address, near.address]
    # A held device of another machine's group is not kept.
    foreign = device(PATHS[PIX], holder="a", owner="b")
    assert assign([WANT], [foreign, device(PATHS[SYS], 1, "0000:99:00.0")]) == ["0000:99:00.0"]


def test_a_device_of_a_group_that_another_machine_keeps_is_not_assigned():
    held = device(PATHS[SYS], 1, "0000:01:00.0", group=5, holder="b")
    near, far = device(HERE, 0, "0000:02:00.0", group=5), device(PATHS[SYS], 1, "0000:03:00.0", group=6)
    assert assign([WANT, Want("b", HERE, DISTANCES)], [held, near, far]) == [far.address, held.address]
    # Its own machine can have it.
    more = [Want("b", HERE, DISTANCES), Want("b", HERE, DISTANCES)]
    assert assign(more, [held, near, far]) == [held.address, near.address]


def test_the_cheaper_owner_gets_a_group_that_two_machines_want():
    """Both devices of group 5 are nearest to a and b; the device of group 6 is nearer to b than to a."""
    b = Want("b", PATHS[PHB], DISTANCES)
    one, two = device(HERE, address="0000:01:00.0", group=5), device(PATHS[PHB], address="0000:02:00.0", group=5)
    six = device((*PATHS[PHB][:3], "14:01.0"), address="0000:03:00.0", group=6)
    assert assign([WANT, b], [one, two, six]) == [one.address, six.address]
    assert assign([b, WANT], [one, two, six]) == [six.address, one.address]


def test_each_row_gets_its_own_column_with_the_lowest_sum():
    never = nearest.NEVER
    for rows, columns in (
        ([[1, 5], [1, 9]], [1, 0]),
        ([[1, 1, 1, 9], [1, 1, 1, 9]], [0, 1]),
        ([[5, never, never], [4, 4, 9]], [0, 1]),
        ([[never, 5, never], [never, 4, 9]], [1, 2]),
        ([], []),
        # Rows without a column of their own.
        ([[1], [2]], None),
        ([[never, 1], [never, 1]], None),
        ([[5, never, never], [4, never, never]], None),
        ([[never], [1]], None),
        ([[], []], None),
    ):
        assert nearest.columns_of_lowest_sum(rows) == columns, rows


@pytest.mark.parametrize(
    ("table", "picks"),
    [
        ([[7]], [0]),
        ([[7, 3]], [1]),
        # Of equal sums, the first columns.
        ([[0, 0], [0, 0]], [0, 1]),
        ([[4, 1, 3], [2, 0, 5], [3, 2, 2]], [1, 0, 2]),
        ([[1, 2], [1, 9]], [1, 0]),
        ([[9, 1, 9, 9], [1, 9, 9, 9], [9, 9, 9, 1]], [1, 0, 3]),
    ],
)
def test_the_hungarian_method_picks_the_least_sum(table, picks):
    assert hungarian(table) == picks


def test_nothing_else_is_computed_if_every_want_can_have_its_nearest_device(monkeypatch):
    def computed(_rows):
        raise AssertionError("the assignment problem is not needed")

    monkeypatch.setattr(nearest, "hungarian", computed)
    assert nearest.columns_of_lowest_sum([[1, 5, 9], [1, 1, 9], [9, 9, 1]]) == [0, 1, 2]


@pytest.mark.parametrize(("tries", "first"), [(200, 0), (2, 0), (1, 1)])
def test_a_group_is_tried_with_its_owners_in_the_order_of_their_names(monkeypatch, tries, first):
    """Both devices of group 5 are nearest to b and a; it is better if b gets one, which is tried second."""
    monkeypatch.setattr(nearest, "TRIES", tries)
    one, two = device(HERE, address="0000:01:00.0", group=5), device(PATHS[PHB], address="0000:02:00.0", group=5)
    six = device((*PATHS[PHB][:3], "14:01.0"), address="0000:03:00.0", group=6)
    found = assign([Want("b", HERE, DISTANCES), Want("a", PATHS[PHB], DISTANCES)], [one, two, six])
    assert found == [[one.address, six.address], [six.address, two.address]][first]


def test_of_equally_good_owners_of_a_group_the_first_by_name_gets_it():
    one, two, six = (device(HERE, address=f"0000:{at}3:00.0", group=group) for at, group in ((1, 5), (2, 5), (3, 6)))
    both = [WANT, Want("b", HERE, DISTANCES)]
    assert assign(both, [one, two, six]) == [one.address, six.address]
    assert assign(both[::-1], [one, two, six]) == [six.address, one.address]
