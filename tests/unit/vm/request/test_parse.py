# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_module_ids, parse_specs
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import (
    SETTING,
    Boot,
    DeviceRequest,
    Disk,
    DomainSpec,
    Interface,
    Nics,
)


def test_pci_addresses_are_completed_and_lower_case() -> None:
    spec = parse_specs([{"name": "a", "gpus": {"addresses": ["3B:00.0", "0000:5e:00.1"]}}])[0]
    assert spec.gpus.addresses == ["0000:3b:00.0", "0000:5e:00.1"]


def test_a_setting_that_is_none_has_its_default() -> None:
    spec = parse_specs([{"name": "a", "vcpus": None, "gpus": None, "disks": None, "huge_page_mib": None}])[0]
    assert (spec.vcpus, spec.gpus.count, spec.disks, spec.huge_page_mib) == (None, 0, [], 1024)


def test_an_empty_boot_is_left_out_and_another_value_is_refused() -> None:
    assert parse_specs([{"name": "a", "boot": {}}]) == parse_specs([{"name": "a"}])
    for wrong in ("", [], 0):
        with raises(DomainError, "virtual machine a", "boot", "dictionary"):
            parse_specs([{"name": "a", "boot": wrong}])


def test_uuid_and_macs_are_derived_from_the_name() -> None:
    one, other = parse_specs([{"name": name, "interfaces": [{"type": "user"}] * 2} for name in ("a", "b")])
    again = parse_specs([{"name": "a", "interfaces": [{"type": "user"}] * 2}])[0]
    assert (again.uuid, again.mac(0), again.mac(1)) == (one.uuid, one.mac(0), one.mac(1))
    assert len({one.uuid, other.uuid}) == 2
    assert len({one.mac(0), one.mac(1), other.mac(0), other.mac(1)}) == 4
    assert one.mac(0).startswith("52:54:00:")


DISK = {"path": "/a"}


def of(**settings: Any) -> dict[str, Any]:
    return {"name": "a", **settings}


def disk(**settings: Any) -> dict[str, Any]:
    return of(disks=[{**DISK, **settings}])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (of(memory=3), None),
        (of(memory_mib=1 << 33), "memory_mib: 8589934592"),
        (of(memory_mib="1024"), "memory_mib: '1024'"),
        (of(memory_mib=1.5), "memory_mib: 1.5"),
        (of(gpus=8), "gpus: not a dictionary"),
        (of(gpus={"number": 3}), "gpus: unknown setting 'number'"),
        (of(gpus={"count": -1}), "gpus: count: -1"),
        (of(gpus={"count": True}), "gpus: count: True"),
        (of(gpus={"addresses": ["3b.0"]}), "gpus: addresses: '3b.0'"),
        (of(gpus={"addresses": [600.0]}), "gpus: addresses: 600.0"),
        (of(gpus={"addresses": "3b:00.0"}), "gpus: addresses: '3b:00.0'"),
        (of(nics={"addresses": ["xx:00.0"]}), "nics: addresses: 'xx:00.0'"),
        (of(nics={"functions": "sf"}), "nics: functions: 'sf'"),
        (of(nvme={"count": 257}), "nvme: count: 257"),
        (of(vcpus=0), "vcpus: 0"),
        (of(vcpus=4097), "vcpus: 4097"),
        (of(iothreads=10000000), "iothreads: 10000000"),
        (of(huge_page_mib=3), "huge_page_mib: 3"),
        (of(huge_page_mib=4), "huge_page_mib: 4"),
        (of(huge_page_mib=16384), "huge_page_mib: 16384"),
        (of(mmio_window_mib=1000), "mmio_window_mib: 1000"),
        (of(numa_nodes=1), "numa_nodes: ['1']"),
        (
            of(numa_nodes=["\u00b2"]),
            "numa_nodes: ['\u00b2']",
        ),
        (of(lock_memory="yes"), "lock_memory: 'yes'"),
        (of(accelerator="xen"), "accelerator: 'xen'"),
        *(
            (
                of(physical_address_bits=bits),
                f"physical_address_bits: {bits!r} is unknown",
            )
            for bits in ("46bit", "99", "4\u00b2", "31", "53", "046", "-40")
        ),
        (
            of(accelerator="qemu", physical_address_bits="passthrough"),
            "physical_address_bits passthrough needs KVM, and accelerator is qemu",
        ),
        (
            of(machine="pc"),
            "machine: 'pc'",
        ),
        (of(disks={"path": "/a"}), "disks: {'path': '/a'}"),
        (of(disks=["/a"]), "disks[0]: not a dictionary"),
        (of(disks=[{}]), "disks[0]: path"),
        (disk(path="a.img"), "disks[0]: path: 'a.img'"),
        (disk(path=""), "disks[0]: path: the text is empty"),
        (disk(path="/a/../b"), "disks[0]: path: '/a/../b'"),
        (disk(path="/a\n"), "disks[0]: path: '/a\\n'"),
        (disk(path="/a\0"), "disks[0]: path: '/a\\x00'"),
        (
            disk(path="/\ud800"),
            "disks[0]: path: '/\\ud800'",
        ),
        (disk(base="b"), "disks[0]: base: 'b'"),
        (
            disk(base="/b", format="raw"),
            "disk /a: only a writable qcow2 file",
        ),
        (disk(base="/b", base_format="vdi"), "disks[0]: base_format: 'vdi'"),
        (disk(size_mib=1), "disk /a: size_mib is only for a disk created from a base"),
        (disk(format="vdi"), "disks[0]: format: 'vdi'"),
        (
            of(interfaces=[{"type": "network"}]),
            "an interface of type network needs a source: the network's name",
        ),
        (of(interfaces=[{"type": "user", "source": "x"}]), "an interface of type user has no source"),
        (
            of(interfaces=[{"source": "a\tb"}]),
            "interfaces[0]: source: 'a\\tb'",
        ),
        (
            of(interfaces=[{"type": "bridge", "source": "a/b"}]),
            "'a/b' is not a valid bridge name",
        ),
        (
            of(interfaces=[{"type": "user", "mac": "1"}]),
            "interfaces[0]: mac: '1'",
        ),
        (
            of(interfaces=[{"type": "user", "mac": "01:00:5e:00:00:01"}]),
            "interfaces[0]: mac: 01:00:5e:00:00:01 is a multicast address",
        ),
        (of(boot={"initrd": "/i"}), "boot: kernel"),
        (of(boot={"kernel": "vmlinuz"}), "boot: kernel: 'vmlinuz'"),
        (
            of(boot={"kernel": "/k", "arguments": "a\0"}),
            "boot: arguments: 'a\\x00'",
        ),
        (of(console_log="log"), "console_log: 'log'"),
        (
            of(console_log="/a\x1b"),
            "console_log: '/a\\x1b'",
        ),
    ],
)
def test_an_invalid_setting_is_refused_with_one_message(asked: dict[str, Any], message: str | None) -> None:
    with raises(DomainError, "virtual machine a", message or "'memory'"):
        parse_specs([asked])


@pytest.mark.parametrize("name", ["a b", 3, "", "-a", "a/b", "a" * 65, "\ud800"])
def test_an_invalid_name_is_refused(name: Any) -> None:
    with raises(DomainError, repr(name), "64"):
        parse_specs([{"name": name}])


def test_a_virtual_machine_without_a_name_is_refused() -> None:
    with raises(DomainError, "None", "name"):
        parse_specs([{"memory_mib": 1024}])


def test_an_entry_that_is_not_a_dictionary_is_refused() -> None:
    with raises(DomainError, "'gpu01'"):
        parse_specs(["gpu01"])  # type: ignore[list-item]


def test_every_setting_has_a_type() -> None:
    """Settings without a type are records or lists of records, whose settings have types."""
    inner = {*kinds.SETTINGS.values(), "disks", "interfaces", "boot"}
    for kind in (DomainSpec, DeviceRequest, Nics, Disk, Interface, Boot):
        without = {item.name for item in fields(kind) if SETTING not in item.metadata}
        assert without == (inner if kind is DomainSpec else set())


def test_the_setting_of_each_kind_of_device_is_a_field() -> None:
    made = parse_specs([{"name": "a"}])[0]
    for key in kinds.SETTINGS.values():
        assert getattr(made, key).addresses == []
        assert getattr(made, key).chosen_for(1) == 0


@pytest.mark.parametrize(("key", "number"), [("3b:00.0", "1\u00b2"), ("3b:00.0", -1), ("3b.0", 1), (600.0, 1)])
def test_module_ids_are_parsed_and_invalid_ones_are_refused(key: Any, number: Any) -> None:
    with raises(DomainError, "gpu_module_ids", repr(key), repr(number)):
        parse_module_ids({key: number})
    assert parse_module_ids({"3B:00.0": "1", "0000:3c:00.0": 2}) == {"0000:3b:00.0": 1, "0000:3c:00.0": 2}


def test_a_name_that_is_listed_twice_is_refused() -> None:
    with raises(DomainError, "virtual machine a", "twice"):
        parse_specs([{"name": "a"}, {"name": "b"}, {"name": "a"}])


def test_a_device_that_is_assigned_twice_is_refused() -> None:
    address = "0000:3b:00.0"
    with raises(DomainError, "virtual machine a", address, "twice"):
        parse_specs([{"name": "a", "gpus": {"addresses": [address]}, "nics": {"addresses": ["3b:00.0"]}}])
    with raises(DomainError, "virtual machine b", address, "virtual machine a"):
        parse_specs([{"name": name, "gpus": {"addresses": [address]}} for name in "ab"])


def test_a_mac_that_is_used_twice_is_refused() -> None:
    interface = {"type": "user", "mac": "52:54:00:00:00:01"}
    with raises(DomainError, "virtual machine b", "52:54:00:00:00:01", "a"):
        parse_specs([{"name": name, "interfaces": [interface]} for name in "ab"])
