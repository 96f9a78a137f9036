# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVMe controllers speak in the structures of the NVM Express Base Specification."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.disks import erase
from ansible_collections.sailloft.fleet.plugins.module_utils.disks.erase import Eraser, abilities, sanitize_status
from ansible_collections.sailloft.fleet.plugins.module_utils.disks.found import DiskError, NodeDisk
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

NVME = NodeDisk("nvme0n1", "/dev/nvme0n1", "S1", 1 << 20, frozenset(["0000:5e:00.0"]), ())
SATA = NodeDisk("sda", "/dev/sda", "S2", 1 << 20, frozenset(), ())


def identify(oacs, sanicap):
    data = bytearray(4096)
    struct.pack_into("<H", data, 256, oacs)
    struct.pack_into("<I", data, 328, sanicap)
    return bytes(data)


@pytest.mark.parametrize(
    ("oacs", "sanicap", "action", "method"),
    [
        (0x2, 0x3, 2, "sanitize"),
        (0x2, 0x1, 4, "sanitize"),
        # Overwrite alone takes days on a large disk.
        (0x2, 0x4, 0, "format"),
        (0x0, 0x0, 0, "discard"),
    ],
)
def test_the_strongest_method_that_is_offered_is_taken(monkeypatch, oacs, sanicap, action, method):
    data = identify(oacs, sanicap)
    assert abilities(data).sanitize == action
    monkeypatch.setattr(Eraser, "binary", lambda self, argv: data)
    assert Eraser(System(), 1).method(NVME, "auto") == method


def test_a_method_that_a_disk_does_not_offer_is_refused(monkeypatch):
    monkeypatch.setattr(Eraser, "binary", lambda self, argv: identify(0, 0))
    for disk, method in ((NVME, "sanitize"), (NVME, "format"), (SATA, "sanitize"), (SATA, "format")):
        with pytest.raises(DiskError):
            Eraser(System(), 1).method(disk, method)


def test_the_sanitize_log_is_read():
    assert sanitize_status(struct.pack("<HH", 0x8000, 0x2)) == (2, 50)
    assert sanitize_status(struct.pack("<HH", 0xFFFF, 0x101)) == (1, 99)
    for read in (sanitize_status, abilities):
        with pytest.raises(DiskError):
            read(b"")


@pytest.mark.parametrize(
    ("logs", "said"),
    [([(2, 0x1000), (2, 0x8000), (1, 0xFFFF)], ""), ([(2, 0), (3, 0)], "failed"), ([(2, 0x8000)] * 99, "50 %")],
)
def test_a_sanitize_is_awaited_and_its_failure_named(monkeypatch, logs, said):
    shown = iter(logs)
    monkeypatch.setattr(erase, "POLL_S", 0.01)

    def log(self, argv):
        status, progress = next(shown)
        return struct.pack("<HH", progress, status)

    monkeypatch.setattr(Eraser, "binary", log)
    eraser = Eraser(System(), 0.05)
    if not said:
        eraser.wait_for_sanitize(NVME, is_ours=True)
    else:
        with pytest.raises(DiskError, match=said):
            eraser.wait_for_sanitize(NVME, is_ours=True)


def test_another_controller_than_that_of_the_disk_is_not_sanitized(monkeypatch, tmp_path):
    (tmp_path / "disk").write_bytes(bytes(NVME.size_bytes))
    data = bytearray(identify(0, 0x2))
    data[4:24] = b"S9".ljust(20)
    log = struct.pack("<HH", 0, 0)
    ran = []
    monkeypatch.setattr(Eraser, "binary", lambda self, argv: bytes(data) if "id-ctrl" in argv else log)
    monkeypatch.setattr(System, "run", lambda self, argv, **_rest: ran.append(argv))
    with pytest.raises(DiskError, match="not the controller"):
        Eraser(System(), 1).erase([replace(NVME, path=str(tmp_path / "disk"))], "sanitize")
    assert ran == []
    assert (tmp_path / "disk").read_bytes() == bytes(NVME.size_bytes)
