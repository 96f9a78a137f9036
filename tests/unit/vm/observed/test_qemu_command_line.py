# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.qemu_command_line import qemu_options


def fields(*arguments: str) -> dict[str, str]:
    """Return the fields of the only option."""
    options = qemu_options(list(arguments))
    assert options is not None
    ((_option, found),) = options
    return found


def test_both_notations_of_an_option_give_the_same_fields() -> None:
    expected = [("object", {"qom-type": "memory-backend-file", "id": "ram-node0", "prealloc": "on", "size": "5"})]
    assert qemu_options(["-object", "memory-backend-file,id=ram-node0,prealloc=on,size=5"]) == expected
    given = {"qom-type": "memory-backend-file", "id": "ram-node0", "prealloc": True, "size": 5}
    assert qemu_options(["-object", json.dumps(given)]) == expected


def test_options_are_in_the_order_of_the_command_line() -> None:
    command = "qemu -name guest=vm1,debug-threads=on -S -device a,id=1 --device b -m 1024 -no-hpet -accel kvm"
    assert qemu_options(command.split()) == [
        ("name", {"guest": "vm1", "debug-threads": "on"}),
        ("device", {"driver": "a", "id": "1"}),
        ("device", {"driver": "b"}),
        ("m", {"value": "1024"}),
        ("accel", {"value": "kvm"}),
    ]


def test_options_without_a_value_are_left_out() -> None:
    assert qemu_options(["-S", "-no-hpet", "-overcommit", "mem-lock=off", "-nodefaults"]) == [
        ("overcommit", {"mem-lock": "off"})
    ]


def test_no_command_line_differs_from_one_without_options() -> None:
    assert qemu_options(None) is None
    assert qemu_options([]) == []
    assert qemu_options(["qemu-system-x86_64"]) == []
    assert qemu_options(["qemu-system-x86_64", "disk.img"]) == []
    assert qemu_options(["-S"]) == []


@pytest.mark.parametrize(
    ("option", "key"),
    [("object", "qom-type"), ("device", "driver"), ("machine", "type"), ("cpu", "model"), ("smp", "value")],
)
def test_a_first_part_without_a_key_is_the_field_that_its_option_implies(option: str, key: str) -> None:
    assert fields(f"-{option}", "first,second") == {key: "first", "second": "on"}
    assert fields(f"-{option}", f"{key}=first") == {key: "first"}


def test_only_the_first_equals_sign_of_a_part_separates() -> None:
    assert fields("-append", "root=UUID=1") == {"root": "UUID=1"}
    assert fields("-device", "x,id=,serial==") == {"driver": "x", "id": "", "serial": "="}


def test_two_commas_are_one_comma_of_the_text() -> None:
    assert fields("-cpu", "host,path=a,,b,migratable=on") == {"model": "host", "path": "a,b", "migratable": "on"}
    assert fields("-cpu", "ho,,st") == {"model": "ho,st"}
    assert fields("-cpu", "host,path=a,,,b") == {"model": "host", "path": "a,", "b": "on"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "on"),
        (False, "off"),
        (0, "0"),
        (17179869184, "17179869184"),
        ("0000:13:00.0", "0000:13:00.0"),
        ([], ""),
        ([0], "0"),
        ([0, 2, True, "x"], "0,2,on,x"),
        ([[0, 1], [False]], "0,1,off"),
    ],
)
def test_a_json_value_becomes_text(value: Any, text: str) -> None:
    assert fields("-object", json.dumps({"host-nodes": value})) == {"host-nodes": text}
