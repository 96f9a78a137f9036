# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os
import subprocess
import sys

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.host import guests
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.guests import Guest

QEMU = ["/usr/bin/qemu-system-x86_64", "-name", "guest=db1,debug-threads=on", "-machine", "q35,accel=kvm"]


def process(server, number, arguments, *opened):
    server.put(f"/proc/{number}/cmdline", "".join(f"{argument}\0" for argument in arguments))
    for descriptor, target in enumerate(opened):
        place = server.path(f"/proc/{number}/fd/{descriptor}")
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.symlink(target, place)


def test_a_fresh_host_has_no_libvirt_and_no_guest(server):
    process(server, 1, ["/usr/lib/systemd/systemd"])
    process(server, 2, [])  # a kernel thread
    assert guests.read(server) == []


def test_a_libvirt_domain_is_read_with_its_process(server):
    server.domains = ["db1"]
    process(server, 4711, QEMU)
    assert guests.read(server) == [Guest("db1", 4711, "qemu-system-x86_64", True)]
    assert guests.observe(server).facts["words"] == ["db1 (process 4711)"]


def test_machines_unknown_to_libvirt_are_guests(server):
    server.domains = ["db1"]
    process(server, 10, QEMU)
    process(server, 11, ["/usr/libexec/qemu-kvm", "-name", "hand-made"])
    process(server, 12, ["qemu-system-aarch64", "-M", "virt"])
    process(server, 13, ["/usr/bin/cloud-hypervisor", "--api-socket", "x"], "/dev/null", "anon_inode:kvm-vm")
    assert guests.observe(server).facts["words"] == [
        Mentions("qemu-system-aarch64", "12"),
        Mentions("cloud-hypervisor", "13"),
        "db1 (process 10)",
        Mentions("hand-made", "11"),
    ]


def test_a_domain_without_a_process_is_a_guest(server):
    server.domains = ["other-driver"]
    assert guests.observe(server).facts["words"] == ["other-driver"]


def test_guests_are_found_if_libvirt_does_not_answer(server):
    process(server, 4711, QEMU)
    assert guests.read(server) == [Guest("db1", 4711, "qemu-system-x86_64", None)]
    assert guests.observe(server).facts["words"] == ["db1 (process 4711)"]


def test_processes_that_only_resemble_guests_are_not_guests(server):
    process(server, 20, ["/usr/bin/qemu-img", "convert", "a", "b"])
    process(server, 21, ["/usr/bin/qemu-nbd", "a"])
    process(server, 22, ["/usr/bin/vi", "qemu-system-x86_64"], "anon_inode:[eventfd]")
    # libvirt starts QEMU like this to query its capabilities.
    process(server, 23, ["/usr/bin/qemu-system-x86_64", "-S", "-machine", "none,accel=kvm:tcg"])
    assert guests.read(server) == []


def test_a_real_process_is_a_guest_until_it_ends(tmp_path):
    stand_in = tmp_path / "qemu-system-x86_64"
    os.symlink(sys.executable, stand_in)
    with subprocess.Popen(
        [str(stand_in), "-c", "import sys; sys.stdin.read()", "-name", f"guest=sailloft-{os.getpid()}"],
        stdin=subprocess.PIPE,
    ) as running:
        mine = [guest for guest in guests.read(System()) if guest.process == running.pid]
        running.communicate(b"")
    assert [guest.name for guest in mine] == [f"sailloft-{os.getpid()}"]
    assert running.pid not in [guest.process for guest in guests.read(System())]


def test_a_command_that_exceeds_its_timeout_is_an_error():
    with pytest.raises(HostError, match=r"60.*0\.2"):
        System().run(["sleep", "60"], timeout_s=0.2)


@pytest.mark.parametrize(
    ("guest", "words"),
    [
        (Guest("db1", 7, "kvm", True), "db1 (process 7)"),
        (Guest("db1", 7, "kvm", None), "db1 (process 7)"),
        (Guest("db1", 7, "kvm", False), Mentions("db1", "7")),
        (Guest("db1", None, "libvirt", True), "db1"),
        (Guest(None, 7, "kvm", None), "a machine of kvm (process 7)"),
    ],
)
def test_a_guest_is_named_in_words(guest, words):
    assert str(guest) == words


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["kvm"], True),
        (["qemu-kvm", "-M", "q35"], True),
        (["qemu-system-x86_64", "-M", "none"], False),
        (["qemu-system-x86_64", "-machine", "none,accel=kvm"], False),
        (["qemu-system-x86_64", "-machine", "q35,x=none"], True),
        (["qemu-system-x86_64", "-cpu", "none"], True),
        (["qemu-system-x86_64-x"], False),
        (["my-kvm"], False),
    ],
)
def test_a_program_is_a_machine_by_its_name_and_machine_type(server, arguments, found):
    process(server, 7, arguments)
    assert [guest.process for guest in guests.read(server)] == [7] * found


def test_guests_are_sorted_by_name_and_process_with_their_facts(server):
    server.domains = ["b", "c"]
    process(server, 9, ["kvm", "-name", "b"])
    process(server, 8, ["kvm"])
    process(server, 7, ["kvm"])
    process(server, "self", ["kvm", "-name", "not-a-number"])
    facts = guests.observe(server).facts
    names = ("name", "process", "program", "known_to_libvirt")
    assert facts["guests"] == [
        dict(zip(names, row))
        for row in [
            (None, 7, "kvm", False),
            (None, 8, "kvm", False),
            ("b", 9, "kvm", True),
            ("c", None, "libvirt", True),
        ]
    ]
    assert server.commands == ["virsh --readonly --connect qemu:///system list --name"]
