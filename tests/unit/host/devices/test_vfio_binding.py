# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import vfio_binding

GPU, NIC = "0000:13:00.0", "0000:14:00.0"


def ensure(server, devices=("gpu", NIC), release=(), check=False):
    return vfio_binding.ensure(server, server.host(), {"devices": list(devices), "release": list(release)}, check)


def test_devices_are_bound_now_and_at_boot(server):
    outcome = ensure(server)
    assert outcome.before == {GPU: Mentions("nvidia"), NIC: Mentions("igb")}
    assert server.link_name(f"/sys/bus/pci/devices/{GPU}/driver") == "vfio-pci"
    assert server.read(f"/etc/driverctl.d/pci-{NIC}") == "vfio-pci"
    assert not ensure(server).changed


def test_check_mode_does_nothing(server):
    predicted = ensure(server, check=True)
    assert server.effects == []
    done = ensure(server)
    assert (predicted.before, predicted.after, predicted.facts) == (done.before, done.after, done.facts)


def test_a_bound_device_is_made_persistent_without_being_bound_again(server):
    server.bind(GPU, "vfio-pci")
    outcome = ensure(server, [GPU])
    assert outcome.changed
    assert server.commands == []
    assert server.read(f"/etc/driverctl.d/pci-{GPU}") == "vfio-pci"


def test_a_released_device_gets_its_driver_back(server):
    ensure(server)
    outcome = ensure(server, [GPU], [NIC])
    assert outcome.after == {NIC: "its own driver"}
    assert server.link_name(f"/sys/bus/pci/devices/{NIC}/driver") == "igb"
    assert not ensure(server, [GPU], [NIC]).changed


def test_releasing_a_device_that_a_guest_uses_is_refused(server):
    ensure(server)
    server.open_by(99, "/dev/vfio/5", ["qemu", "-name", "guest=train1"])
    with pytest.raises(HostError, match=r"0000:14:00\.0.*train1.*99"):
        ensure(server, [GPU], [NIC])


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        (["0000:00:02.0"], Mentions("0000:00:02.0", "/")),
        (["0000:00:03.0"], Mentions("0000:00:03.0")),
        (["0000:77:00.0"], Mentions("0000:77:00.0")),
        (["10de:9999"], Mentions("10de:9999")),
        (["12:00.0"], Mentions("0000:12:00.0")),
    ],
)
def test_devices_that_cannot_be_bound_are_refused_before_anything_is_changed(server, devices, message):
    with pytest.raises(SailloftError) as error:
        ensure(server, [GPU, *devices])
    assert str(error.value) == message
    assert server.effects == []


def test_an_iommu_group_with_an_unlisted_member_is_refused(server):
    server.link(f"{server.directory(NIC)}/iommu_group", "/sys/kernel/iommu_groups/4")
    with raises(HostError, "0000:13:00.0", "IOMMU group 4", "0000:14:00.0", "igb"):
        ensure(server, [GPU])
    assert server.effects == []
    ensure(server, [GPU, NIC])


def test_a_management_display_is_not_a_gpu(server):
    server.put(f"{server.directory(NIC)}/uevent", "PCI_CLASS=30000\nPCI_ID=1A03:2000\n")
    assert ensure(server, ["gpu"]).facts["bound"] == [GPU]


def test_nvswitches_are_bound_only_with_all_gpus(server):
    server.put(f"{server.directory(NIC)}/uevent", "PCI_CLASS=68000\nPCI_ID=10DE:22A3\n")
    assert ensure(server, [GPU]).facts["bound"] == [GPU, NIC]
    assert ensure(server, [GPU], release=[NIC]).facts["bound"] == [GPU]
    # A second GPU remains with the host, and therefore the NVSwitch, too.
    server.put(f"{server.directory('0000:15:00.0')}/uevent", "PCI_CLASS=30200\nPCI_ID=10DE:2330\n")
    assert ensure(server, [GPU]).facts["bound"] == [GPU]


DRIVE = "0000:15:00.0"


def with_drive(server, noted="E:ID_MODEL=x\n"):
    """Make 0000:15:00.0 an NVMe drive, and also the host's own disk."""
    for address, disk, number in ((DRIVE, "nvme0n1", "259:0"), ("0000:00:02.0", "vda", "254:0")):
        place = server.directory(address)
        server.put(f"{place}/uevent", "PCI_CLASS=10802\nPCI_ID=144D:A80A\nDRIVER=nvme\n")
        server.put(f"{place}/block/{disk}/dev", f"{number}\n")
        server.link(f"/sys/class/block/{disk}", f"{place}/block/{disk}")
        server.put(f"/run/udev/data/b{number}", noted)


def test_only_empty_drives_count_as_unused(server):
    with_drive(server)
    assert ensure(server, ["nvme:unused"]).facts["bound"] == [DRIVE]
    assert ensure(server, ["nvme:unused"]).facts["unused_drives"] == [DRIVE]
    assert not ensure(server, ["nvme:unused"]).changed
    with pytest.raises(HostError, match=r"0000:00:02\.0"):
        ensure(server, ["nvme"])


@pytest.mark.parametrize(
    "noted", ["E:ID_FS_TYPE=zfs_member\n", "E:ID_MODEL=x\nE:ID_PART_TABLE_TYPE=gpt\n", "E:ID_FS_TYPE=LVM2_member\n"]
)
def test_a_drive_with_content_is_not_unused(server, noted):
    with_drive(server, noted)
    assert ensure(server, ["nvme:unused"]).facts["bound"] == []


def test_a_drive_with_partitions_or_unknown_to_udev_is_not_unused(server):
    with_drive(server)
    server.put(f"{server.directory(DRIVE)}/block/nvme0n1/nvme0n1p1/partition", "1\n")
    assert ensure(server, ["nvme:unused"]).facts["bound"] == []
    server.remove(f"{server.directory(DRIVE)}/block/nvme0n1/nvme0n1p1/partition")
    server.remove("/run/udev/data/b259:0")
    assert ensure(server, ["nvme:unused"]).facts["bound"] == []


def test_the_saved_settings_list_the_drives_that_the_play_selected():
    given = {"devices": ["gpu", "nvme:unused"], "keep_drivers_off": True}
    saved = vfio_binding.to_save(given, {"unused_drives": [DRIVE]})
    assert saved == {"devices": ["gpu", DRIVE], "keep_drivers_off": True}
    assert vfio_binding.to_save({"devices": ["gpu"]}, {"unused_drives": []}) == {"devices": ["gpu"]}


def test_resets_that_are_known_to_fail_are_named(server):
    assert ensure(server).facts["reset_failures"] == {}  # the kernel shows no reset methods
    server.put(f"{server.directory(GPU)}/reset_method", "flr bus\n")
    assert ensure(server).facts["reset_failures"] == {}
    server.put(f"{server.directory(GPU)}/uevent", "PCI_CLASS=30200\nPCI_ID=10DE:2BB5\nDRIVER=vfio-pci\n")
    assert list(ensure(server).facts["reset_failures"]) == [GPU]
    assert "reset method flr is known to fail" in ensure(server).facts["reset_failures"][GPU]
    server.put(f"{server.directory(GPU)}/reset_method", "bus\n")
    assert ensure(server).facts["reset_failures"] == {}
    server.put(f"{server.directory(GPU)}/reset_method", "\n")
    assert "no way to reset it" in ensure(server).facts["reset_failures"][GPU]


def test_a_function_with_vfs_is_not_bound(server):
    server.poke(f"/sys/bus/pci/devices/{NIC}/sriov_numvfs", "2")
    with pytest.raises(HostError, match=r"0000:14:00\.0.*2.*VFs"):
        ensure(server, [NIC])


def test_binding_without_an_iommu_is_pending_until_the_boot(server):
    for address in server.host().by_address():
        os.unlink(server.path(f"{server.directory(address)}/iommu_group"))
    outcome = ensure(server)
    assert not outcome.changed
    assert outcome.pending == [vfio_binding.NO_IOMMU]
    assert server.effects == []


def test_a_run_killed_at_any_point_is_completed_by_the_next_run(killed_anywhere):
    assert killed_anywhere(lambda server: None, ensure) == 4
