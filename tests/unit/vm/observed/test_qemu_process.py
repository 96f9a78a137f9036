# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed import qemu_process
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.qemu_process import (
    is_accelerated,
    memory_map,
    read,
)

# The maps are those of a QEMU 7.2 process in the lab, with one additional, misplaced page of node 1.
FILE = "file=/dev/hugepages/libvirt/qemu/1-vm1/qemu_back_mem.ram-node{}\\040(deleted)"
NUMA_MAPS = f"""559d5c000000 default file=/usr/bin/qemu-system-x86_64 mapped=120 N0=120 kernelpagesize_kB=4
7f9a1be00000 bind:1 {FILE.format(1)} huge anon=256 dirty=256 N1=256 kernelpagesize_kB=2048
7f9a3c000000 default anon=12 dirty=12 N0=12 kernelpagesize_kB=4
7f9a53e00000 bind:0 {FILE.format(0)} huge anon=256 dirty=256 N0=255 N1=1 kernelpagesize_kB=2048
"""


def test_huge_pages_are_counted_by_size_policy_and_node() -> None:
    assert memory_map(NUMA_MAPS) == [
        {"page_bytes": 2097152, "policy": "bind:0", "pages_by_node": {"0": 255, "1": 1}},
        {"page_bytes": 2097152, "policy": "bind:1", "pages_by_node": {"1": 256}},
    ]
    assert memory_map("7f00 default anon=1 N0=1 kernelpagesize_kB=4\n") == []


def test_the_facts_of_a_qemu_process_are_read(tmp_path: Path) -> None:
    task = tmp_path / "proc" / "42" / "task"
    for thread, (name, cpus) in {
        "42": ("qemu-system-x86", "0,4"),
        "50": ("CPU 0/KVM", "1"),
        "51": ("CPU 1/TCG", "2-3"),
    }.items():
        (task / thread).mkdir(parents=True)
        (task / thread / "comm").write_text(f"{name}\n")
        (task / thread / "status").write_text(f"Name:\t{name}\nCpus_allowed_list:\t{cpus}\n")
    base = tmp_path / "proc" / "42"
    (base / "cmdline").write_text("qemu\0-accel\0kvm\0-m\x001024\0")
    (base / "status").write_text("Name:\tqemu\nVmLck:\t 1813380 kB\n")
    (base / "numa_maps").write_text(NUMA_MAPS)
    (tmp_path / "vm1.pid").write_text("42\n")
    facts = read("vm1", str(tmp_path / "proc"), str(tmp_path))
    assert facts is not None
    assert facts["arguments"] == ["qemu", "-accel", "kvm", "-m", "1024"]
    assert (facts["pid"], facts["accelerated"], facts["locked_bytes"]) == (42, True, 1813380 * 1024)
    assert (facts["pinning"], facts["emulator_cpus"]) == ({"0": [1], "1": [2, 3]}, [0, 4])
    assert len(facts["memory"]) == 2


def test_no_facts_are_read_if_there_is_no_process(tmp_path: Path) -> None:
    assert read("vm1", str(tmp_path), str(tmp_path)) is None
    (tmp_path / "vm1.pid").write_text("42\n")
    assert read("vm1", str(tmp_path), str(tmp_path)) is None


def test_acceleration_is_read_from_the_arguments() -> None:
    assert is_accelerated(["qemu", "-accel", "kvm"])
    assert is_accelerated(["qemu", "-machine", "q35,accel=kvm"])
    assert not is_accelerated(["qemu", "-accel", "tcg", "-name", "kvm"])


def process(
    folder: Path, threads: dict[str, tuple[str, str]], status: str = "", maps: str = ""
) -> dict[str, Any] | None:
    """Return the facts of process 42, whose ``threads`` have a name and a list of CPUs each."""
    base = folder / "proc" / "42"
    for thread, (name, cpus) in threads.items():
        (base / "task" / thread).mkdir(parents=True)
        (base / "task" / thread / "comm").write_text(f"{name}\n")
        (base / "task" / thread / "status").write_text(f"Name:\t{name}\n{cpus}")
    (base / "cmdline").write_text("qemu\0")
    (base / "status").write_text(status)
    (base / "numa_maps").write_text(maps)
    (folder / "vm1.pid").write_text("42\n")
    return read("vm1", str(folder / "proc"), str(folder))


def test_all_facts_of_a_process_without_locked_memory(tmp_path: Path) -> None:
    threads = {
        "42": ("qemu", "Cpus_allowed_list:\t0\n"),
        "100": ("CPU 10/KVM", "Cpus_allowed_list:\t7\n"),
        "43": ("IO iothread1", "Cpus_allowed_list:\t3\n"),
        "50": ("CPU 1/KVM", "Cpus_allowed:\tff\n"),
        "51": ("CPU x/KVM", "Cpus_allowed_list:\t3\n"),
    }
    assert process(tmp_path, threads) == {
        "pid": 42,
        "arguments": ["qemu"],
        "accelerated": False,
        "memory": [],
        "locked_bytes": 0,
        "pinning": {"1": [], "10": [7]},
        "emulator_cpus": [0],
    }


def test_a_process_that_may_not_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    (tmp_path / "vm1.pid").write_text("42\n")
    (tmp_path / "42").mkdir()
    (tmp_path / "42/cmdline").write_text("qemu\0")
    monkeypatch.setattr(qemu_process.os, "listdir", refuse)
    with raises(DomainError, "vm1", "Permission denied", f"{tmp_path}/42/task"):
        read("vm1", str(tmp_path), str(tmp_path))


def test_mappings_of_one_size_and_policy_are_added() -> None:
    lines = [
        "1 bind:0 file=x huge dirty=3 N0=1 N1=2 kernelpagesize_kB=2048",
        "2 bind:0 N0=4 huge kernelpagesize_kB=2048",
        "3 bind:0 huge N10=1 N2=1 kernelpagesize_kB=1048576",
        "4 default huge Nx=9 kernelpagesize_kB=2048",
        "5 huge N0=1 kernelpagesize_kB=2048",
        "6 prefer:1 huge N0=7",
    ]
    assert memory_map("\n".join(lines)) == [
        {"page_bytes": 0, "policy": "prefer:1", "pages_by_node": {"0": 7}},
        {"page_bytes": 2097152, "policy": "bind:0", "pages_by_node": {"0": 5, "1": 2}},
        {"page_bytes": 2097152, "policy": "default", "pages_by_node": {}},
        {"page_bytes": 1073741824, "policy": "bind:0", "pages_by_node": {"10": 1, "2": 1}},
    ]


@pytest.mark.parametrize(
    ("arguments", "accelerated"),
    [
        ("-enable-kvm", True),
        ("-machine q35,accel=kvm", True),
        ("-accel kvm", True),
        ("-accel=kvm", True),
        ("-kvm", False),
    ],
)
def test_each_way_to_request_kvm_is_known(arguments: str, accelerated: bool) -> None:
    assert is_accelerated(arguments.split()) is accelerated
