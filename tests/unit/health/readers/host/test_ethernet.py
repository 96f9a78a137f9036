# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ethernet ports are compared with the plan; pauses and marks are no faults, discards of a lossless priority are."""

from __future__ import annotations

import pytest
from health_nodes import failed, node, results, unmeasured, write
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    PASS,
    Expected,
    ExpectedDevice,
    ExpectedPort,
    Place,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.ethernet import judged, parse, read
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError, Ran

PLAIN_PORT, ROCE_PORT, NIC = "eth0", "mlx5_4/1", "0000:5c:00.0"
EXPECTED = Expected(
    "gpu01",
    devices=(ExpectedDevice("0000:3b:00.0", "nic", "management"),),
    ports=(
        ExpectedPort(PLAIN_PORT, "0000:3b:00.0", "Ethernet", 25.0),
        # The reader of RDMA devices measures the rates of these.
        ExpectedPort(ROCE_PORT, NIC, "Ethernet"),
        ExpectedPort("mlx5_0/1", "0000:18:00.0", "InfiniBand"),
    ),
)
STATISTICS = {
    "rx_packets": 5,
    "rx_crc_errors_phy": 0,
    "rx_symbol_err_phy": 0,
    "rx_corrected_bits_phy": 17000000,
    "rx_prio0_discards": 0,
    "rx_prio3_discards": 0,
    "rx_prio3_pause": 41927,
    "tx_prio3_pause": 1290418,
    "rx_prio3_marked": 9147732,
    "tx_pause_storm_warning_events": 0,
    "tx_pause_storm_error_events": 0,
    "module_high_temp": 0,
}


def ethtool(**changed):
    """Return what `ethtool -S` prints."""
    lines = [f"     {name}: {value}" for name, value in {**STATISTICS, **changed}.items()]
    return "\n".join(["NIC statistics:", *lines, ""])


def reading(root, text=None, kept=None, **changed):
    """Return a reading of a node with a management port eth0, whose files keywords change, and a RoCE NIC ens1."""
    files = {"operstate": "up", "speed": "25000", "carrier_down_count": "1", **changed}
    write(root, {f"/sys/class/net/eth0/{name}": value for name, value in files.items()})
    write(root, {"/sys/class/net/ens1/carrier_down_count": "1", "/sys/class/net/ens1/operstate": "up"})
    for name, address in (("eth0", "0000:3b:00.0"), ("ens1", NIC)):
        write(root, {f"/sys/bus/pci/devices/{address}/vendor": "0x15b3"})
        link = root / "sys/class/net" / name / "device"
        if not link.exists():
            link.symlink_to(root / "sys/bus/pci/devices" / address)
    answers = {
        "ethtool -S eth0": Ran(94, "", "no stats available"),
        "ethtool -S ens1": ethtool() if text is None else text,
    }
    return read(node(root, EXPECTED, answers, kept))


def test_a_healthy_node_passes(tmp_path):
    judged_results = results(reading(tmp_path), reading(tmp_path), expected=EXPECTED)
    assert {result.verdict for result in judged_results} == {PASS}
    assert {result.place.name for result in judged_results} == {PLAIN_PORT, ROCE_PORT}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"operstate": "down", "speed": "-1"}, {"port_down": [PLAIN_PORT]}),
        ({"operstate": "lowerlayerdown", "speed": ""}, {"port_down": [PLAIN_PORT]}),
        ({"speed": "10000"}, {"port_rate": [PLAIN_PORT]}),
    ],
)
def test_each_sick_port_has_one_fault(tmp_path, changed, expected):
    once = reading(tmp_path, **changed)
    assert failed(once, reading(tmp_path, kept=once.kept, **changed), expected=EXPECTED) == expected


def test_an_interface_without_a_driver_is_missing(tmp_path):
    write(tmp_path, {"/sys/bus/pci/devices/0000:3b:00.0/vendor": "0x15b3"})
    assert failed(read(node(tmp_path, EXPECTED)), expected=EXPECTED) == {"port_missing": [PLAIN_PORT]}


def test_an_interface_of_a_missing_device_is_left_to_the_device(tmp_path):
    assert failed(read(node(tmp_path, EXPECTED)), expected=EXPECTED) == {}


def test_an_unknown_speed_is_not_measured(tmp_path):
    once = reading(tmp_path, speed="-1")
    assert (failed(once, expected=EXPECTED), unmeasured(once, once, expected=EXPECTED)) == ({}, {"port_rate": ["eth0"]})


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"rx_prio3_pause": 90000, "tx_prio3_pause": 9000000, "rx_prio3_marked": 99999999}, {}),
        ({"rx_corrected_bits_phy": 99000000}, {}),
        # Without pauses a priority may lose packets.
        ({"rx_prio0_discards": 5210}, {}),
        ({"rx_prio3_discards": 1}, {"ethernet_discards": [ROCE_PORT]}),
        ({"tx_pause_storm_warning_events": 14}, {"ethernet_pause_storm_warning": [ROCE_PORT]}),
        ({"tx_pause_storm_error_events": 2}, {"ethernet_pause_storm": [ROCE_PORT]}),
        ({"rx_crc_errors_phy": 386}, {"ethernet_crc_errors": [ROCE_PORT]}),
        ({"rx_symbol_err_phy": 386}, {"ethernet_symbol_errors": [ROCE_PORT]}),
        ({"module_high_temp": 1}, {"ethernet_module": [ROCE_PORT]}),
    ],
)
def test_statistics_are_judged_by_their_increase_at_the_planned_port(tmp_path, changed, expected):
    before = reading(tmp_path)
    after = reading(tmp_path, ethtool(**changed))
    assert failed(before, after, expected=EXPECTED) == expected
    assert failed(after, after, expected=EXPECTED) == {}


def test_a_link_that_is_lost_again_and_again_is_a_fault(tmp_path):
    before = reading(tmp_path)
    after = reading(tmp_path, carrier_down_count="4")
    assert failed(before, after, expected=EXPECTED) == {"port_link_downs": [PLAIN_PORT]}


@pytest.mark.parametrize(
    "program", ["", "Statistik der Netzkarte", Ran(1, "", "failed"), NotMeasuredError("no answer")]
)
def test_a_lossless_port_without_statistics_is_not_measured(tmp_path, program):
    if isinstance(program, NotMeasuredError):
        reading(tmp_path)
        once = read(node(tmp_path, EXPECTED, {"ethtool": program}))
    else:
        once = reading(tmp_path, program)
    assert unmeasured(once, once, expected=EXPECTED) == {"ethernet_discards": [ROCE_PORT]}
    assert failed(once, once, expected=EXPECTED) == {}


@given(st.text() | st.binary().map(lambda data: data.decode(errors="replace")))
def test_no_text_is_an_error(text):
    assert all(each.value is not None for each in judged(parse(text), Place("port", "eth0"), "eth0"))
