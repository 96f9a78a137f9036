# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel command lines and the files of boot loaders: tables of exact texts."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.hugepages import Pool
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import (
    acs_argument,
    boot_loader,
    kernel_arguments,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import kernel_command_line as command_line

ACS = "pci=config_acs=1x111x1@0000:12:00.0"


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
        (["a b"], [], "'a b' is not one kernel argument; write name or name=value, without spaces and quotes"),
        (["a="], ["a b"], "'a b' is not the name of an argument to remove; give the name without a value"),
        ([], ["a=b"], "'a=b' is not the name of an argument to remove; give the name without a value"),
        (["a-b=1", "c"], ["c", "a_b"], "a_b, c cannot be both set and removed; name them once"),
        (["hugepages=1"], [], "hugepages=1 does not say the size of its pages; put hugepagesz= before it"),
        (
            ["hugepages=1", "hugepagesz=2M"],
            [],
            "hugepages=1 does not say the size of its pages; put hugepagesz= before it",
        ),
    ],
)
def test_a_wrong_argument_is_refused(arguments, remove, message):
    with pytest.raises(HostError) as error:
        command_line.checked(arguments, remove)
    assert str(error.value) == f"kernel_arguments: {message}"


@pytest.mark.parametrize(
    "arguments",
    [["hugepagesz=2M", "x", "hugepages=1", "hugepages=2"], ["default_hugepagesz=1G", "hugepages=1"], ["a=", "b=c,d:e"]],
)
def test_right_arguments_are_returned_unchanged(arguments):
    assert command_line.checked(arguments, ["c"]) == (arguments, ["c"])


@pytest.mark.parametrize(
    ("counts", "arguments"),
    [
        ({}, []),
        ({(0, 2): 0}, []),
        ({(0, 2): 4}, ["default_hugepagesz=2M", "hugepagesz=2M", "hugepages=0:4"]),
        ({(1, 1024): 1, (0, 1024): 0}, ["default_hugepagesz=1G", "hugepagesz=1G", "hugepages=1:1"]),
        ({(0, 2048): 3}, ["default_hugepagesz=2G", "hugepagesz=2G", "hugepages=0:3"]),
        (
            {(1, 2): 7, (0, 2): 5, (0, 1024): 1},
            ["default_hugepagesz=1G", "hugepagesz=1G", "hugepages=0:1", "hugepagesz=2M", "hugepages=0:5,1:7"],
        ),
    ],
)
def test_pages_become_arguments_by_size_and_node(counts, arguments):
    assert kernel_arguments.for_pages({Pool(*pool): count for pool, count in counts.items()}) == arguments


@pytest.mark.parametrize(
    ("data", "arguments"),
    [
        ({}, []),
        ({"iommu": "passthrough"}, ["intel_iommu=on", "iommu=pt"]),
        ({"iommu": "translated", "arguments": ["quiet"]}, ["intel_iommu=on", "iommu=nopt", "quiet"]),
        (
            {
                "arguments": ["module_blacklist=a,nouveau"],
                "vfio_binding": {"devices": ["10de:*"], "keep_drivers_off": True},
            },
            ["module_blacklist=a,nouveau,nova_core,nvidia,nvidiafb"],
        ),
        ({"vfio_binding": {"devices": ["10de:*"]}}, []),
    ],
)
def test_an_image_gets_the_arguments_of_every_host(data, arguments):
    assert kernel_arguments.for_any_host(data) == arguments


@pytest.mark.parametrize(
    ("mode", "vendor", "arguments"),
    [
        (None, "GenuineIntel", []),
        ("passthrough", "GenuineIntel", ["intel_iommu=on", "iommu=pt"]),
        ("translated", "AuthenticAMD", ["iommu=nopt"]),
        ("translated", None, ["iommu=nopt"]),
    ],
)
def test_the_iommu_is_turned_on_by_its_vendors_argument(mode, vendor, arguments):
    assert kernel_arguments.for_iommu(mode, vendor) == arguments


@pytest.mark.parametrize("table", ["DMAR", "IVRS", None])
def test_the_vendor_of_the_iommu_is_that_of_its_table_or_else_of_the_cpu(server, table):
    server.remove("/sys/firmware/acpi/tables/DMAR")
    server.put("/proc/cpuinfo", "processor : 0\nvendor_id\t: Other\nmodel name : x\n")
    if table:
        server.put(f"/sys/firmware/acpi/tables/{table}", "")
    expected = {"DMAR": "GenuineIntel", "IVRS": "AuthenticAMD", None: "Other"}[table]
    assert kernel_arguments._vendor(server) == expected
    server.remove("/proc/cpuinfo")
    assert kernel_arguments._vendor(server) == (expected if table else None)


def test_computed_arguments_come_before_others_and_once(server):
    acs = acs_argument.Decision(ACS, None)
    data = {"arguments": ["quiet", "x"], "remove": ["y"]}
    assert kernel_arguments.wanted(server, data, acs, ["nouveau"], ["x", "initcall_blacklist=a"]) == (
        ["quiet", "x", "module_blacklist=nouveau", "initcall_blacklist=a", ACS],
        ["y"],
    )


def test_an_acs_argument_by_hand_takes_precedence(server):
    server.put(boot_loader.DEFAULTS, "")
    server.put("/proc/sys/kernel/osrelease", "6.15.0\n")
    # The downstream port of the NIC gets the root port's ACS capability.
    root, port = (f"{server.directory(address)}/config" for address in ("0000:10:00.0", "0000:12:01.0"))
    server.put(port, server.read_bytes(port)[:0x100] + server.read_bytes(root)[0x100:])
    given = {"acs_by_port": {"devices": ["gpu", "nic"], "purpose": "virtual_machines"}}
    assert kernel_arguments.ensure(server, given, check=True).facts["arguments"] == [
        "pci=config_acs=1x111x1@0000:12:01.0"
    ]
    by_hand = kernel_arguments.ensure(server, {**given, "arguments": [ACS]}, check=True).facts
    assert by_hand["acs"] == {"argument": None, "reason": None, "not_taken": []}
    assert by_hand["arguments"] == [ACS]


def test_a_host_without_proc_is_refused(server):
    server.remove("/proc/cmdline")
    with pytest.raises(HostError) as error:
        kernel_arguments.ensure(server, {})
    assert str(error.value) == "kernel_arguments: there is no /proc/cmdline to compare with; mount /proc"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["iommu=nopt"], "kernel_arguments: iommu=pt and iommu=nopt contradict each other; leave one out"),
        (
            ["intel_iommu=off"],
            "kernel_arguments: intel_iommu=on and intel_iommu=off contradict each other; leave one out",
        ),
    ],
)
def test_contradicting_arguments_are_refused(server, arguments, message):
    with pytest.raises(HostError) as error:
        kernel_arguments.ensure(server, {"iommu": "passthrough", "arguments": arguments})
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["/boot/loader/entries/1.conf", "/boot/grub2/grub.cfg"], "bls"),
        (["/boot/loader/entries/1.conf", "/boot/grub2/grub.cfg", "/etc/default/grub"], "bls"),
        (["/boot/loader/entries/1.conf", "/etc/default/grub"], "grub"),
        (["/boot/loader/entries/README", "/boot/grub2/grub.cfg", "/etc/default/grub"], "grub"),
        (["/usr/sbin/update-grub"], "grub"),
        (["/boot/loader/entries/1.conf"], None),
    ],
)
def test_a_boot_loader_is_recognized_by_its_files(server, paths, found):
    for path in paths:
        server.put(path, "")
    loader = boot_loader.find(server, needed=False)
    assert (loader and loader.name) == found
    if found is None:
        with pytest.raises(HostError) as error:
            boot_loader.find(server)
        assert str(error.value) == (
            "kernel_arguments: found neither /etc/default/grub with update-grub nor /boot/loader/entries/*.conf with "
            "/boot/grub2: this host does not boot with GRUB as Debian or RHEL set it up; set the arguments in the "
            "configuration of its boot loader"
        )


SECTION = "### BEGIN /etc/grub.d/10_linux ###\n{}\n### END /etc/grub.d/10_linux ###\n"


@pytest.mark.parametrize(
    ("lines", "stale"),
    [
        ("", True),
        ("linux /vmlinuz", True),  # without any argument it is not read as an entry
        ("linux /vmlinuz ro a=1", False),
        ("\tlinux\t/vmlinuz a=1", False),
        ("linux16 /vmlinuz a=1", False),
        ("linuxefi /vmlinuz a=1", False),
        ("linux /vmlinuz ro", True),
        ("linux /vmlinuz ro a=1\nlinux /vmlinuz ro", True),
        ("linux /vmlinuz ro a=1\nlinux /vmlinuz ro single", False),
        ("linux /vmlinuz ro a=1\nlinux /vmlinuz ro recovery nomodeset", False),
        ("linux /vmlinuz ro a=1\ninitrd /initrd ro", False),
    ],
)
def test_a_generated_configuration_is_stale_if_an_entry_lacks_the_arguments(server, lines, stale):
    server.put(boot_loader.GENERATED, SECTION.format(lines) + "linux /other ro\n")
    assert boot_loader.Debian.stale(server, ["a=1"], []) is stale
    assert boot_loader.BootLoaderSpecification.stale(server, ["a=1"], []) is False


def test_an_environment_block_can_be_filled_to_the_last_byte(server):
    server.put("/boot/loader/entries/1.conf", "options ro\n")
    server.put("/boot/loader/entries/notes", "options ro\n")
    body = "# GRUB Environment Block\nkernelopts=ro\n"
    server.put(boot_loader.ENVIRONMENT, body + "#" * (1024 - len(body)))
    argument = "x=" + "y" * (1024 - len(body) - len(" x="))
    files = boot_loader.BootLoaderSpecification.files(server, [argument], [])
    assert files == {
        boot_loader.ENVIRONMENT: f"# GRUB Environment Block\nkernelopts=ro {argument}\n",
        "/boot/loader/entries/1.conf": f"options ro {argument}\n",
    }
    with pytest.raises(HostError) as error:
        boot_loader.BootLoaderSpecification.files(server, [argument + "y"], [])
    assert str(error.value) == (
        "kernel_arguments: /boot/grub2/grubenv can hold 1024 bytes, but needs 1025 with these arguments; use fewer "
        "arguments"
    )


def test_an_environment_block_without_kernel_options_is_left_alone(server):
    server.put(boot_loader.ENVIRONMENT, "# GRUB Environment Block\nsaved_entry=1\n")
    assert boot_loader.BootLoaderSpecification.files(server, ["x"], []) == {}


def test_the_drop_in_removes_owned_arguments_in_every_form():
    (text,) = boot_loader.Debian.files(None, ["a-b=1"], ["quiet"]).values()
    assert r"                a[_-]b|a[_-]b=*|\"a[_-]b=*|quiet|quiet=*|\"quiet=*) ;;" in text.splitlines()
    assert text.splitlines()[-1] == (
        'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT${GRUB_CMDLINE_LINUX_DEFAULT:+ }"a-b=1'
    )
    assert "                '') ;;" in boot_loader.Debian.files(None, [], [])[boot_loader.DROP_IN].splitlines()
