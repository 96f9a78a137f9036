# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from pathlib import Path

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
