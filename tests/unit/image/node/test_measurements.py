# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reading a node's PCRs, and the firmware's log in the TCG's binary form."""

from __future__ import annotations

import hashlib
import struct

import pytest
from boot_logs import event, first_event

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import measurements

ACTION, NO_ACTION, PROGRAM = 0x80000007, 3, 0x80000003


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_the_log_has_what_was_measured_into_pcr_4():
    data = first_event() + event(0, ACTION, b"firmware") + event(4, ACTION, b"calling") + event(4, NO_ACTION, b"note")
    data += event(7, ACTION, b"keys") + event(4, PROGRAM, b"program") + event(5, ACTION, b"")
    assert measurements.parse_log(data) == [sha256(b"calling"), sha256(b"program")]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        first_event()[:40],
        b"x" * 200,
        first_event() + event(4, ACTION, b"calling")[:-1],
        first_event() + struct.pack("<IIIH", 4, ACTION, 1, 0x99),
    ],
)
def test_a_log_of_another_form_is_none(tmp_path, data):
    place = tmp_path / "log"
    place.write_bytes(data)
    assert measurements.read_log(str(place)) is None
    assert measurements.read_log(str(tmp_path / "none")) is None


def test_the_registers_are_those_that_can_be_read(tmp_path):
    assert measurements.read_pcrs(str(tmp_path)) is None
    place = tmp_path / measurements.TPM
    place.mkdir(parents=True)
    assert measurements.read_pcrs(str(tmp_path)) == {}
    (place / "pcr-sha256").mkdir()
    (place / "pcr-sha256/11").write_text("AB" * 32 + "\n")
    assert measurements.read_pcrs(str(tmp_path)) == {"11": "ab" * 32}
