# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The order of distances, and devices for all wants at once, compared with trying every combination."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices import nearest
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.nearest import Device, Want, assign, cost
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
    return Device(address, path, node, **more)


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
    assert nearest.reach(HERE, [PATHS[SYS], PATHS[PXB], PATHS[NODE]]) == PXB
    assert nearest.reach(HERE, []) == SYS


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
    held = Device(one.address, HERE, 0, 5, None, "b")
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


def test_a_table_without_a_column_for_each_row_has_no_solution():
    assert nearest._least([[1], [2]]) is None
    assert nearest._least([[nearest.NEVER, 1], [nearest.NEVER, 1]]) is None
    assert nearest._least([[1, 5], [1, 9]]) == [1, 0]
    assert nearest._least([]) == []


@pytest.mark.parametrize("reach", PATHS)
def test_the_class_of_each_path_is_found(reach):
    assert nearest.reach(HERE, [PATHS[reach]]) == reach
