# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The defaults of a request, the values at the bounds of each setting, and combinations that are allowed or refused."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.options import domain_options
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_module_ids, parse_specs
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import (
    DeviceRequest,
    Disk,
    DomainSpec,
    Interface,
    Nics,
)


def of(**settings: Any) -> DomainSpec:
    return parse_specs([{"name": "a", **settings}])[0]


def cause(**settings: Any) -> str:
    with pytest.raises(DomainError) as caught:
        of(**settings)
    assert caught.value.domain == "a"
    return caught.value.cause


def disk(**settings: Any) -> dict[str, Any]:
    return {"disks": [{"path": "/a", **settings}]}


def user(**settings: Any) -> dict[str, Any]:
    return {"interfaces": [{"type": "user", **settings}]}


def test_a_request_with_a_name_only_has_the_documented_defaults():
    assert asdict(of()) == {
        "name": "a",
        "memory_mib": 0,
        "gpus": {"count": 0, "addresses": [], "functions": "pf"},
        "nics": {"per_gpu": 0, "functions": "vf", "addresses": []},
        "nvme": {"count": 0, "addresses": []},
        "vcpus": None,
        "huge_page_mib": 1024,
        "lock_memory": True,
        "memory_threads": 0,
        "strict_memory": True,
        "pin_cpus": True,
        "host_cores_per_socket": 1,
        "iothreads": 1,
        "mirror_topology": "auto",
        "firmware": "efi",
        "machine": "q35",
        "accelerator": "auto",
        "physical_address_bits": "auto",
        "guest_iommu": False,
        "interrupt_remapping": False,
        "numa_nodes": [],
        "ats": True,
        "gpudirect_cliques": True,
        "hpet": True,
        "kvm_dedicated": False,
        "rom_bar": True,
        "rng": False,
        "mmio_window_mib": 0,
        "disks": [],
        "interfaces": [],
        "boot": None,
        "console_log": None,
        "autostart": True,
    }
    assert asdict(Disk("/a")) == {
        "path": "/a", "format": "qcow2", "read_only": False, "base": None, "base_format": "qcow2",
        "base_url": None, "base_checksum": None, "size_mib": 0, "ssh_keys": [],
        "cache": "auto", "io": "auto",
    }  # fmt: skip
    assert asdict(Interface()) == {"type": "network", "source": None, "mac": None, "queues": 1}


@pytest.mark.parametrize(
    ("key", "least", "most"),
    [
        ("memory_mib", 0, 1 << 32),
        ("vcpus", 1, 4096),
        ("memory_threads", 0, 4096),
        ("host_cores_per_socket", 0, 4096),
        ("iothreads", 0, 256),
    ],
)
def test_a_number_is_accepted_at_both_bounds_and_not_beyond(key, least, most):
    assert [getattr(of(**{key: number}), key) for number in (least, most)] == [least, most]
    for number in (least - 1, most + 1):
        assert cause(**{key: number}) == f"{key}: {number} is not valid"


@pytest.mark.parametrize(
    ("make", "least", "most"),
    [
        (lambda number: {"gpus": {"count": number}}, 0, 256),
        (lambda number: {"nvme": {"count": number}}, 0, 256),
        (lambda number: {"nics": {"per_gpu": number}}, 0, 256),
        (lambda number: disk(base="/b", size_mib=number), 0, 1 << 30),
        (lambda number: {"interfaces": [{"source": "n", "queues": number}]}, 1, 256),
    ],
)
def test_a_number_of_a_part_is_accepted_at_both_bounds_and_not_beyond(make, least, most):
    for number in (least, most):
        of(**make(number))
    for number in (least - 1, most + 1):
        assert cause(**make(number)).endswith(f" {number} is not valid")


@pytest.mark.parametrize("size", [0, 2, 1024])
def test_each_page_size_of_x86_is_accepted(size):
    assert of(huge_page_mib=size).huge_page_mib == size
    assert cause(huge_page_mib=True) == "huge_page_mib: True is not a huge page size"


@pytest.mark.parametrize("window", [0, 1, 2, 1024, 1 << 31, 1 << 32])
def test_a_window_is_a_power_of_two(window):
    assert of(mmio_window_mib=window).mmio_window_mib == window


@pytest.mark.parametrize("window", [-1, (1 << 32) + 1, 1 << 33])
def test_a_window_out_of_its_bounds_is_refused(window):
    assert cause(mmio_window_mib=window) == f"mmio_window_mib: {window} is not valid"


@pytest.mark.parametrize("window", [3, 6, (1 << 32) - 1])
def test_a_window_that_is_no_power_of_two_is_refused(window):
    assert cause(mmio_window_mib=window) == f"mmio_window_mib: {window} is not a power of two"


@pytest.mark.parametrize("bits", ["auto", "passthrough", "off", "32", "46", "52"])
def test_address_bits_are_a_mode_or_a_number(bits):
    assert of(physical_address_bits=bits).physical_address_bits == bits


def test_nodes_are_all_or_numbers_of_up_to_four_digits():
    assert [of(numa_nodes=nodes).numa_nodes for nodes in ([], ["all"], [0, "9999"])] == [[], ["all"], ["0", "9999"]]
    for nodes in (["10000"], ["all", "all"], [0, "x"], [""]):
        assert "is neither [all] nor a list of NUMA nodes" in cause(numa_nodes=nodes)


def test_names_and_texts_are_accepted_up_to_their_length():
    longest = "a" * 64
    assert parse_specs([{"name": longest}])[0].name == longest
    boot = {"kernel": "/k", "arguments": "x" * 2047}
    assert of(boot=boot).boot.arguments == "x" * 2047
    assert "boot: arguments" in cause(boot={**boot, "arguments": "x" * 2048})
    assert of(interfaces=[{"source": "n" * 255}]).interfaces[0].source == "n" * 255
    assert "interfaces[0]: source" in cause(interfaces=[{"source": "n" * 256}])
    bridge = {"type": "bridge", "source": "b" * 15}
    assert of(interfaces=[bridge]).interfaces[0].source == "b" * 15
    assert cause(interfaces=[{**bridge, "source": "b" * 16}]) == f"'{'b' * 16}' is not a valid bridge name"
    # Only a bridge is an interface of the kernel.
    assert of(interfaces=[{"source": "a/b"}]).interfaces[0].source == "a/b"


@pytest.mark.parametrize(
    ("address", "full"),
    [
        ("3b:00.0", "0000:3b:00.0"),
        ("3B:1F.7", "0000:3b:1f.7"),
        ("10000:e1:00.0", "10000:e1:00.0"),
        ("12345678:00:00.0", "12345678:00:00.0"),
    ],
)
def test_an_address_is_completed(address, full):
    assert of(gpus={"addresses": [address]}).gpus.addresses == [full]


@pytest.mark.parametrize("address", ["3b:00.8", "3b:0.0", "000:3b:00.0", "123456789:00:00.0", "3b:00.0 ", "", None, 1])
def test_another_text_is_no_address(address):
    assert cause(gpus={"addresses": [address]}) == f"gpus: addresses: {address!r} is not a PCI address"


def test_an_empty_part_is_like_none():
    assert of(boot={}, gpus={}, nics={}, disks=[], interfaces=[]) == of()
    assert of(boot=None).boot is None


def test_the_number_of_chosen_devices():
    assert (DeviceRequest(3).chosen_for(2), Nics(per_gpu=3).chosen_for(2), Nics().chosen_for(2)) == (3, 6, 0)


@pytest.mark.parametrize(
    ("settings", "locked"),
    [
        ({}, True),
        ({"lock_memory": False}, True),
        ({"huge_page_mib": 0}, True),
        ({"huge_page_mib": 0, "lock_memory": False}, False),
    ],
)
def test_memory_is_never_swapped_if_it_is_locked_or_in_huge_pages(settings, locked):
    assert of(**settings).locked is locked


@pytest.mark.parametrize(
    ("settings", "remaps"),
    [({}, False), ({"guest_iommu": True}, True), ({"interrupt_remapping": True}, True)],
)
def test_either_setting_remaps_interrupts(settings, remaps):
    assert of(**settings).remaps_interrupts is remaps


def test_uuid_macs_and_log_depend_on_the_name_only():
    one = of(interfaces=[{"type": "user"}, {"type": "user", "mac": "52:54:00:00:00:01"}])
    assert one.uuid == "298c31e1-6085-5375-a393-4228e7a620e3"
    assert (one.mac(0), one.mac(1)) == ("52:54:00:d7:e9:89", "52:54:00:00:00:01")
    assert one.console_log_path == "/var/log/libvirt/qemu/a-console.log"
    assert of(console_log="/log").console_log_path == "/log"


@pytest.mark.parametrize(
    ("settings", "tuning"),
    [
        ({}, {}),
        ({"cache": "none"}, {"cache": "none"}),
        ({"cache": "none", "io": "native"}, {"cache": "none", "io": "native"}),
        ({"cache": "directsync", "io": "native"}, {"cache": "directsync", "io": "native"}),
        ({"io": "threads"}, {"io": "threads"}),
        ({"path": "/dev/x", "format": "raw"}, {"cache": "none", "io": "native"}),
        ({"path": "/dev/x", "format": "raw", "cache": "directsync"}, {"cache": "directsync", "io": "native"}),
        ({"path": "/dev/x", "format": "raw", "io": "threads", "cache": "unsafe"}, {"cache": "unsafe", "io": "threads"}),
    ],
)
def test_a_disk_has_its_cache_and_io(settings, tuning):
    assert of(**disk(**settings)).disks[0].tuning == tuning


OVERLAY = "disk {}: only a writable qcow2 file can be an overlay of a base image"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (disk(io="native"), "disk /a: io native needs cache none or directsync"),
        (disk(io="native", cache="writeback"), "disk /a: io native needs cache none or directsync"),
        (disk(path="/dev/x", format="raw", cache="unsafe"), "disk /dev/x: io native needs cache none or directsync"),
        (disk(base="/b", read_only=True), OVERLAY.format("/a")),
        (disk(base="/b", format="raw"), OVERLAY.format("/a")),
        (disk(base="/b", path="/dev/x"), OVERLAY.format("/dev/x")),
        (disk(size_mib=1), "disk /a: size_mib is only for a disk created from a base"),
        (user(queues=2), "an interface of type user has one queue"),
        (user(source="x"), "an interface of type user has no source"),
        ({"interfaces": [{"type": "bridge"}]}, "an interface of type bridge needs a source: the bridge's name"),
        ({"kvm_dedicated": True, "pin_cpus": False}, "kvm_dedicated needs CPUs of its own"),
        ({"kvm_dedicated": True, "accelerator": "qemu"}, "kvm_dedicated needs KVM, and accelerator is qemu"),
        (
            {"accelerator": "qemu", "physical_address_bits": "passthrough"},
            "physical_address_bits passthrough needs KVM, and accelerator is qemu",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message):
    assert cause(**settings) == message


@pytest.mark.parametrize(
    "settings",
    [
        disk(base="/b", size_mib=1),
        disk(path="/dev/x", format="raw", read_only=True),
        disk(read_only=True, format="raw"),
        user(queues=1),
        {"interfaces": [{"source": "n", "queues": 2}]},
        {"kvm_dedicated": True},
        {"kvm_dedicated": True, "accelerator": "kvm"},
        {"pin_cpus": False},
        {"accelerator": "kvm", "physical_address_bits": "passthrough"},
        {"accelerator": "qemu", "physical_address_bits": "46"},
    ],
)
def test_settings_that_agree_are_accepted(settings):
    of(**settings)


def test_derived_macs_of_two_interfaces_are_compared_with_given_ones():
    given = {"type": "user", "mac": of(**user()).mac(0)}
    with raises(DomainError, "virtual machine b", given["mac"], "a"):
        parse_specs([{"name": "a", **user()}, {"name": "b", "interfaces": [{"type": "user"}, given]}])


@pytest.mark.parametrize(("number", "found"), [(0, 0), ("0", 0), (256, 256), ("256", 256), ("007", 7)])
def test_a_module_id_is_a_number_from_0_to_256(number, found):
    assert parse_module_ids({"3b:00.0": number}) == {"0000:3b:00.0": found}


@pytest.mark.parametrize("number", [257, "257", "1000", -1, "-1", True, None, 1.0, ""])
def test_another_module_id_is_refused(number):
    with pytest.raises(DomainError, match="is not a PCI address and a number"):
        parse_module_ids({"3b:00.0": number})


def test_the_options_of_a_virtual_machine_have_types_choices_and_defaults():
    options = domain_options()
    assert options["name"] == {"type": "str", "required": True}
    assert options["memory_mib"] == {"type": "int"}
    assert options["vcpus"] == {"type": "int"}
    assert options["huge_page_mib"] == {"type": "int", "default": 1024}
    assert options["ats"] == {"type": "bool", "default": True}
    assert options["guest_iommu"] == {"type": "bool", "default": False}
    assert options["firmware"] == {"type": "str", "choices": ["efi", "bios"], "default": "efi"}
    assert options["numa_nodes"] == {"type": "list", "elements": "str", "default": []}
    assert options["boot"] == {
        "type": "dict",
        "options": {
            "kernel": {"type": "str", "required": True}, "initrd": {"type": "str"}, "arguments": {"type": "str"},
        },
    }  # fmt: skip
    assert options["gpus"] == {
        "type": "dict",
        "options": {
            "count": {"type": "int", "default": 0},
            "addresses": {"type": "list", "elements": "str", "default": []},
            "functions": {"type": "str", "choices": ["vf", "pf"], "default": "pf"},
        },
    }
    interfaces = options["interfaces"]
    assert (interfaces["type"], interfaces["elements"], interfaces["default"]) == ("list", "dict", [])
    assert interfaces["options"]["queues"] == {"type": "int", "default": 1}
