# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Memory and processors are compared with the plan."""

from __future__ import annotations

import pytest
from health_nodes import failed, node, results, unmeasured, write
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import GUEST, PASS, Expected
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.host.memory import (
    parse_online,
    parse_total,
    read,
)

EXPECTED = Expected("gpu01", memory_bytes=2048 << 30, processors=192)


def reading(root, kib=2048 << 20, online="0-95,96-191"):
    """Return a reading of a node with so much memory and these processors."""
    write(root, {"/proc/meminfo": f"MemTotal:       {kib} kB\nMemFree: 1 kB"})
    write(root, {"/sys/devices/system/cpu/online": online})
    return read(node(root, EXPECTED))


def test_what_is_planned_passes_and_a_larger_kernel_too(tmp_path):
    for kib in (2048 << 20, int(0.985 * (2048 << 20))):
        assert {result.verdict for result in results(reading(tmp_path, kib), expected=EXPECTED)} == {PASS}


def test_a_lost_module_and_a_lost_socket_are_faults(tmp_path):
    assert failed(reading(tmp_path, (2048 - 64) << 20), expected=EXPECTED) == {"memory_bytes": [""]}
    assert failed(reading(tmp_path, online="0-95"), expected=EXPECTED) == {"processors": [""]}


def test_a_guest_has_less_than_its_plan_and_a_lost_module_of_its_host_is_no_matter(tmp_path):
    for mib, kib in ((24576, 24683656), (16384, 15900000), (2048 << 10, int(0.96 * (2048 << 20)))):
        guest = Expected("vm1", memory_bytes=mib << 20, machine=GUEST)
        write(tmp_path, {"/proc/meminfo": f"MemTotal:       {kib} kB", "/sys/devices/system/cpu/online": "0"})
        assert failed(read(node(tmp_path, guest)), expected=guest) == {}
    half = Expected("vm1", memory_bytes=48 << 30, machine=GUEST)
    write(tmp_path, {"/proc/meminfo": "MemTotal:       24683656 kB"})
    assert failed(read(node(tmp_path, half)), expected=half) == {"memory_bytes": [""]}


def test_without_a_plan_nothing_is_judged(tmp_path):
    assert results(reading(tmp_path)) == ()


@pytest.mark.parametrize("text", ["", "alle", "0-", "5-2"])
def test_other_text_is_not_measured(tmp_path, text):
    reading(tmp_path)
    write(tmp_path, {"/proc/meminfo": text, "/sys/devices/system/cpu/online": text})
    assert set(unmeasured(read(node(tmp_path, EXPECTED)), expected=EXPECTED)) == {"memory_bytes", "processors"}


@given(st.text() | st.from_regex(r"[0-9,-]{0,20}"))
def test_no_text_is_an_error(text):
    assert parse_total(text) is None
    assert parse_online(text) is None or parse_online(text) > 0
