# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The record that is made before each kind of change."""

from __future__ import annotations

import base64
import json
from hashlib import sha256

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import eswitch
from ansible_collections.sailloft.fleet.plugins.module_utils.host.undo import record

GPU, NIC, PF = "0000:13:00.0", "0000:14:00.0", "0000:15:00.0"
KSM = "/sys/kernel/mm/ksm/run"
CONFIG = f"/sys/bus/pci/devices/{GPU}/config"
VFS = {"count": 0, "drivers_autoprobe": "1", "eswitch_mode": "legacy", "settings": {}}


@pytest.fixture
def system(server):
    server.put(KSM, "1\n")
    server.eswitches[PF] = "legacy"
    server.firmware[NIC] = {
        "ADVANCED_PCI_SETTINGS": ["False(0)", "False(0)", "True(1)"],
        "SRIOV_EN": ["False(0)", "True(1)", "False(0)"],
        "NUM_OF_VFS": ["0", "8", "16"],
    }
    return record.Remembering(server)


def digest(content):
    return sha256(content).hexdigest()


FILE = {"kind": "file", "path": "/etc/x.conf"}


@pytest.mark.parametrize(
    ("change", "entries"),
    [
        (lambda system: system.poke(KSM, "0"), [{"kind": "text", "path": KSM, "text": "1"}]),
        (lambda system: system.poke("/proc/sys/vm/compact_memory", "1"), []),
        (
            lambda system: system.poke_bytes(CONFIG, b"\1\2\3", 0),
            [{"kind": "register", "path": CONFIG, "offset": 0, "hex": "f41a43"}],
        ),
        (
            lambda system: system.poke_bytes(CONFIG, b"\1", 2),
            [{"kind": "register", "path": CONFIG, "offset": 2, "hex": "43"}],
        ),
        (
            lambda system: system.poke(f"/sys/bus/pci/devices/{PF}/sriov_numvfs", "2"),
            [{"kind": "vfs", "path": PF, "state": VFS}],
        ),
        (
            lambda system: system.poke(f"/sys/bus/pci/devices/{PF}/sriov_drivers_autoprobe", "0"),
            [{"kind": "vfs", "path": PF, "state": VFS}],
        ),
        (
            lambda system: eswitch.set_mode(system, PF, "switchdev"),
            [{"kind": "vfs", "path": PF, "state": VFS}],
        ),
        (
            lambda system: system.replace("/etc/x.conf", b"new"),
            [{**FILE, "base64": None, "written": [digest(b"new")]}],
        ),
        (lambda system: system.replace("/etc/sailloft/a.json", b"x"), []),
        (lambda system: system.replace("/run/a", b"x"), []),
        (lambda system: system.replace("/usr/lib/sailloft/a.pyz", b"x"), []),
        (lambda system: system.replace("/var/lib/sailloft/a", b"x"), []),
        (lambda system: system.replace("/etc/systemd/system/sailloft-a.service", b"x"), []),
        (lambda system: system.replace(record.DRIVERCTL_ORDER, b"x"), []),
        (
            lambda system: system.run(["driverctl", "set-override", GPU, "vfio-pci"]),
            [
                {
                    "kind": "override",
                    "path": f"/etc/driverctl.d/pci-{GPU}",
                    "address": GPU,
                    "driver": None,
                    "bound": "nvidia",
                }
            ],
        ),
        (
            lambda system: system.run(["driverctl", "unset-override", GPU]),
            [
                {
                    "kind": "override",
                    "path": f"/etc/driverctl.d/pci-{GPU}",
                    "address": GPU,
                    "driver": None,
                    "bound": "nvidia",
                }
            ],
        ),
        (lambda system: system.run(["mkdir", "-p", "/dev/hugepages-1024M"]), []),
        (lambda system: system.run(["systemctl", "set-property", GPU]), []),
        (
            lambda system: system.run(["mstconfig", "-d", NIC, "-y", "set", "SRIOV_EN=1", "NUM_OF_VFS=4"]),
            [
                {"kind": "firmware", "path": f"{NIC} SRIOV_EN", "address": NIC, "value": "False(0)"},
                {"kind": "firmware", "path": f"{NIC} NUM_OF_VFS", "address": NIC, "value": "16"},
            ],
        ),
        (lambda system: system.run(["mstconfig", "-d", NIC, "-e", "query"]), []),
    ],
)
def test_the_state_before_a_change_is_recorded(system, server, change, entries):
    change(system)
    assert record.entries(server) == entries


def test_a_mount_is_recorded_by_its_place(system, server):
    system.run(["mkdir", "-p", "/dev/hugepages-2M"])
    system.run(["mount", "-t", "hugetlbfs", "-o", "pagesize=2M", "hugetlbfs", "/dev/hugepages-2M"])
    assert record.entries(server) == [{"kind": "mount", "path": "/dev/hugepages-2M"}]


def test_a_setting_that_the_firmware_does_not_show_is_not_recorded(system, server):
    server.firmware[NIC]["ADVANCED_PCI_SETTINGS"][2] = "False(0)"
    server.firmware[NIC]["MAX_ACC_OUT_READ"] = ["0", "0", "0"]
    system.run(["mstconfig", "-d", NIC, "-y", "set", "MAX_ACC_OUT_READ=44"])
    assert record.entries(server) == []


def test_the_record_is_written_before_the_change(system, server):
    system.poke(KSM, "0")
    assert server.effects == [f"replace {record.RECORD}", f"poke {KSM}"]
    server.effects.clear()
    system.replace("/etc/x.conf", b"new")
    assert server.effects == [f"replace {record.RECORD}", "replace /etc/x.conf"]


def test_an_object_is_recorded_once_with_its_first_state(system, server):
    system.poke(KSM, "0")
    server.put(KSM, "2")
    system.poke("/sys/kernel/mm//ksm/run", "0")
    system.poke_bytes(CONFIG, b"\1", 4)
    system.poke_bytes(CONFIG, b"\2", 4)
    system.poke_bytes(CONFIG, b"\2", 5)
    for count in ("2", "0"):
        system.poke(f"/sys/bus/pci/devices/{PF}/sriov_numvfs", count)
    system.poke(f"/sys/bus/pci/devices/{NIC}/sriov_numvfs", "1")
    seen = [(entry["kind"], entry["path"], entry.get("offset")) for entry in record.entries(server)]
    assert seen == [
        ("text", KSM, None),
        ("register", CONFIG, 4),
        ("register", CONFIG, 5),
        ("vfs", PF, None),
        ("vfs", NIC, None),
    ]
    assert record.entries(server)[0]["text"] == "1"


def test_every_content_that_was_written_to_a_file_is_recorded_once(system, server):
    server.put("/etc/x.conf", "old")
    server.put("/etc/y.conf", "")
    system.replace("/etc/y.conf", b"other")
    for content in (b"one", b"two", b"one"):
        system.replace("/etc/x.conf", content)
    old = base64.b64encode(b"old").decode()
    assert record.entries(server) == [
        {"kind": "file", "path": "/etc/y.conf", "base64": "", "written": [digest(b"other")]},
        {"kind": "file", "path": "/etc/x.conf", "base64": old, "written": [digest(b"one"), digest(b"two")]},
    ]


def test_a_binding_is_one_object_by_driverctl_and_by_its_file(system, server):
    system.replace(f"/etc/driverctl.d/pci-{GPU}", b"vfio-pci\n")
    system.run(["driverctl", "set-override", GPU, "vfio-pci"])
    assert [entry["kind"] for entry in record.entries(server)] == ["file"]


def test_a_file_that_cannot_be_read_is_changed_without_a_record(system, server, monkeypatch):
    read = server.read_bytes

    def refused(path):
        if path == KSM:
            raise HostError("cannot read", "")
        return read(path)

    monkeypatch.setattr(server, "read_bytes", refused)
    poked = []
    monkeypatch.setattr(server, "poke_bytes", lambda *arguments: poked.append(arguments))
    system.poke(KSM, "0")
    assert poked == [(KSM, b"0", 0)]
    assert record.entries(server) == []


def test_a_missing_file_is_not_recorded(system, server):
    with pytest.raises(HostError, match="No such file"):
        system.poke("/sys/kernel/nothing", "1")
    assert record.entries(server) == []


def test_other_calls_go_to_the_inner_system(system, server):
    assert (system.root, system.machine()) == (server.root, server.machine())
    system.remove(KSM)
    assert not server.exists(KSM)
    assert record.entries(server) == []


def test_the_record_is_readable_json_with_sorted_keys():
    noted = [{"path": "b", "kind": "text", "text": "1"}]
    assert record.as_bytes(noted) == b'[\n {\n  "kind": "text",\n  "path": "b",\n  "text": "1"\n }\n]\n'
    assert json.loads(record.as_bytes([])) == []


def test_a_record_that_is_not_json_is_refused(server):
    server.put(record.RECORD, "{")
    with pytest.raises(HostError) as refused:
        record.entries(server)
    assert str(refused.value).startswith("/var/lib/sailloft/gpu_host_before.json is not JSON (")
    assert str(refused.value).endswith("); restore the host manually, and remove the file")
