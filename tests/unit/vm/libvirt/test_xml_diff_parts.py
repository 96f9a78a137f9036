# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Small pieces of XML as statements, and whole lists of their differences."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt import xml_diff
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.xml_diff import (
    XmlDifference,
    acted_on,
    differences,
    running_differences,
    side_by_side,
    statements,
)

SAILLOFT = "xmlns:s='https://github.com/sailloft/sailloft/plan/1'"


def flat(xml: str) -> dict[str, str]:
    return statements(f"<domain>{xml}</domain>")


@pytest.mark.parametrize(
    ("xml", "found"),
    [
        ("", {}),
        ("<name> a </name>", {"name": "a"}),
        ("<os><type arch='x'>hvm</type></os>", {"os": "", "os/type": "hvm", "os/type/@arch": "x"}),
        ("<a/><a/><a/>", {"a": "", "a[2]": "", "a[3]": ""}),
        (
            "<x><vcpupin vcpu='3' cpuset='1'/></x>",
            {"x": "", "x/vcpupin[3]": "", "x/vcpupin[3]/@vcpu": "3", "x/vcpupin[3]/@cpuset": "1"},
        ),
        ("<x><vcpupin/></x>", {"x": "", "x/vcpupin[]": ""}),
        (
            "<controller type='pci' index='2'/><controller type='pci'/>",
            {
                "controller[pci,2]": "",
                "controller[pci,2]/@type": "pci",
                "controller[pci,2]/@index": "2",
                "controller[pci,]": "",
                "controller[pci,]/@type": "pci",
            },
        ),
        (
            "<hostdev><source><address domain='0' bus='0x3b' slot='10' function='7'/></source></hostdev>",
            {
                "hostdev[0000:3b:10.7]": "",
                "hostdev[0000:3b:10.7]/source": "",
                "hostdev[0000:3b:10.7]/source/address": "",
                "hostdev[0000:3b:10.7]/source/address/@domain": "0",
                "hostdev[0000:3b:10.7]/source/address/@bus": "0x3b",
                "hostdev[0000:3b:10.7]/source/address/@slot": "10",
                "hostdev[0000:3b:10.7]/source/address/@function": "7",
            },
        ),
        ("<hostdev/>", {"hostdev[,,,]": ""}),
        ("<disk><target dev='vda'/></disk>", {"disk[vda]": "", "disk[vda]/target": "", "disk[vda]/target/@dev": "vda"}),
        (f"<s:plan {SAILLOFT}/>", {"sailloft:plan": ""}),
        ("<x:y xmlns:x='urn:z'/>", {"{urn:z}y": ""}),
    ],
)
def test_xml_is_flat_statements(xml, found):
    assert flat(xml) == found


def test_attributes_of_the_domain_are_statements():
    assert statements("<domain type='kvm' id='3'/>") == {"@type": "kvm", "@id": "3"}


@pytest.mark.parametrize(
    ("kind", "source", "told"),
    [
        ("bridge", "network='n'", "network"),
        ("direct", "network='n'", "network"),
        ("bridge", "bridge='b'", "bridge"),
        ("user", "network='n'", "user"),
    ],
)
def test_an_interface_on_a_network_is_one_of_a_network(kind, source, told):
    found = flat(f"<interface type='{kind}'><mac address='m'/><source {source}/></interface>")
    assert found["interface[m]/@type"] == told


def compared(wanted: str, have: str) -> list[XmlDifference]:
    return differences(f"<domain>{wanted}</domain>", f"<domain>{have}</domain>")


def test_both_sides_have_their_values_and_a_missing_element_is_one():
    wanted = "<vcpu a='1'>4</vcpu><iothreads>1</iothreads><cputune><vcpupin vcpu='0' cpuset='1'/></cputune>"
    have = "<vcpu a='2'>2</vcpu><memtune><hard_limit unit='KiB'>1</hard_limit></memtune>"
    assert compared(wanted, have) == [
        XmlDifference("cputune", "present", None),
        XmlDifference("iothreads", "1", None),
        XmlDifference("memtune", None, "present"),
        XmlDifference("vcpu", "4", "2"),
        XmlDifference("vcpu/@a", "1", "2"),
    ]
    assert compared(wanted, wanted) == []


def test_an_addition_that_is_neither_libvirts_nor_ours_is_unknown():
    found = compared(
        "<devices/>", "<devices><emulator>/q</emulator><tpm/></devices><later><x/></later><title>t</title>"
    )
    assert found == [
        XmlDifference("devices/tpm", None, "present"),
        XmlDifference("later", None, "present", unknown=True),
    ]
    assert acted_on(found) == found[:1]
    assert side_by_side(found) == {"before": "devices/tpm = present\n", "after": ""}
    assert side_by_side([XmlDifference("a", "1", "2"), XmlDifference("b", "3", None)]) == {
        "before": "a = 2\n", "after": "a = 1\nb = 3\n",
    }  # fmt: skip
    assert found[1].to_dict() == {"path": "later", "wanted": None, "have": "present", "unknown": True}


def test_an_addition_with_another_value_than_libvirts_is_a_difference():
    assert compared("", "<on_reboot>restart</on_reboot><on_crash>destroy</on_crash>") == []
    assert [item.path for item in compared("", "<on_reboot>destroy</on_reboot>")] == ["on_reboot"]


def test_metadata_of_a_running_domain_are_not_compared():
    plan = f"<metadata><s:plan {SAILLOFT}><s:device address='a'/></s:plan></metadata>"
    wanted, have = f"<domain>{plan}<vcpu>2</vcpu></domain>", "<domain><vcpu>3</vcpu></domain>"
    assert [item.path for item in differences(wanted, have)] == ["metadata", "vcpu"]
    assert [item.path for item in running_differences(wanted, have)] == ["vcpu"]


FEATURE = "<firmware><feature enabled='no' name='secure-boot'/></firmware>"
EFI = f"<os firmware='efi'>{FEATURE}</os>"


@pytest.mark.parametrize(
    ("wanted", "have", "paths"),
    [
        (EFI, "<os><loader>/x</loader></os>", []),
        # A firmware that verifies what it boots is not the requested one.
        (EFI, "<os><loader secure='yes'>/x</loader></os>", ["os/firmware"]),
        (EFI, "<os><loader secure='no'>/x</loader></os>", []),
        (EFI, "<os/>", ["os/@firmware", "os/firmware"]),
        (
            EFI,
            "<os firmware='bios'><loader>/x</loader></os>",
            ["os/@firmware", "os/firmware"],
        ),
        (
            EFI,
            f"<os><loader>/x</loader>{FEATURE.replace('no', 'yes')}</os>",
            ["os/firmware/feature[secure-boot]/@enabled"],
        ),
        ("<os/>", "<os><loader>/x</loader></os>", ["os/@firmware"]),
    ],
)
def test_an_image_that_libvirt_chose_stands_for_efi(wanted, have, paths):
    assert [item.path for item in compared(wanted, have)] == paths


@pytest.mark.parametrize(
    ("wanted", "have", "same"),
    [
        ("q35", "pc-q35-7.2", True),
        ("q35", "pc-i440fx-7.2", False),
        ("pc-q35-7.1", "pc-q35-7.2", False),
        ("pc-q35-7.2", "q35", False),
    ],
)
def test_the_alias_of_a_machine_is_any_of_its_versions(wanted, have, same):
    def typed(machine: str) -> str:
        return f"<os><type machine='{machine}'/></os>"

    assert (compared(typed(wanted), typed(have)) == []) is same
    # Only of the machine.
    assert compared(f"<x machine='{wanted}'/>", f"<x machine='{have}'/>") != []


@pytest.mark.parametrize(
    ("path", "whole", "below"),
    [
        ("a/b", {"a"}, True),
        ("a/b/c", {"a"}, True),
        ("a/b/c", {"a/b"}, True),
        ("a/b", {"a/b"}, False),
        ("a", {"a"}, False),
        ("ab/c", {"a"}, False),
        ("@a", {"a"}, False),
    ],
)
def test_a_path_is_below_those_above_it(path, whole, below):
    assert xml_diff.is_below(path, whole) is below


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("a/*", "a/b", True),
        ("a/*", "a/b/c", False),
        ("a/**", "a/b/c", True),
        ("a**", "a", True),
        ("a**", "ab/c", True),
        ("d[[]*]/x", "d[pci,0]/x", True),
        ("d[[]*]/x", "d/x", False),
        ("a.b", "axb", False),
    ],
)
def test_a_pattern_has_one_step_or_all_below(pattern, path, matches):
    assert bool(xml_diff.re.fullmatch(xml_diff.path_pattern(pattern), path)) is matches
