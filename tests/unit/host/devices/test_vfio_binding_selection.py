# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Selection, messages and commands of the binding to vfio-pci."""

from __future__ import annotations

import os

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import vfio_binding

GPU, NIC, PF, DISK = "0000:13:00.0", "0000:14:00.0", "0000:15:00.0", "0000:00:02.0"
VF = "0000:15:10.0"


def ensure(server, devices, release=(), check=False, **more):
    data = {"devices": list(devices), "release": list(release), **more}
    return vfio_binding.ensure(server, server.host(), data, check)


def refused(server, devices, release=()):
    with pytest.raises(SailloftError) as error:
        ensure(server, devices, release)
    assert server.effects == []
    return str(error.value)


def drive(server, address, disk, noted="E:ID_MODEL=x\n"):
    """Make a function an NVMe drive with one block device."""
    place = server.directory(address)
    server.put(f"{place}/uevent", "PCI_CLASS=10802\nPCI_ID=144D:A80A\nDRIVER=nvme\n")
    server.put(f"{place}/block/{disk}/dev", f"259:{disk[4]}\n")
    server.link(f"/sys/class/block/{disk}", f"{place}/block/{disk}")
    server.put(f"/run/udev/data/b259:{disk[4]}", noted)


def test_the_commands_bind_first_and_then_release(server):
    outcome = ensure(server, [GPU, NIC])
    assert server.commands == [f"driverctl set-override {one} vfio-pci" for one in (GPU, NIC)]
    assert outcome.after == dict.fromkeys((GPU, NIC), "vfio-pci, vfio-pci at boot")
    assert outcome.facts == {
        "bound": [GPU, NIC],
        "drivers_off": {"modules": [], "reasons": []},
        "reset_failures": {},
        "unused_drives": [],
    }
    server.commands.clear()
    outcome = ensure(server, [PF], [GPU, NIC, DISK])
    assert server.commands == [
        f"driverctl set-override {PF} vfio-pci",
        f"driverctl unset-override {GPU}",
        f"driverctl unset-override {NIC}",
    ]
    assert outcome.before == {
        PF: Mentions("igb"),
        GPU: "vfio-pci, vfio-pci at boot",
        NIC: "vfio-pci, vfio-pci at boot",
    }


def test_a_device_that_is_only_saved_as_bound_is_released(server):
    server.put(f"/etc/driverctl.d/pci-{NIC}", "vfio-pci\n")
    server.open_by(99, "/dev/vfio/5", ["qemu", "-name", "train1"])  # it holds the group, and not with this driver
    outcome = ensure(server, [], [NIC])
    assert (outcome.before, outcome.after) == ({NIC: "igb, vfio-pci at boot"}, {NIC: "its own driver"})
    assert server.commands == [f"driverctl unset-override {NIC}"]


def test_a_device_without_a_driver_is_bound(server):
    server.bind(GPU, None)
    assert ensure(server, [GPU], check=True).before == {GPU: Mentions("driver")}


@pytest.mark.parametrize(("driver", "named"), [("nvidia", "nvidia"), (None, "nothing")])
def test_a_device_that_driverctl_did_not_bind_is_an_error(server, driver, named):
    server._driverctl = lambda _argv, _stdin: server.bind(GPU, driver) or ""
    with raises(HostError, "vfio_binding", GPU, named, "vfio-pci"):
        ensure(server, [GPU])


@pytest.mark.parametrize(
    ("devices", "release", "message"),
    [
        ([GPU, NIC], ["gpu", NIC], Mentions("vfio_binding", GPU, NIC)),
        (
            ["0000:12:00.0", "0000:12:01.0"],
            [],
            Mentions("vfio_binding", "0000:12:00.0", "0000:12:01.0"),
        ),
        (
            [DISK],
            [],
            Mentions("vfio_binding", DISK, "/"),
        ),
        (["0000:77:00.0"], [], Mentions("vfio_binding.devices", "0000:77:00.0")),
        ([], ["0000:77:00.0"], Mentions("vfio_binding.release", "0000:77:00.0")),
    ],
)
def test_a_wrong_selection_is_refused(server, devices, release, message):
    found = refused(server, devices, release)
    assert found == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "vfio_binding: devices is missing; set it"),
        (
            {"devices": [], "keep_driver_off": True},
            "vfio_binding: unknown setting 'keep_driver_off'; did you mean keep_drivers_off?",
        ),
    ],
)
def test_a_misspelt_or_missing_setting_is_refused(data, message):
    with pytest.raises(HostError) as error:
        vfio_binding.wanted(data, None)
    assert str(error.value) == message


def test_a_function_with_vfs_is_named_with_their_number(server):
    server.poke(f"/sys/bus/pci/devices/{NIC}/sriov_numvfs", "1")
    server.effects.clear()
    assert refused(server, [NIC]) == (Mentions("vfio_binding", NIC, "1", "VFs"))


def test_an_iommu_group_is_named_with_its_other_members(server):
    for address in (NIC, PF, DISK):
        server.link(f"{server.directory(address)}/iommu_group", "/sys/kernel/iommu_groups/4")
    server.bind(NIC, None)
    server.bind(PF, "vfio-pci")  # it is bound already
    assert refused(server, [GPU]) == (Mentions("vfio_binding", GPU, "IOMMU", "4", DISK, "virtio-pci"))


def test_a_device_without_a_group_among_others_with_one_is_refused(server):
    os.unlink(server.path(f"{server.directory(GPU)}/iommu_group"))
    assert refused(server, [GPU]) == (Mentions("vfio_binding", GPU, "IOMMU"))


def test_an_iommu_that_is_off_leaves_everything_to_the_next_boot(server):
    ensure(server, [NIC])
    server.effects.clear()
    for address in server.host().by_address():
        os.unlink(server.path(f"{server.directory(address)}/iommu_group"))
    outcome = ensure(server, [GPU], [NIC])
    assert (outcome.before, outcome.after, outcome.facts["bound"]) == ({}, {}, [])
    assert outcome.pending == [Mentions("vfio_binding", "IOMMU", "vfio-pci")]
    assert server.effects == []


def test_a_device_in_use_is_not_released(server):
    ensure(server, [NIC])
    server.open_by(99, "/dev/vfio/5", ["qemu", "-name", "train1"])
    server.effects.clear()
    assert refused(server, [GPU], [NIC]) == (Mentions("vfio_binding", NIC, "train1", "99"))


def test_a_device_that_a_process_has_open_or_mapped_is_not_bound(server):
    drive(server, NIC, "nvme1n1")
    # A test cannot make device files: here the number of /dev/zero is that of the drive's /dev/ng1n1.
    server.link("/sys/dev/char/1:5", f"{server.directory(NIC)}/nvme/nvme1/ng1n1")
    server.open_by(7, "/dev/zero", ["fio", "--ioengine=io_uring_cmd"])
    assert f"{NIC}: process 7 (fio)" in refused(server, [GPU, NIC])
    server.remove("/proc/7/fd/7")
    server.effects.clear()
    server.put("/proc/7/maps", f"7f00-7f10 rw-s 00000000 00:15 2202     {server.directory(NIC)}/resource0\n")
    assert f"{NIC}: process 7 (fio)" in refused(server, [GPU, NIC])


def test_nvswitches_that_fabric_manager_has_open_are_not_bound_with_the_gpus(server):
    uevent = "PCI_CLASS=68000\nPCI_ID=10DE:22A3\nPCI_SUBSYS_ID=10DE:1796\n"
    server.put(f"{server.directory(NIC)}/uevent", uevent)
    server.bind(NIC, "nvidia-nvswitch")
    server.open_by(77, "/dev/nvidia-nvswitch0", ["/usr/bin/nv-fabricmanager"])
    assert f"{NIC}: process 77 (nv-fabricmanager)" in refused(server, [GPU])


def test_each_drive_is_selected_once(server):
    drive(server, NIC, "nvme1n1")
    drive(server, PF, "nvme2n1")
    drive(server, DISK, "nvme0n1")  # the host's own
    outcome = ensure(server, [PF, "nvme:unused"], check=True)
    assert outcome.facts["bound"] == [PF, NIC]
    assert outcome.facts["unused_drives"] == [NIC, PF]
    assert ensure(server, [PF], check=True).facts["unused_drives"] == []


def test_a_drive_is_unused_only_if_all_of_its_disks_are(server):
    drive(server, PF, "nvme2n1")
    drive(server, PF, "nvme3n1", "E:ID_FS_TYPE=ext4\n")
    assert ensure(server, ["nvme:unused"], check=True).facts["bound"] == []
    server.put("/run/udev/data/b259:3", "E:ID_MODEL=y\n")
    assert ensure(server, ["nvme:unused"], check=True).facts["bound"] == [PF]


def test_a_drive_without_a_block_device_is_unused_only_if_it_is_bound(server):
    server.put(f"{server.directory(PF)}/uevent", "PCI_CLASS=10802\nPCI_ID=144D:A80A\n")
    assert ensure(server, ["nvme:unused"], check=True).facts["bound"] == []
    server.bind(PF, "vfio-pci")
    assert ensure(server, ["nvme:unused"], check=True).facts["bound"] == [PF]


def test_a_drive_without_a_number_is_not_unused(server):
    drive(server, PF, "nvme2n1")
    server.put("/run/udev/data/bNone", "")
    server.remove(f"{server.directory(PF)}/block/nvme2n1/dev")
    assert ensure(server, ["nvme:unused"], check=True).facts["bound"] == []


def test_without_a_host_only_the_form_is_checked(server):
    data = {"devices": ["gpu", "nvme:unused", "0000:77:00.0"], "release": ["10de:2330"]}
    assert vfio_binding.wanted(data, None) == ([], [])
    drive(server, PF, "nvme2n1")
    assert vfio_binding.wanted({"devices": ["nvme:unused"]}, server.host()) == ([], [])


@pytest.mark.parametrize(
    ("data", "facts", "saved"),
    [
        ({"devices": ["nvme:unused", "gpu"]}, {"unused_drives": [PF]}, ["gpu", PF]),
        ({"devices": [PF, "nvme:unused"]}, {"unused_drives": [PF, NIC]}, [PF, NIC]),
        ({"devices": ["nvme:unused"]}, {"unused_drives": []}, []),
        ({"devices": ["nvme:unused"]}, {}, ["nvme:unused"]),
        ({"devices": ["gpu"]}, {"unused_drives": [PF]}, ["gpu"]),
    ],
)
def test_unused_drives_are_saved_by_address(data, facts, saved):
    assert vfio_binding.to_save(data, facts) == {"devices": saved}


def test_a_vf_that_does_not_exist_yet_is_no_device_of_a_guest(server):
    host = server.host()
    given = {"devices": ["nvme:unused", VF, GPU, "nic"], "release": [NIC, DISK]}
    with pytest.raises(HostError, match=f"{NIC}"):
        vfio_binding.for_guests(given, host)
    found = vfio_binding.for_guests({**given, "devices": ["nvme:unused", VF, GPU]}, host)
    assert [function.address for function in found] == [GPU]
    with raises(SailloftError, "vfio_binding.devices", "no device 10de:9999"):
        vfio_binding.for_guests({"devices": ["10de:9999"]}, host)


@pytest.mark.parametrize(
    ("data", "modules"),
    [
        ({"devices": ["gpu"]}, []),
        ({"devices": ["gpu"], "keep_drivers_off": False}, []),
        ({"devices": ["nvme:unused"], "keep_drivers_off": True}, []),
        ({"devices": ["0000:13:00.0"], "keep_drivers_off": True}, []),
        ({"devices": ["10de:2330"], "keep_drivers_off": True}, ["nouveau", "nova_core", "nvidia", "nvidiafb"]),
        ({"devices": ["15b3:*"], "keep_drivers_off": True}, []),
    ],
)
def test_drivers_are_kept_off_any_host_only_by_kind_or_vendor(data, modules):
    assert vfio_binding.kept_off_on_any_host(data) == modules


def test_drivers_of_all_vendors_are_kept_off_for_every_gpu():
    found = vfio_binding.kept_off_on_any_host({"devices": ["gpu"], "keep_drivers_off": True})
    assert {"nouveau", "nvidia", "amdgpu"} <= set(found)


def test_kept_off_drivers_are_facts(server):
    facts = ensure(server, [GPU], keep_drivers_off=True, check=True).facts["drivers_off"]
    assert facts == {"modules": ["nouveau", "nova_core", "nvidia", "nvidiafb"], "reasons": []}
