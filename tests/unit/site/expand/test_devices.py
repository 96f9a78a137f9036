# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Devices: their number, names, racks and units."""

from __future__ import annotations

import pytest
import sites
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand import devices as module

BOX = {"model": "spine", "rack": "rack", "unit": 20, "name": "box{n}"}


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        ({"count": 1}, ["rack-1 20"]),
        ({"count": 2}, ["rack-1 20", "rack-2 20"]),
        ({"count": 3}, ["rack-1 20", "rack-1 21", "rack-2 20"]),
        ({"count": 4}, ["rack-1 20", "rack-1 21", "rack-2 20", "rack-2 21"]),
        # A kind that is not complete fills the first racks.
        ({"count": 4, "total": 3}, ["rack-1 20", "rack-1 21", "rack-2 20"]),
        ({"per": "rack", "count": 2}, ["rack-1 20", "rack-1 21", "rack-2 20", "rack-2 21"]),
        ({"per": "rack", "count": 2, "total": 3}, ["rack-1 20", "rack-1 21", "rack-2 20"]),
        ({"per": "rack", "count": 2, "total": 1}, ["rack-1 20"]),
        ({"per": "rack", "count": 2, "model": "server"}, ["rack-1 20", "rack-1 28", "rack-2 20", "rack-2 28"]),
    ],
)
def test_devices_are_spread_over_the_racks_of_their_block(changes, places):
    site = sites.site(devices__box={**BOX, **changes})
    assert [f"{box.rack.name} {box.unit}" for box in site.by_kind["box"]] == places
    assert [box.name for box in site.by_kind["box"]] == [f"box{at}" for at in range(1, len(places) + 1)]


def test_names_have_the_numbers_of_the_device_and_its_blocks():
    vm = {"runs_on": "node", "name": "vm-{n}-{i}-{rack}"}
    site = sites.site(devices__box={**BOX, "per": "rack", "count": 2, "name": "b{n}-{i}-{rack}-{site}"}, devices__vm=vm)
    assert [box.name for box in site.by_kind["box"]] == ["b1-1-1-1", "b2-2-1-1", "b3-1-2-1", "b4-2-2-1"]
    assert [vm.name for vm in site.by_kind["vm"]] == ["vm-1-1-1", "vm-2-2-1", "vm-3-1-2", "vm-4-2-2"]
    assert [vm.host.name for vm in site.by_kind["vm"]] == ["gpu01", "gpu02", "gpu03", "gpu04"]


def test_a_virtual_machine_of_a_single_host_has_its_numbers():
    vm = {"runs_on": "box", "name": "vm-{n}-{i}"}
    assert [vm.name for vm in sites.site(devices__box=BOX, devices__vm=vm).by_kind["vm"]] == ["vm-1-1"]


def test_a_virtual_machine_has_the_place_of_its_host_but_no_type():
    site = sites.site(devices__vm={"runs_on": "node", "name": "vm{n}"})
    vm, host = site.devices["vm4"], site.devices["gpu04"]
    assert (vm.number, vm.index, vm.block, vm.rack, vm.unit) == (4, 1, host.block, host.rack, 9)
    assert vm not in host.rack.devices
    assert host.model.name == "server"
    with pytest.raises(AssertionError, match="vm4 is a virtual machine"):
        assert vm.model


@pytest.mark.parametrize(
    ("percent", "numbers"),
    [
        (1, [100]),
        (10, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]),
        (30, [4, 7, 10, 14, 17, 20]),
        (50, list(range(2, 101, 2))),
    ],
)
def test_spares_are_spread_evenly(percent, numbers):
    blocks = {"network": {"units": 42}, "rack": {"units": 100}}
    box = {**BOX, "unit": 1, "count": 100, "spare_percent": percent}
    site = sites.site(blocks=blocks, devices={"box": box}, links=None, checks=None)
    found = [device.number for device in site.by_kind["box"] if device.spare]
    assert found[: len(numbers)] == numbers
    assert len(found) == percent


@pytest.mark.parametrize(("device", "height_m"), [("gpu01", 0.1778), ("gpu02", 0.5334), ("leaf1-1", 1.755775)])
def test_the_height_of_a_device_is_that_of_its_middle(device, height_m):
    # gpu01 is in units 1 to 8, gpu02 in 9 to 16, leaf1-1 in 40; a unit is 44.45 mm.
    assert sites.site().devices[device].height_m == pytest.approx(height_m)


def test_too_many_devices_are_refused_before_they_are_created():
    assert sites.refused(devices__node__count=200_001) == Mentions("devices.node.count", "400002", "400000")


def test_the_devices_of_a_kind_are_counted_over_the_site(monkeypatch):
    monkeypatch.setattr(module, "DEVICES_MAX", 4)
    assert len(sites.site().by_kind["node"]) == 4
    assert len(sites.site(devices__node__count=9, devices__node__total=4, links=None, checks=None).by_kind["node"]) == 4
    told = "devices.node.count: 5 devices exceed the maximum of 4; correct the counts"
    assert sites.refused(devices__node__count=9, devices__node__total=5, links=None, checks=None) == told


def test_two_devices_with_one_name_are_refused():
    assert sites.refused(devices__box={**BOX, "name": "spine{n:1}"}) == Mentions(
        "devices.box.name", "spine1", "number 1 of spine", "number 1 of box"
    )
    assert sites.refused(devices__leaf__name="leaf{i}") == Mentions(
        "devices.leaf.name", "leaf1", "number 1 of leaf", "number 3 of leaf"
    )


def test_a_name_that_is_too_long_is_refused():
    name = "a" * 60
    assert "a" * 60 + "004" in sites.site(devices__node__name=name + "{n:03}").devices
    assert sites.refused(devices__node__name=name + "{n:04}") == Mentions("devices.node.name", f"{name}0001")
