# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Many BMCs are read at the same time, and one that hangs or fails stops no other."""

from __future__ import annotations

import threading
import time

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.bmc.target import Bmc, read_many
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError

PASSWORD = "s3cr3t"


def bmcs(*names):
    """Return the BMCs of nodes."""
    return [Bmc(name, f"{name}.example", "monitor", PASSWORD, timeout_s=0.2) for name in names]


def test_each_node_has_its_reading_in_the_order_that_was_asked_for():
    targets = bmcs("gpu02", "gpu01", "gpu03")
    readings = read_many(targets, lambda bmc: Reading("redfish", error=bmc.address))
    assert {host: reading.error for host, reading in readings.items()} == {each.host: each.address for each in targets}
    assert list(readings) == ["gpu02", "gpu01", "gpu03"]
    assert read_many([], lambda bmc: Reading("redfish")) == {}


def test_an_error_is_the_reading_of_its_node_and_never_has_the_account():
    def read(bmc):
        if bmc.host == "gpu01":
            raise NotMeasuredError("it refused the account (401)")
        if bmc.host == "gpu02":
            raise ConnectionRefusedError(111, "Connection refused")
        raise ValueError(f"bad header {bmc.password}")

    readings = read_many(bmcs("gpu01", "gpu02", "gpu03"), read)
    assert readings["gpu01"].error == "it refused the account (401)"
    assert readings["gpu02"].error == "Connection refused"
    assert "ValueError" in readings["gpu03"].error
    assert PASSWORD not in repr(readings)


def test_one_that_hangs_is_left_behind():
    released = threading.Event()

    def read(bmc):
        if bmc.host == "gpu02":
            released.wait(20)
        return Reading("redfish")

    start = time.monotonic()
    readings = read_many(bmcs("gpu01", "gpu02", "gpu03"), read, at_once=2, limit_s=0.5)
    released.set()
    assert time.monotonic() - start < 5
    assert [bool(reading.error) for reading in readings.values()] == [False, True, False]


def test_no_more_than_the_limit_are_read_at_once():
    lock, running, most = threading.Lock(), [], []

    def read(bmc):
        with lock:
            running.append(bmc)
            most.append(len(running))
        time.sleep(0.01)
        with lock:
            running.pop()
        return Reading("redfish")

    read_many(bmcs(*(f"gpu{number}" for number in range(20))), read, at_once=4)
    assert len(most) == 20
    assert max(most) <= 4
