# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel command lines: names of arguments, what is owned, and what is refused."""

from __future__ import annotations

import re

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import kernel_command_line as command_line

ACS = "pci=config_acs=1x11101@0000:12:00.0"


@pytest.mark.parametrize(
    ("argument", "key"),
    [
        ("quiet", "quiet"),
        ("pci=realloc", "pci"),
        ("a-b=c-d=e", "a_b"),
        ('"pci=realloc', "pci"),
        (ACS, "pci=config_acs"),
        (f'"{ACS};x"', "pci=config_acs"),
        ("pci=config_acs", "pci"),
        ("pci=config_acsx=1", "pci"),
    ],
)
def test_the_key_of_an_argument_is_its_name(argument, key):
    assert command_line.key(argument) == key


PAGES = {"hugepagesz", "hugepages", "default_hugepagesz"}


@pytest.mark.parametrize(
    ("arguments", "remove", "keys"),
    [
        ([], [], set()),
        (["iommu=pt"], ["quiet"], {"iommu", "quiet"}),
        (["hugepagesz=2M"], [], PAGES),
        ([], ["hugepages", "a"], {*PAGES, "a"}),
        (["pci=realloc"], [], {"pci"}),
        ([ACS], [], {"pci=config_acs"}),
        ([], ["pci"], {"pci", "pci=config_acs"}),
        ([], ["pc"], {"pc"}),
    ],
)
def test_keys_are_owned_with_their_families_and_parts(arguments, remove, keys):
    assert command_line.owned(arguments, remove) == keys


@pytest.mark.parametrize(
    ("line", "arguments", "in_effect"),
    [
        ("ro iommu=pt", ["iommu=pt"], True),
        ("ro iommu=pt iommu=pt", ["iommu=pt"], False),
        ("ro", ["iommu=pt"], False),
        ("a=1 b=2", ["b=2", "a=1"], False),
        ("a=1 x b=2", ["a=1", "b=2"], True),
    ],
)
def test_arguments_are_in_effect_only_exactly_and_in_order(line, arguments, in_effect):
    assert command_line.in_effect(line, arguments, []) is in_effect


@pytest.mark.parametrize(
    ("arguments", "remove", "message"),
    [
        (["a b"], [], Mentions("name=value", "without")),
        (["a="], ["a b"], Mentions("argument")),
        ([], ["a=b"], Mentions("a=b")),
        (["a-b=1", "c"], ["c", "a_b"], Mentions("a_b")),
        (["hugepages=1"], [], Mentions("hugepages=1", "hugepagesz=")),
        (
            ["hugepages=1", "hugepagesz=2M"],
            [],
            Mentions("hugepages=1", "hugepagesz="),
        ),
        (
            ["hugepagesz=2M", "hugepages=1", "hugepagesz=1G", "hugepages=1", "hugepagesz=2M", "hugepages=0:7"],
            [],
            Mentions("2M", "twice"),
        ),
        (
            ["default_hugepagesz=2M", "default_hugepagesz=1G"],
            [],
            Mentions("default_hugepagesz", "twice"),
        ),
    ],
)
def test_a_wrong_argument_is_refused(arguments, remove, message):
    with pytest.raises(HostError) as error:
        command_line.checked(arguments, remove)
    assert str(error.value) == message


@pytest.mark.parametrize(
    "arguments",
    [
        ["hugepagesz=2M", "x", "hugepages=1", "hugepagesz=1G", "hugepages=2"],
        ["default_hugepagesz=1G", "hugepages=1"],
        ["a=", "b=c,d:e"],
    ],
)
def test_right_arguments_are_returned_unchanged(arguments):
    assert command_line.checked(arguments, ["c"]) == (arguments, ["c"])


@pytest.mark.parametrize(
    ("name", "purpose"),
    [
        *((name, "to boot") for name in ("root", "rootflags", "init", "rd.lvm.lv", "rd.luks.uuid", "rd.md.uuid")),
        *((name, "to boot") for name in ("luks.name", "boot", "ostree", "nfsroot", "netroot", "rd.neednet", "rd.lvm")),
        *((name, "to boot") for name in ("rd.driver.pre", "roothash", "usrhash", "mount.usr", "mount.usrflags", "md")),
        *((name, "to boot") for name in ("dm-mod.create", "raid", "systemd.gpt_auto", "rd.systemd.verity")),
        *((name, "to boot") for name in ("systemd.verity_root_hash", "overlayroot", "fstab", "rd.luks", "luks")),
        *((name, "to be reached") for name in ("net.naming-scheme", "bootdev", "network-config", "rd.znet_ifname")),
        *((name, "to be reached") for name in ("ip", "ifname", "net.ifnames", "biosdevname", "console", "bond")),
    ],
)
def test_an_argument_that_a_host_needs_is_never_removed(name, purpose):
    with pytest.raises(RequestError, match=rf"{name}.*{purpose}"):
        command_line.checked([], ["quiet", name])


@pytest.mark.parametrize(
    "argument",
    [
        "init=/bin/sh",
        "rdinit=/bin/sh",
        "systemd.unit=rescue.target",
        "rd.systemd.unit=emergency.target",
        "single",
        "1",
        "s",
        "emergency",
        "rd.emergency",
        "rescue",
        "-b",
        "rd.break",
        "rd.break=pre-mount",
        "break",
        "systemd.run=/bin/x",
    ],
)
def test_an_argument_that_stops_every_boot_is_refused(argument):
    with pytest.raises(RequestError, match=rf"kernel_arguments: {re.escape(argument)} "):
        command_line.checked(["iommu=pt", argument], [])


@pytest.mark.parametrize(
    "argument", ["systemd.unit=multi-user.target", "rd.emergency=reboot", "rd.shell=0", "panic=10"]
)
def test_an_argument_like_one_that_stops_the_boot_is_not_refused(argument):
    assert command_line.checked([argument], []) == ([argument], [])


@pytest.mark.parametrize(
    "argument",
    [
        "acpi=off",
        "pci=realloc,noacpi",
        "pci=off",
        "noapic",
        "nolapic",
        "nosmp",
        "cgroup_disable=memory,cpuset",
        "module_blacklist=nouveau,kvm-intel",
        "modprobe.blacklist=kvm",
        "rd.driver.blacklist=kvm_amd",
    ],
)
def test_what_every_host_of_virtual_machines_needs_is_not_turned_off(argument):
    assert argument in refused("ro", [argument])
    assert argument in refused(f"ro {argument}", ["iommu=pt"])
    assert refused(f"ro {argument}", ["iommu=pt"], [argument.split("=")[0]]) is None
    assert refused(f"ro {argument}x", ["iommu=pt"]) is None


@pytest.mark.parametrize("name", ["quiet", "nomodeset", "rd.driver.blacklist", "rootkit", "iptables", "crashkernel"])
def test_another_argument_can_be_removed(name):
    assert command_line.checked([], [name]) == ([], [name])


def refused(line, arguments, remove=(), uses=(), prefix=""):
    """Return why a line is refused, None if it is not."""
    try:
        command_line.check_line(line, list(arguments), list(remove), set(uses), prefix)
    except RequestError as error:
        return str(error)
    return None


NEEDS = "root=UUID=1 ro rd.lvm.lv=a/root rd.lvm.lv=a/swap ip=dhcp console=tty0 console=ttyS0"


@pytest.mark.parametrize(
    ("arguments", "lost"),
    [
        (["rd.lvm.lv=a/root"], "rd.lvm.lv=a/swap"),
        (["root=/dev/sda1"], "root=UUID=1"),
        (["rd.lvm.lv=a/swap", "rd.lvm.lv=a/root", "iommu=pt"], None),
        (["console=ttyS1", "ip=10.0.0.1"], None),
    ],
)
def test_an_argument_that_a_host_needs_to_boot_is_not_replaced_by_another(arguments, lost):
    found = refused(NEEDS, arguments)
    assert (found is None) if lost is None else found.startswith(f"kernel_arguments: {lost} would be replaced")


@pytest.mark.parametrize(
    ("argument", "use"),
    [
        ("iommu=off", "iommu"),
        ("intel_iommu=sm_on,off", "iommu"),
        ("amd_iommu=off", "iommu"),
        ("intremap=off", "iommu"),
        ("pci=realloc,nomsi", "iommu"),
        ("pci=noats", "ats"),
        ("iommu.passthrough=0", "passthrough"),
        ("iommu.passthrough=1", "translated"),
        ("numa=off", "nodes"),
        ("module_blacklist=nouveau,vfio-pci", "vfio"),
        ("modprobe.blacklist=vfio_pci", "vfio"),
    ],
)
def test_an_argument_that_contradicts_the_settings_is_refused(argument, use):
    name = argument.split("=")[0]
    for line, arguments in ((f"ro {argument} quiet", []), ("ro", [argument])):
        found = refused(line, arguments, uses=[use])
        assert argument in found
        assert f"set {name}= without it" in found
        assert refused(line, arguments, uses={"iommu", "ats", "nodes"} - {use, "passthrough"}) is None
    assert refused(f"ro {argument}", [], [name], uses=[use]) is None
    assert refused("ro iommu=pt pci=realloc nomodeset", [], uses=["iommu", "ats", "vfio", "nodes"]) is None


def test_a_line_that_the_kernel_would_cut_off_is_refused_with_what_to_shorten():
    """x86 uses 2,047 characters. Quotes that GRUB removes are not counted."""
    ports = ";".join(f"1x11101@0000:{number:02x}:00.0" for number in range(112))
    found = refused("root=UUID=1 ro", [f"pci=config_acs={ports}", "module_blacklist=a,b"])
    assert "2,047" in found or "2047" in found
    assert "pci=config_acs= has 2366 (gpu_host_acs_at_boot: false" in found
    assert "module_blacklist= has 20 (gpu_host_keep_drivers_off: false" in found
    prefix, line = "BOOT_IMAGE=/vmlinuz", f'ro "x={"a" * 100};b"'
    room = 2047 - len(f"{prefix} {line}".replace('"', "")) - 1
    assert refused(line, ["y" * room], prefix=prefix) is None
    assert "shorten it by 1" in refused(line, ["y" * (room + 1)], prefix=prefix)


@pytest.mark.parametrize(
    ("line", "arguments", "remove", "words"),
    [
        ("ro", ["iommu=pt"], [], Mentions("iommu=pt")),
        ("ro quiet", [], ["quiet"], "was started with quiet"),
        (
            "iommu=off quiet x",
            ["iommu=pt", "x"],
            ["quiet"],
            Mentions("iommu=pt", "iommu=off"),
        ),
        ("b a", ["a", "b"], [], Mentions("each")),
    ],
)
def test_the_difference_of_the_running_kernel_names_what_is_lacking_and_what_is_too_much(
    line, arguments, remove, words
):
    assert command_line.differences(line, arguments, remove) == words
