# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Undo everything that the role sets, and compare the server byte for byte."""

from __future__ import annotations

import contextlib
import copy

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host import concerns
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import persistence, unit
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import nic_firmware
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import (
    boot_loader,
    kernel_arguments,
    kernel_settings,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.host.undo import record, restore

GPU, NIC, PF = "0000:13:00.0", "0000:14:00.0", "0000:15:00.0"
SETTINGS = {
    "hugepages": {"pages": [{"node": 0, "size_mib": 1024, "count": 1}, {"node": 1, "size_mib": 2, "count": 64}]},
    "sriov": {
        "functions": [
            {"devices": [PF], "count": 2, "drivers_autoprobe": False, "derive_addresses": True, "max_tx_mbps": 40000},
        ]
    },
    "vfio_binding": {"devices": ["gpu", NIC]},
    "pci_tuning": {"settings": [{"devices": ["gpu"], "max_read_request_bytes": 4096}]},
    "kernel_settings": {"ksm": False, "transparent_huge_pages": "madvise"},
}
ARGUMENTS = {"iommu": "passthrough", "vfio_binding": {"devices": ["gpu"], "keep_drivers_off": True}}
FIRMWARE = {"settings": [{"devices": [NIC], "values": {"ATS_ENABLED": True}}]}


def arrange(server):
    """Give the server the files to be set, and a GRUB configuration."""
    server.put(boot_loader.DEFAULTS, 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n')
    server.run(["update-grub"])
    server.put(kernel_settings.KSM, "1")
    server.put(kernel_settings.HUGE, "[always] madvise never\n")
    # The kernel prints these with a line end. Without it a restored file would have none, although no reader notices
    # that.
    for node, size in ((0, 1048576), (1, 2048)):
        server.put(f"/sys/devices/system/node/node{node}/hugepages/hugepages-{size}kB/nr_hugepages", "0\n")
    for name, text in (("sriov_drivers_autoprobe", "1"), ("sriov_numvfs", "0")):
        server.put(f"{server.directory(PF)}/{name}", text)
    server.put(f"{server.directory(NIC)}/uevent", "PCI_CLASS=20000\nPCI_ID=15B3:1021\nDRIVER=igb\n")
    server.firmware[NIC] = {
        "ADVANCED_PCI_SETTINGS": ["False(0)", "False(0)", "False(0)"],
        "ATS_ENABLED": ["False(0)", "False(0)", "False(0)"],
    }


def apply(server):
    """Apply all settings as the role does."""
    system = record.Remembering(server)
    kernel_arguments.ensure(system, ARGUMENTS)
    nic_firmware.ensure(system, server.host(), FIRMWARE)
    done = concerns.ensure(system, SETTINGS)
    assert concerns.failures(done) == {}
    unit.ensure(system, persistence.SERVICE, concerns.to_save(SETTINGS, done, None), python="/usr/bin/python3")


def settled(state):
    """Return the state without irrelevant differences: line ends of the kernel's files, and files that mounts leave."""
    # The test makes drivers' files when it binds a device, and a boot clears /run.
    passing = ("dev/hugepages", "sys/bus/pci/drivers/", "run/sailloft/")
    files = {path: text for path, text in state["files"].items() if not path.startswith(passing)}
    kernels = ("sys/", "proc/")
    files = {
        path: text.strip() if path.startswith(kernels) and isinstance(text, bytes) and "config" not in path else text
        for path, text in files.items()
    }
    # The kernel would show its choice in brackets; the test's file has the text that was written.
    huge = kernel_settings.HUGE.lstrip("/")
    files[huge] = b"always" if files[huge] == b"[always] madvise never" else files[huge]
    return {
        "firmware": copy.deepcopy(state["firmware"]),
        "files": files,
        "vfs": {name: vfs for name, vfs in state["vfs"].items() if vfs},
    }


def test_the_restored_host_is_identical_to_the_original(server):
    arrange(server)
    before = settled(server.state())
    apply(server)
    apply(server)
    assert settled(server.state()) != before
    predicted = restore.ensure(server, check=True)
    outcome = restore.ensure(server)
    assert (predicted.before, predicted.after, predicted.pending) == (outcome.before, outcome.after, outcome.pending)
    assert outcome.failed == ""
    after = settled(server.state())
    assert {path for path in before["files"] if before["files"][path] != after["files"].get(path)} == set()
    assert after == before
    assert not restore.ensure(server).changed


def test_changes_that_need_a_reboot_are_reported(server):
    arrange(server)
    apply(server)
    outcome = restore.ensure(server)
    assert outcome.facts["reboot_required"]
    assert sorted(outcome.pending) == [
        Mentions("firmware", NIC, "ATS_ENABLED", "False(0"),
        Mentions("until"),
    ]


def test_check_mode_changes_nothing(server):
    arrange(server)
    apply(server)
    state = server.state()
    assert restore.ensure(server, check=True).changed
    assert server.state() == state


def test_the_first_recorded_value_is_restored(server):
    arrange(server)
    system = record.Remembering(server)
    kernel_settings.ensure(system, {"transparent_huge_pages": "never"})
    server.put(kernel_settings.HUGE, "always madvise [never]\n")
    kernel_settings.ensure(system, {"transparent_huge_pages": "madvise"})
    server.put(kernel_settings.HUGE, "always [madvise] never\n")
    restore.ensure(server)
    assert server.read(kernel_settings.HUGE) == "always"


def test_restoring_is_refused_while_guests_run(server):
    arrange(server)
    apply(server)
    server.domains = ["train1"]
    with pytest.raises(HostError, match="train1"):
        restore.ensure(server)
    assert server.exists(persistence.UNIT_FILE)


def test_a_file_that_others_have_changed_is_kept_and_named(server):
    arrange(server)
    apply(server)
    server.put(boot_loader.DROP_IN, "# mine\n")
    outcome = restore.ensure(server)
    assert outcome.failed.startswith(f"{boot_loader.DROP_IN} was changed by others since it was written")
    assert server.read(boot_loader.DROP_IN) == "# mine"
    # All others are restored, and only this one remains in the record.
    assert [entry["path"] for entry in record.entries(server)] == [boot_loader.DROP_IN]
    assert server.read(kernel_settings.KSM) == "1"


def test_a_missing_device_is_not_restored(server):
    arrange(server)
    apply(server)
    server.remove("/sys/kernel/mm/ksm/run")
    outcome = restore.ensure(server)
    assert kernel_settings.KSM not in outcome.before
    assert outcome.failed == ""


def test_only_the_service_is_removed_on_a_host_without_a_record(server):
    arrange(server)
    unit.ensure(server, persistence.SERVICE, {}, python="/usr/bin/python3")
    before = server.read(boot_loader.DEFAULTS)
    assert restore.ensure(server).changed
    assert not server.exists(persistence.UNIT_FILE)
    assert server.read(boot_loader.DEFAULTS) == before


def test_an_unreadable_record_is_refused(server):
    server.put(record.RECORD, "{")
    with raises(HostError, "gpu_host_before.json", "JSON"):
        restore.ensure(server)


def test_a_killed_run_leaves_a_record_that_restores_all_settings(make_server):
    whole = make_server()
    arrange(whole)
    before = settled(whole.state())
    first = len(whole.effects)
    apply(whole)
    for place in range(first, len(whole.effects)):
        server = make_server()
        arrange(server)
        server.kill_at = place
        # The server raises KilledError, a BaseException, so that no code of ours catches it.
        with contextlib.suppress(BaseException):
            apply(server)
        server.kill_at = None
        assert restore.ensure(server).failed == ""
        assert settled(server.state()) == before, f"killed at place {place}"
