# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One entry of the record at a time: its name, the command that restores it, and when nothing is done."""

from __future__ import annotations

import base64
from hashlib import sha256

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import boot_loader
from ansible_collections.sailloft.fleet.plugins.module_utils.host.undo import record, restore

GPU, NIC = "0000:13:00.0", "0000:14:00.0"
KSM, HUGE = "/sys/kernel/mm/ksm/run", "/sys/kernel/mm/transparent_hugepage/enabled"
CONFIG = f"/sys/bus/pci/devices/{GPU}/config"  # begins with the bytes f4 1a 43 10
OVERRIDE = f"/etc/driverctl.d/pci-{GPU}"
FILE = "/etc/x.conf"


def file(path, before, *written):
    return {
        "kind": "file",
        "path": path,
        "base64": None if before is None else base64.b64encode(before).decode(),
        "written": [sha256(content).hexdigest() for content in written],
    }


def override(driver, bound):
    return {"kind": "override", "path": OVERRIDE, "address": GPU, "driver": driver, "bound": bound}


def firmware(name, value):
    return {"kind": "firmware", "path": f"{NIC} {name}", "address": NIC, "value": value}


def register(offset, before):
    return {"kind": "register", "path": CONFIG, "offset": offset, "hex": before}


@pytest.fixture
def used(server):
    """The server after changes that the entries below restore."""
    server.put(KSM, "0\n")
    server.put(HUGE, "always [madvise] never\n")
    server.put(FILE, "new")
    server.put("/proc/mounts", "\nhugetlbfs /dev/hugepages-1024M hugetlbfs rw 0 0\n")
    server.firmware[NIC] = {
        "ADVANCED_PCI_SETTINGS": ["False(0)"] * 3,
        "PCI_WR_ORDERING": ["per_mkey(0)", "per_mkey(0)", "force_relax(1)"],
        "NUM_OF_VFS": ["0", "8", "8"],
    }
    server.put(OVERRIDE, "vfio-pci\n")
    return server


def ensure(server, *entries, check=False):
    """Restore these entries; return the outcome, and the effects without those on the record itself."""
    server.put(record.RECORD, record.as_bytes([*entries]))
    server.effects.clear()
    outcome = restore.ensure(server, check)
    return outcome, [effect for effect in server.effects if record.RECORD not in effect]


RESTORED = [
    ({"kind": "text", "path": KSM, "text": "1"}, KSM, "0", "1", f"poke {KSM}"),
    ({"kind": "text", "path": HUGE, "text": "[always] madvise never"}, HUGE, "madvise", "always", f"poke {HUGE}"),
    (register(0, "0102"), f"{CONFIG} at 0x0", "f41a", "0102", f"poke {CONFIG}"),
    (register(2, "01"), f"{CONFIG} at 0x2", "43", "01", f"poke {CONFIG}"),
    (file(FILE, b"old", b"x", b"new"), FILE, "new", "old", f"replace {FILE}"),
    (file(FILE, None, b"new"), FILE, "new", None, f"remove {FILE}"),
    (override(None, "nvidia"), OVERRIDE, "vfio-pci", None, f"driverctl unset-override {GPU}"),
    (override("nvidia", "nvidia"), OVERRIDE, "vfio-pci", "nvidia", f"driverctl set-override {GPU} nvidia"),
    ({"kind": "mount", "path": "/dev/hugepages-1024M"}, "/dev/hugepages-1024M", True, None, "umount {}"),
    (
        firmware("PCI_WR_ORDERING", "per_mkey(0)"),
        f"{NIC} PCI_WR_ORDERING",
        "force_relax(1)",
        "per_mkey(0)",
        f"mstconfig -d {NIC} -y set PCI_WR_ORDERING=0",
    ),
    (firmware("NUM_OF_VFS", "16"), f"{NIC} NUM_OF_VFS", "8", "16", f"mstconfig -d {NIC} -y set NUM_OF_VFS=16"),
]


@pytest.mark.parametrize(("entry", "name", "now", "before", "effect"), RESTORED)
def test_an_entry_is_restored_with_one_command(used, entry, name, now, before, effect):
    predicted, effects = ensure(used, entry, check=True)
    assert effects == []
    assert used.exists(record.RECORD)
    outcome, effects = ensure(used, entry)
    assert (outcome.before, outcome.after) == ({name: now}, {name: before})
    assert predicted == outcome
    assert effects[:1] == [effect.format(entry["path"])]
    assert not used.exists(record.RECORD)


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "text", "path": KSM, "text": "0"},
        {"kind": "text", "path": HUGE, "text": "always [madvise] never"},
        {"kind": "text", "path": "/sys/gone", "text": "1"},
        register(0, "f41a"),
        register(2, "43"),
        {**register(0, "ff"), "path": "/sys/bus/pci/devices/0000:77:00.0/config"},
        file(FILE, b"new", b"x"),
        file("/etc/y.conf", None, b"x"),
        override("vfio-pci", "vfio-pci"),
        {"kind": "mount", "path": "/dev/hugepages-2M"},
        firmware("NUM_OF_VFS", "8"),
        firmware("NO_SUCH", "8"),
        {**firmware("NUM_OF_VFS", "16"), "address": "0000:77:00.0"},
    ],
)
def test_an_object_that_has_its_former_state_or_is_gone_is_left_alone(used, entry):
    outcome, effects = ensure(used, entry)
    assert outcome == Outcome(facts={"failures": [], "reboot_required": False})
    assert effects == []
    assert not used.exists(record.RECORD)


@pytest.mark.parametrize(
    ("driver", "bound", "restored"),
    [("vfio-pci", "nvidia", True), ("vfio-pci", "vfio-pci", False), ("nvidia", "nvidia", False)],
)
def test_a_device_that_was_bound_without_a_file_is_released(used, driver, bound, restored):
    used.remove(OVERRIDE)
    used.bind(GPU, driver)
    outcome, effects = ensure(used, override(None, bound))
    assert outcome.before == ({OVERRIDE: "vfio-pci"} if restored else {})
    assert effects[:1] == [f"driverctl unset-override {GPU}"] * restored


def test_the_last_change_is_restored_first(used):
    entries = [entry for entry, *_rest in (RESTORED[0], RESTORED[4], RESTORED[8])]
    assert ensure(used, *entries)[1] == ["umount /dev/hugepages-1024M", f"replace {FILE}", f"poke {KSM}"]


def test_entries_that_cannot_be_restored_are_kept_in_order(used):
    kept = [file(FILE, b"old", b"x"), {"kind": "text", "path": KSM, "text": "1"}, file("/etc/y.conf", b"old", b"x")]
    outcome, effects = ensure(used, *kept)
    assert effects == [f"poke {KSM}"]
    assert record.entries(used) == [kept[0], kept[2]]
    assert outcome.failed.splitlines() == [
        Mentions(path, "/var/lib/sailloft/gpu_host_before.json") for path in ("/etc/y.conf", FILE)
    ]
    assert outcome.facts == {"failures": outcome.failed.splitlines(), "reboot_required": False}


def test_a_file_that_was_removed_meanwhile_and_was_empty_is_made_again(used):
    outcome, effects = ensure(used, file("/etc/y.conf", b"", b""))
    assert (outcome.before, outcome.after) == ({"/etc/y.conf": None}, {"/etc/y.conf": ""})
    assert effects == ["replace /etc/y.conf"]


def test_restored_firmware_waits_for_the_next_boot(used):
    outcome, _effects = ensure(used, firmware("NUM_OF_VFS", "16"))
    assert outcome.pending == [Mentions("firmware", NIC, "NUM_OF_VFS", "16")]
    assert outcome.facts["reboot_required"] is True


@pytest.mark.parametrize(
    "path",
    [
        boot_loader.DEFAULTS,
        boot_loader.DROP_IN,
        boot_loader.FOR_NEW_KERNELS,
        boot_loader.ENVIRONMENT,
        f"{boot_loader.ENTRIES}/1.conf",
    ],
)
def test_a_restored_file_of_the_boot_loader_waits_for_the_next_boot(used, path):
    used.put(boot_loader.DEFAULTS, "new")
    used.put(path, "new")
    pending = ["the running kernel keeps its arguments until the next boot: reboot"]
    outcome, effects = ensure(used, file(path, b"GRUB_CMDLINE_LINUX=''\nGRUB_CMDLINE_LINUX_DEFAULT=''\n"), check=True)
    assert (outcome.pending, effects) == (pending, [])
    used.put(boot_loader.DEFAULTS, "GRUB_CMDLINE_LINUX='a'\nGRUB_CMDLINE_LINUX_DEFAULT='b'\n")
    now = used.read_bytes(path)
    outcome, effects = ensure(used, file(path, b"GRUB_CMDLINE_LINUX=''\nGRUB_CMDLINE_LINUX_DEFAULT=''\n", now))
    assert (outcome.pending, effects) == (pending, [f"replace {path}", "update-grub"])


def test_a_restored_file_without_any_boot_loader_generates_nothing(used):
    used.put(boot_loader.FOR_NEW_KERNELS, "new")
    assert ensure(used, file(boot_loader.FOR_NEW_KERNELS, None, b"new"))[1] == [f"remove {boot_loader.FOR_NEW_KERNELS}"]


def test_running_guests_are_all_named(used):
    used.domains = ["train1", "train2"]
    with raises(HostError, "guests", "train1", "train2"):
        ensure(used, RESTORED[0][0])
    assert used.exists(record.RECORD)
