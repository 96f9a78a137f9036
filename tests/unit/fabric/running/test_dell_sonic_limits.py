# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The limits of the numbers that Dell's modules gather, and queues that are not the port's own eight."""

from __future__ import annotations

import copy

import pytest
from dell_sonic_modules import dell, read, rendered
from refusals import refuses

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Ecn, Queue

ARGUMENTS = rendered(dell(ports=["Eth1/1"]))


def changed(module, path, value):
    arguments = copy.deepcopy(ARGUMENTS)
    holder = arguments[module]["config"]
    *parents, last = path
    for key in parents:
        holder = holder[key]
    holder[last] = value
    return arguments


GREEN = ("sonic_qos_wred", (0, "green"))
SCHEDULER = ("sonic_qos_scheduler", (0, "schedulers", 0))
PORT = ("sonic_qos_interfaces", (0,))


@pytest.mark.parametrize(
    ("place", "option", "minimum", "maximum"),
    [
        (GREEN, "min_threshold", 0, 1_500_000),
        (GREEN, "max_threshold", 150_000, 12_480_000),
        (GREEN, "drop_probability", 0, 100),
        (SCHEDULER, "weight", 1, 100),
        (SCHEDULER, "sequence", 0, 255),
        (("sonic_interfaces", (0,)), "mtu", 1280, 9216),
        (("sonic_qos_interfaces", (0, "queues", 0)), "id", 0, 47),
        (("sonic_qos_interfaces", (0, "pfc", "priorities", 0)), "dot1p", 0, 7),
        (("sonic_qos_maps", ("dscp_maps", 0, "entries", 0)), "dscp", 0, 63),
        (("sonic_qos_maps", ("dscp_maps", 0, "entries", 0)), "fwd_group", 0, 7),
    ],
)
def test_numbers_have_limits(place, option, minimum, maximum):
    module, path = place
    for number in (minimum, maximum, str(maximum)):
        read(changed(module, (*path, option), number))
    for number in (minimum - 1, maximum + 1, str(maximum + 1), 1.5, True):
        with pytest.raises(FabricError, match=r"^leaf1: sonic_"):
            read(changed(module, (*path, option), number))


def queues(**options):
    arguments = copy.deepcopy(ARGUMENTS)
    arguments["sonic_qos_interfaces"]["config"][0].update(options)
    return read(arguments).ports["Eth1/1"].queues


MARKED = Ecn(150_000, 1_500_000, 100)
PROFILE = ARGUMENTS["sonic_qos_wred"]["config"][0]["name"]


@pytest.mark.parametrize(
    ("marked", "expected"),
    [([], {}), ([8], {}), ([47], {}), ([7], {7: Queue(False, None, MARKED)}), ([0], {0: Queue(False, 50, MARKED)})],
)
def test_only_the_first_eight_queues_count(marked, expected):
    queues_read = queues(queues=[{"id": number, "wred_profile": PROFILE} for number in marked])
    served = {0: Queue(False, 50), 3: Queue(False, 50), 6: Queue(True), **expected}
    assert {queue_number: queue for queue_number, queue in enumerate(queues_read) if queue} == served


def test_the_shaper_and_queues_above_7_are_not_served():
    arguments = copy.deepcopy(ARGUMENTS)
    schedulers = arguments["sonic_qos_scheduler"]["config"][0]["schedulers"]
    schedulers += [{"sequence": number, "scheduler_type": "strict"} for number in (8, 255)]
    assert read(arguments) == read(ARGUMENTS)


def test_equal_thresholds_are_valid():
    arguments = changed("sonic_qos_wred", (0, "green", "min_threshold"), 1_500_000)
    assert read(arguments).ports["Eth1/1"].queues[3].ecn == Ecn(1_500_000, 1_500_000, 100)


@pytest.mark.parametrize(("length", "metres"), [("5m", 5), ("40m", 40), ("300m", 300), (None, None)])
def test_cables_have_one_of_three_lengths(length, metres):
    assert read(changed("sonic_qos_interfaces", (0, "cable_length"), length)).ports["Eth1/1"].cable_m == metres


@pytest.mark.parametrize("length", ["6m", "301m", "5"])
def test_another_length_is_refused(length):
    with refuses("leaf1: sonic_qos_interfaces Eth1/1", f"cable_length {length!r}", "5m, 40m, 300m"):
        read(changed("sonic_qos_interfaces", (0, "cable_length"), length))


@pytest.mark.parametrize("option", ["watchdog_detect_time", "watchdog_restore_time"])
def test_a_watchdog_needs_both_times(option):
    assert read(changed("sonic_qos_interfaces", (0, "pfc", option), None)).ports["Eth1/1"].watchdog is None
