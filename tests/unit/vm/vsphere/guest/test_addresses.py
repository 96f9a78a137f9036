# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Slot numbers as paths, with the example of VMware KB 2047927, and the devices at the ends of paths."""

from __future__ import annotations

import pytest
from vsphere_guest import guest
from vsphere_requests import server

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.guest.addresses import locate, way

GPUS = ("0000:13:00.0", "0000:83:00.0")
WAYS = {GPUS[0]: ["15.1", "00.0"], GPUS[1]: ["15.0", "00.0"]}


@pytest.mark.parametrize(
    ("slot", "bridges", "steps"),
    [
        (1216, {5: 22}, ["16.1", "00.0"]),  # KB 2047927: behind 00h:16h:01h
        (17, {}, ["11.0"]),
        (160, {4: 21}, ["15.0", "00.0"]),
        (34, {0: 17}, ["11.0", "02.0"]),  # the device of a PCI bus
        (256, {7: 1024 + 160, 4: 21}, ["15.1", "00.0", "00.0"]),  # a bridge below a bridge
        (160, {}, None),
        (160, {4: 160}, None),
    ],
)
def test_a_slot_number_is_converted_to_a_path(slot, bridges, steps):
    assert way(slot, bridges) == steps


def test_devices_are_located_by_their_paths():
    host = server()
    gpus = [host.function(address) for address in GPUS]
    inside = guest(host, WAYS)
    assert locate(gpus, WAYS, inside) == {GPUS[1]: "0000:03:00.0", GPUS[0]: "0000:04:00.0"}
    # Two devices of one model cannot be distinguished without a path; a single one needs none.
    assert locate(gpus, {}, inside) == {}
    assert locate(gpus, {GPUS[0]: WAYS[GPUS[0]], GPUS[1]: ["16.0", "00.0"]}, inside) == {GPUS[0]: "0000:04:00.0"}
    alone = {GPUS[1]: WAYS[GPUS[1]]}
    assert locate(gpus[1:], {}, guest(host, alone)) == {GPUS[1]: "0000:03:00.0"}


def test_paths_to_another_model_or_to_one_device_twice_are_ignored():
    host = server()
    gpus = [host.function(address) for address in GPUS]
    inside = guest(host, WAYS)
    assert locate(gpus, {address: ["15.0", "00.0"] for address in GPUS}, inside) == {}
    inside.function("0000:03:00.0").device_id = 0x1234
    assert GPUS[1] not in locate(gpus, {GPUS[1]: WAYS[GPUS[1]]}, inside)


@pytest.mark.parametrize(
    ("slot", "bridges", "steps"),
    [
        (0, {}, ["00.0"]),
        (31, {}, ["1f.0"]),
        # Bits above the device and the bridge are those of the function.
        (31 | 1 << 5, {0: 21}, ["15.0", "1f.0"]),
        (7 << 10 | 1 << 5, {0: 21}, ["15.7", "00.0"]),
        (8 << 10 | 1 << 5, {0: 21}, ["15.0", "00.0"]),
        (7 << 10, {}, ["00.0"]),
        (31 << 5, {30: 3}, ["03.0", "00.0"]),
        (32 << 5, {}, ["00.0"]),
        (1 << 5, {1: 21}, None),
        (1 << 5, {0: 2 << 5, 1: 1 << 5}, None),
    ],
)
def test_the_bits_of_a_slot_number_are_function_bridge_and_device(slot, bridges, steps):
    assert way(slot, bridges) == steps


def test_a_path_begins_on_the_root_bus_and_follows_the_tree():
    host = server()
    gpus = [host.function(address) for address in GPUS]
    inside = guest(host, WAYS)
    # The port is not on bus 0 of domain 0, so the way ends nowhere.
    moved = inside.function("0000:00:15.0")
    moved.address = "0000:01:15.0"
    for function in inside.functions:
        if function.parent == "0000:00:15.0":
            function.parent = moved.address
    assert locate(gpus, WAYS, inside) == {GPUS[0]: "0000:04:00.0"}
    # A device is below the port of its way, not below another one.
    inside = guest(host, WAYS)
    for function in inside.functions:
        if function.parent:
            function.parent = "0000:00:15.1"
    assert locate(gpus, {GPUS[1]: WAYS[GPUS[1]]}, inside) == {}


def test_a_device_is_identified_by_its_model_only_if_it_is_the_only_one_on_both_sides():
    host = server()
    gpus = [host.function(address) for address in GPUS]
    both, one = guest(host, WAYS), guest(host, {GPUS[0]: WAYS[GPUS[0]]})
    assert locate(gpus[:1], {}, both) == {}
    assert locate(gpus, {}, one) == {}
    assert locate(gpus[:1], {}, one) == {GPUS[0]: "0000:03:00.0"}
    gpus[1].device_id = 0x1234
    assert locate(gpus, {}, one) == {GPUS[0]: "0000:03:00.0"}
    assert locate([], {}, one) == {}
