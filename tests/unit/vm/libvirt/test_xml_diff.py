# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""libvirt/inactive.xml and live.xml are the XML that libvirt 9.0.0 wrote for this plan on the emulated server.

Only their metadata is newer: it is the plan's as libvirt 11.3 writes it back (test driver).
"""

from __future__ import annotations

from typing import Any

import pytest
from libvirt_definitions import libvirts, wanted

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.xml_diff import (
    acted_on,
    differences,
    side_by_side,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import holdings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import QEMU_NAMESPACE


def paths(found: list[Any]) -> dict[str, tuple[Any, Any]]:
    return {item.path: (item.wanted, item.have) for item in found}


@pytest.mark.parametrize("name", ["inactive", "live"])
def test_additions_of_libvirt_are_not_differences(name: str) -> None:
    assert differences(wanted(), libvirts(name)) == []


@pytest.mark.parametrize("name", ["inactive", "live"])
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"vcpus": 4}, {"vcpu": ("4", "2")}),
        ({"pin_cpus": False}, {"cputune/vcpupin[0]": (None, "present"), "cputune/emulatorpin": (None, "present")}),
        ({"lock_memory": False}, {"memoryBacking/locked": (None, "present")}),
        ({"huge_page_mib": 0}, {"memoryBacking/hugepages": (None, "present")}),
        (
            {"huge_page_mib": 1024, "memory_mib": 2048},
            {"memoryBacking/hugepages/page[0-1]/@size": ("1048576", "2048")},
        ),
        ({"strict_memory": False}, {"numatune/memory": (None, "present"), "numatune/memnode[1]": (None, "present")}),
        ({"iothreads": 0}, {"iothreads": (None, "1"), "cputune/iothreadpin[1]": (None, "present")}),
        ({"memory_mib": 2048}, {"memory": ("2097152", "1048576"), "cpu/numa/cell[0]/@memory": ("1048576", "524288")}),
        ({"physical_address_bits": "off"}, {"cpu/maxphysaddr": (None, "present")}),
        ({"physical_address_bits": "39"}, {"cpu/maxphysaddr/@mode": ("emulate", "passthrough")}),
        ({"firmware": "efi"}, {"os/@firmware": ("efi", None)}),
        ({"guest_iommu": True}, {"devices/iommu": ("present", None), "features/ioapic": ("present", None)}),
        ({"accelerator": "qemu"}, {"@type": ("qemu", "kvm"), "cpu/@mode": ("maximum", "host-passthrough")}),
        ({"boot": None}, {"os/kernel": (None, "/boot/vmlinuz-6.1.0-56-amd64"), "os/cmdline": (None, "console=ttyS0")}),
        ({"interfaces": []}, {"devices/interface[52:54:00:ea:97:99]": (None, "present")}),
        ({"disks": [{"path": "/a"}]}, {"devices/disk[vda]": ("present", None)}),
        ({"mmio_window_mib": 65536}, {"devices/controller[pci,0]/pcihole64": ("67108864", "33554432")}),
        (
            {"console_log": "/tmp/log"},
            {"devices/serial[0]/log/@file": ("/tmp/log", "/var/log/libvirt/qemu/vm1-console.log")},
        ),
        (
            {"nics": {"per_gpu": 1}},
            {"devices/hostdev[0000:14:00.0]": (None, "present"), "devices/hostdev[0000:84:00.0]": (None, "present")},
        ),
        (
            {"nics": {"addresses": ["14:00.0", "84:00.0", "15:10.2", "85:10.0"]}},
            {"devices/hostdev[0000:15:10.2]": ("present", None), "devices/hostdev[0000:15:10.0]": (None, "present")},
        ),
    ],
)
def test_a_change_of_each_setting_is_a_difference(name: str, changes: dict[str, Any], expected: dict[str, Any]) -> None:
    found = paths(differences(wanted(**changes), libvirts(name)))
    assert expected.items() <= found.items(), found


def test_a_missing_element_is_one_difference() -> None:
    found = differences(wanted(disks=[{"path": "/a"}]), libvirts("inactive"))
    assert [item.path for item in found if item.path.startswith("devices/disk")] == ["devices/disk[vda]"]


def test_manual_additions_are_differences() -> None:
    by_hand = libvirts("inactive").replace(
        "</devices>",
        "<disk type='file' device='disk'><source file='/x'/><target dev='vdz' bus='virtio'/></disk></devices>",
    )
    found = differences(wanted(), by_hand.replace("<locked/>", "<locked/><nosharepages/>"))
    assert paths(found) == {"devices/disk[vdz]": (None, "present"), "memoryBacking/nosharepages": (None, "present")}


@pytest.mark.parametrize(
    ("addition", "expected"),
    [
        # Additions to an element that a plan writes are undone, and so are those that change the machine.
        (
            ("<driver name='vfio'/>", "<driver name='vfio' iommufd='yes'/>"),
            ["devices/hostdev[0000:13:00.0]/driver/@iommufd"],
        ),
        (
            ("</devices>", "</devices><qemu:override xmlns:qemu='{q}'><qemu:device alias='x'/></qemu:override>"),
            ["qemu:override"],
        ),
        (
            ("</devices>", "</devices><qemu:commandline xmlns:qemu='{q}'><qemu:arg value='-S'/></qemu:commandline>"),
            ["qemu:commandline"],
        ),
        (("<driver name='vfio'/>", "<driver name='vfio'/><rom bar='off'/>"), ["devices/hostdev[0000:13:00.0]/rom"]),
        (("<locked/>", "<locked/><locked/>"), ["memoryBacking/locked[2]"]),
        (
            ("<vcpupin vcpu='0' cpuset='1'/>", "<vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='0' cpuset='7'/>"),
            ["cputune/vcpupin[0][2]"],
        ),
        (("<acpi/>", "<acpi/><kvm><hidden state='on'/></kvm>"), ["features/kvm"]),
        (("</cputune>", "<cachetune vcpus='0'/></cputune>"), ["cputune/cachetune"]),
        (("<memballoon model='none'/>", "<memballoon model='none'/><tpm model='tpm-crb'/>"), ["devices/tpm"]),
        (
            ("<input type='mouse' bus='ps2'>", "<input type='tablet' bus='usb'/><input type='mouse' bus='ps2'>"),
            ["devices/input[tablet,usb]"],
        ),
    ],
)
def test_an_addition_that_changes_the_machine_is_undone(addition: tuple[str, str], expected: list[str]) -> None:
    before, after = addition
    changed = libvirts("live").replace(before, after.replace("{q}", QEMU_NAMESPACE), 1)
    found = differences(wanted(), changed)
    assert [item.path for item in found] == expected
    assert acted_on(found) == found


@pytest.mark.parametrize(
    ("addition", "expected"),
    [
        (("<on_reboot>restart", "<on_reboot>destroy"), ["on_reboot"]),
        (("<clock offset='utc'/>", "<clock offset='localtime'/>"), ["clock/@offset"]),
        (("<clock offset='utc'/>", "<clock offset='utc'><timer name='rtc'/></clock>"), ["clock/timer[rtc]"]),
        (("<uuid>", "<later>that nobody knows yet</later><uuid>"), ["later"]),
        (("<topology sockets", "<topology books='1' sockets"), ["cpu/topology/@books"]),
    ],
)
def test_an_addition_that_may_be_libvirts_is_reported_as_unknown(
    addition: tuple[str, str], expected: list[str]
) -> None:
    found = differences(wanted(), libvirts("live").replace(*addition, 1))
    assert [item.path for item in found if item.unknown] == expected


def test_the_number_and_order_of_qemu_arguments_are_compared() -> None:
    """QEMU's arguments are a list: their number and their order matter."""
    two = ("-device", "a"), ("-device", "b")

    def arguments(*pairs: tuple[str, str]) -> str:
        lines = "".join(f"<qemu:arg value='{text}'/>" for pair in pairs for text in pair)
        return f"<domain xmlns:qemu='{QEMU_NAMESPACE}'><qemu:commandline>{lines}</qemu:commandline></domain>"

    assert differences(arguments(*two), arguments(*two)) == []
    assert [item.path for item in differences(arguments(*two), arguments(two[0]))] == [
        "qemu:commandline/qemu:arg[3]",
        "qemu:commandline/qemu:arg[4]",
    ]
    assert [item.path for item in differences(arguments(two[0]), arguments(*two))] == [
        "qemu:commandline/qemu:arg[3]",
        "qemu:commandline/qemu:arg[4]",
    ]
    assert [item.path for item in differences(arguments(*two), arguments(two[1], two[0]))] == [
        "qemu:commandline/qemu:arg[2]/@value",
        "qemu:commandline/qemu:arg[4]/@value",
    ]


def test_an_interface_of_a_bridged_network_does_not_differ_while_it_runs() -> None:
    """libvirt reports it as an interface of type bridge while the domain runs (virDomainNetDefFormat)."""
    asked = wanted(interfaces=[{"source": "rails"}])
    source = "<source network='rails' portid='5d6a' bridge='br-rails'/><target dev='vnet0'/>"
    runs = libvirts("live").replace("<interface type='user'>", f"<interface type='bridge'>{source}")
    assert differences(asked, runs) == []
    assert paths(differences(asked, runs.replace("network='rails'", "network='other'"))) == {
        "devices/interface[52:54:00:ea:97:99]/source/@network": ("rails", "other")
    }


def test_any_q35_version_is_accepted_unless_one_is_requested() -> None:
    for version in ("pc-q35-10.0", "pc-q35-rhel9.4.0", "pc-q35-noble", "pc-q35-jammy-hpb"):
        assert differences(wanted(), libvirts("inactive").replace("pc-q35-7.2", version)) == []
        assert differences(wanted(machine=version), libvirts("inactive").replace("pc-q35-7.2", version)) == []
    assert paths(differences(wanted(machine="pc-q35-8.2"), libvirts("live"))) == {
        "os/type/@machine": ("pc-q35-8.2", "pc-q35-7.2")
    }
    other = libvirts("inactive").replace("pc-q35-7.2", "pc-i440fx-7.2")
    assert paths(differences(wanted(), other)) == {"os/type/@machine": ("q35", "pc-i440fx-7.2")}


def test_the_firmware_of_a_running_domain_is_read_from_its_image() -> None:
    image = "<loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE_4M.fd</loader></os>"
    running = libvirts("live").replace("</os>", image)
    assert "os/@firmware" not in paths(differences(wanted(firmware="efi"), running))
    assert paths(differences(wanted(), running))["os/@firmware"] == (None, "efi")
    # The firmware that libvirt chose is the requested one, unless it verifies what it boots.
    assert differences(wanted(firmware="efi"), running) == []
    secure = running.replace("<loader ", "<loader secure='yes' ")
    assert list(paths(differences(wanted(firmware="efi"), secure))) == ["os/firmware"]


def test_the_diff_shows_values_before_and_after() -> None:
    lines = side_by_side(differences(wanted(vcpus=4, lock_memory=False), libvirts("inactive")))
    assert "vcpu = 4\n" in lines["after"]
    assert "vcpu = 2\n" in lines["before"]
    assert "memoryBacking/locked = present\n" in lines["before"]
    assert "locked" not in lines["after"]


def test_holdings_are_read_from_libvirts_xml() -> None:
    held = holdings(libvirts("inactive"))
    assert held.devices == [
        f"0000:{address}" for address in ("13:00.0", "14:00.0", "15:10.0", "83:00.0", "84:00.0", "85:10.0")
    ]
    assert (held.cpus, held.memory_mib, held.page_mib) == ([1, 5], {0: 512, 1: 512}, 2)
