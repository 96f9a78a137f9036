# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ports of RDMA devices are compared with the plan, and their counters with the round before."""

from __future__ import annotations

import pytest
from health_nodes import failed, node, results, unmeasured, values, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    FAIL,
    PASS,
    Expected,
    ExpectedDevice,
    ExpectedPort,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.rdma import read

PORTS = ("mlx5_0/1", "mlx5_1/1")
ADDRESS = {"mlx5_0/1": "0000:18:00.0", "mlx5_1/1": "0000:2a:00.0"}
EXPECTED = Expected(
    "gpu01",
    devices=tuple(ExpectedDevice(address, "nic", name) for name, address in ADDRESS.items()),
    ports=tuple(ExpectedPort(name, address, "InfiniBand", 400.0, "leaf-1 7") for name, address in ADDRESS.items()),
)


def port(name, **changed):
    """Return the files of a port that works; a keyword changes one, a counter with its directory before "__"."""
    device, number = name.split("/")
    files = {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "400 Gb/sec (4X NDR)",
        "counters/link_downed": "0",
        "counters/symbol_error": "0",
        "counters/excessive_buffer_overrun_errors": "0",
        "hw_counters/roce_slow_restart": "0",
        "hw_counters/rnr_nak_retry_err": "0",
        **{key.replace("__", "/"): text for key, text in changed.items()},
    }
    return {f"/sys/class/infiniband/{device}/ports/{number}/{file}": text for file, text in files.items()}


def reading(root, kept=None, **changed):
    """Return a reading of a node with two ports, the second of which is changed."""
    write(root, {f"/sys/bus/pci/devices/{address}/vendor": "0x15b3" for address in ADDRESS.values()})
    write(root, {**port("mlx5_0/1"), **port("mlx5_1/1", **changed)})
    write(root, {"/proc/sys/kernel/random/boot_id": "boot-1"})
    return read(node(root, EXPECTED, kept=kept))


def test_a_healthy_node_passes(tmp_path):
    judged = results(reading(tmp_path), reading(tmp_path), expected=EXPECTED)
    assert {result.verdict for result in judged} == {PASS}
    assert {result.place.name for result in judged} == set(PORTS)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        # A rate without a link is no fault of its own.
        ({"state": "1: DOWN", "phys_state": "2: Polling", "rate": "10 Gb/sec (4X SDR)"}, {"port_down": ["mlx5_1/1"]}),
        ({"state": "2: INIT"}, {"port_down": ["mlx5_1/1"]}),
        ({"rate": "200 Gb/sec (2X NDR)"}, {"port_rate": ["mlx5_1/1"]}),
    ],
)
def test_each_sick_port_has_one_fault(tmp_path, changed, expected):
    once = reading(tmp_path, **changed)
    assert failed(once, reading(tmp_path, once.kept, **changed), expected=EXPECTED) == expected


def test_a_port_that_is_down_for_one_round_of_a_boot_is_no_fault(tmp_path):
    once = reading(tmp_path, state="2: INIT")
    assert failed(once, expected=EXPECTED) == {}
    assert unmeasured(once, expected=EXPECTED)["port_down"] == ["mlx5_1/1"]
    up = reading(tmp_path, once.kept)
    assert results(up, expected=EXPECTED)
    again = reading(tmp_path, up.kept, state="2: INIT")
    assert failed(again, expected=EXPECTED) == {}
    assert failed(reading(tmp_path, again.kept, state="1: DOWN"), expected=EXPECTED) == {"port_down": ["mlx5_1/1"]}
    after_boot = reading(tmp_path, {**again.kept, "boot_id": "boot-0"}, state="2: INIT")
    assert failed(after_boot, expected=EXPECTED) == {}


def test_a_port_without_a_driver_is_missing_and_nothing_else(tmp_path):
    write(tmp_path, {f"/sys/bus/pci/devices/{address}/vendor": "0x15b3" for address in ADDRESS.values()})
    write(tmp_path, port("mlx5_0/1"))
    assert failed(read(node(tmp_path, EXPECTED)), expected=EXPECTED) == {"port_missing": ["mlx5_1/1"]}


def test_a_port_of_a_missing_device_is_left_to_the_device(tmp_path):
    write(tmp_path, {"/sys/bus/pci/devices/0000:18:00.0/vendor": "0x15b3", **port("mlx5_0/1")})
    assert failed(read(node(tmp_path, EXPECTED)), expected=EXPECTED) == {}
    # Without such a device in the plan nobody else would say it.
    bare = Expected("gpu01", ports=EXPECTED.ports)
    assert failed(read(node(tmp_path, bare)), expected=bare) == {"port_missing": ["mlx5_1/1"]}


@pytest.mark.parametrize(
    ("counter", "before", "after", "check"),
    [
        ("counters__link_downed", "0", "3", "port_link_downs"),
        ("counters__symbol_error", "100", "300", "port_symbol_errors"),
        ("counters__excessive_buffer_overrun_errors", "0", "1", "port_buffer_overruns"),
        ("hw_counters__rnr_nak_retry_err", "0", "1", "rdma_receiver_not_ready"),
        ("hw_counters__roce_slow_restart", "0", "1000000", "rdma_slow_restarts"),
    ],
)
def test_a_counter_that_increases_is_a_fault_and_an_old_value_is_none(tmp_path, counter, before, after, check):
    first = reading(tmp_path, **{counter: before})
    assert failed(first, first, expected=EXPECTED) == {}
    assert failed(first, reading(tmp_path, **{counter: after}), expected=EXPECTED) == {check: ["mlx5_1/1"]}


def test_two_lost_links_in_a_day_are_a_maintenance(tmp_path):
    first = reading(tmp_path)
    assert failed(first, reading(tmp_path, counters__link_downed="2"), expected=EXPECTED) == {}


def test_a_counter_at_its_end_is_not_measured_and_no_fault(tmp_path):
    full = reading(tmp_path, counters__link_downed="255", counters__excessive_buffer_overrun_errors="15")
    assert failed(full, full, expected=EXPECTED) == {}
    assert unmeasured(full, full, expected=EXPECTED) == {
        "port_link_downs": ["mlx5_1/1"],
        "port_buffer_overruns": ["mlx5_1/1"],
    }


@pytest.mark.parametrize("text", ["N/A (no PMA)", "", "-1", "zwölf", "\x00\x01", "9" * 30])
def test_a_counter_that_is_no_number_is_not_measured(tmp_path, text):
    once = reading(tmp_path, counters__link_downed=text)
    assert failed(once, once, expected=EXPECTED) == {}
    assert unmeasured(once, once, expected=EXPECTED) == {"port_link_downs": ["mlx5_1/1"]}


def test_a_counter_that_the_kernel_refuses_is_not_measured(tmp_path):
    # A directory refuses to be read as EINVAL does of a function without rights.
    (tmp_path / "sys/class/infiniband/mlx5_1/ports/1/counters/link_error_recovery").mkdir(parents=True)
    once = reading(tmp_path)
    assert unmeasured(once, once, expected=EXPECTED) == {"port_link_recoveries": ["mlx5_1/1"]}


def test_a_state_that_cannot_be_read_is_not_measured(tmp_path):
    once = reading(tmp_path, state="", phys_state="?")
    assert "port_down" in unmeasured(once, expected=EXPECTED)
    assert [each for each in results(once, expected=EXPECTED) if each.verdict == FAIL] == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=100))
def test_garbage_never_passes(tmp_path, data):
    files = port("mlx5_0/1")
    write(tmp_path, dict.fromkeys(files, data))
    measured = values(read(node(tmp_path, EXPECTED)))
    assert measured["port_down", "mlx5_0/1"] is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(port("mlx5_1/1"))), data=st.binary(max_size=30), cut=st.integers(0, 20))
def test_one_altered_file_makes_no_fault_and_its_check_passes_only_by_what_it_says(tmp_path, name, data, cut):
    first = reading(tmp_path)
    file = name.partition("/ports/1/")[2].replace("/", "__")
    text = port("mlx5_1/1")[name]
    once = reading(tmp_path, first.kept, **{file: text[:cut].encode() + data})
    altered = {"state": "port_down", "phys_state": "port_down", "rate": "port_rate"}.get(file)
    said = [each for each in once.measurements if each.check == altered]
    assert all(each.value in (None, False, 400.0) or data or cut < len(text) for each in said)
    assert not failed(once, expected=EXPECTED).keys() & {"port_down", "port_missing"}
